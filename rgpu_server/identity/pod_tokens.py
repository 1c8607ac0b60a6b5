"""Reads the ServiceAccount tokens of pods, which Kubernetes' API server has signed.

The signatures are checked against its keys in a file, so nobody is asked. The token names its pod,
and ends with the pod or after an hour at most.
"""

from __future__ import annotations

import json
import logging
import os
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from rgpu_common.errors import ConfigError
from rgpu_common.installing import install_words

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger("rgpu.server")

_ALGORITHMS = ("RS256", "RS384", "RS512", "ES256", "ES384", "ES512")
_MOST_TOKEN = 16 << 10
_MOST_FILE = 1 << 20


class Pod(Struct, frozen=True):
    """Whose token it is."""

    namespace: str
    uid: str


class PodTokens:
    """keys: a file with the API server's keys, as `kubectl get --raw /openid/v1/jwks` prints it; it
    is read again when it changes. issuer: who has signed, "" accepts every issuer with these keys.

    Raises:
        ConfigError: the file cannot be read, or the package that checks signatures is missing.
    """

    def __init__(self, keys: Path, issuer: str, audience: str) -> None:
        self._path = keys
        self._issuer = issuer
        self._audience = audience
        self._age: tuple[int, int] | None = None
        self._keys: dict[str, Any] = {}
        try:
            import jwt
        except ImportError:
            raise ConfigError(
                f"identity.pod_keys needs the package PyJWT: {install_words('kubernetes')}"
            ) from None
        self._jwt = jwt
        self._load()

    def read(self, token: str, now: float) -> Pod | None:
        """Returns the pod that a token names; None if it is not valid now."""
        if len(token) > _MOST_TOKEN or token.count(".") != 2:
            return None
        self._renew()
        try:
            key = self._keys.get(str(self._jwt.get_unverified_header(token).get("kid", "")))
            if key is None:
                return None
            facts = self._jwt.decode(
                token,
                key,
                algorithms=_ALGORITHMS,
                audience=self._audience,
                issuer=self._issuer or None,
                options={"require": ["exp", "aud"], "verify_exp": False},
            )
            if not now < float(facts["exp"]):
                return None
            bound = facts["kubernetes.io"]
            return Pod(str(bound["namespace"]), str(bound["pod"]["uid"]))
        except (self._jwt.PyJWTError, KeyError, TypeError, ValueError):
            return None

    def _renew(self) -> None:
        """Reads the keys again if the file has changed; keeps the old ones if it cannot be used."""
        try:
            if self._stat() != self._age:
                self._load()
        except (OSError, ConfigError) as error:
            log.warning("the keys for pods' tokens stay as they were: %s", error)

    def _stat(self) -> tuple[int, int]:
        status = os.stat(self._path)
        return status.st_mtime_ns, status.st_ino

    def _load(self) -> None:
        try:
            age = self._stat()
            with self._path.open("rb") as file:
                listed = json.loads(file.read(_MOST_FILE))["keys"]
            found = {str(one["kid"]): self._jwt.PyJWK(one).key for one in listed}
        except OSError as error:
            raise ConfigError(
                f"identity.pod_keys: {self._path}: {error.strerror}; `rgpu agent-node --pod-keys` "
                "writes it once the API server answers"
            ) from None
        except (ValueError, KeyError, TypeError, self._jwt.PyJWTError):
            raise ConfigError(
                f"identity.pod_keys: {self._path} does not hold keys; write it with `kubectl get "
                "--raw /openid/v1/jwks`"
            ) from None
        self._age, self._keys = age, found
