"""What a pod needs so that its programs find their server and trust it: variables, a token, and the
authority of the server's certificate. Pure.

The admission policy (`deploy/kubernetes/base/policy.yaml`) adds the same where there is no webhook.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rgpu_cluster.kubernetes.names import (
    AUDIENCE,
    AUTHORITY,
    DEVICE,
    GATE,
    LEASE,
    SERVER,
    SERVER_NAME,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

VOLUME = "rgpu-token"
MOUNT = "/var/run/secrets/rgpu.dev"
TOKEN_SECONDS = 3600
_VARIABLES = {"RGPU_SERVER": SERVER, "RGPU_LEASE": LEASE, "RGPU_DEVICE": DEVICE}
_SET = {
    "RGPU_TOKEN_FILE": f"{MOUNT}/token",
    "RGPU_TLS_CA": f"{MOUNT}/ca.crt",
    "RGPU_TLS_NAME": SERVER_NAME,
}


def with_variables(container: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the container with our variables and the token's mount, where it lacks them."""
    env = list(container.get("env") or [])
    mounts = list(container.get("volumeMounts") or [])
    known = {one.get("name") for one in env}
    for name, annotation in _VARIABLES.items():
        if name not in known:
            env.append({"name": name, "valueFrom": {"fieldRef": _field(annotation)}})
    env += [{"name": name, "value": text} for name, text in _SET.items() if name not in known]
    if all(one.get("mountPath") != MOUNT for one in mounts):
        mounts.append({"name": VOLUME, "mountPath": MOUNT, "readOnly": True})
    return {**container, "env": env, "volumeMounts": mounts}


def with_token(volumes: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Returns the volumes of a pod with that of its token and the authority. Without a certificate
    of the servers the authority's file is empty.
    """
    found = list(volumes)
    if all(one.get("name") != VOLUME for one in found):
        token = {"audience": AUDIENCE, "path": "token", "expirationSeconds": TOKEN_SECONDS}
        authority = {"path": "ca.crt", "fieldRef": _field(AUTHORITY)}
        sources = [{"serviceAccountToken": token}, {"downwardAPI": {"items": [authority]}}]
        found.append({"name": VOLUME, "projected": {"sources": sources}})
    return found


def _field(annotation: str) -> dict[str, str]:
    return {"fieldPath": f"metadata.annotations['{annotation}']"}


def with_gate(gates: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Returns the scheduling gates of a pod with ours."""
    found = list(gates)
    if all(one.get("name") != GATE for one in found):
        found.append({"name": GATE})
    return found
