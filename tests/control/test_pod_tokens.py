"""ServiceAccount tokens of pods, signed by a key of ours in the place of the API server's."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from rgpu_common.errors import ConfigError
from rgpu_server.identity.claim_access import ClaimAccess
from rgpu_server.identity.pod_tokens import Pod, PodTokens

ISSUER, AUDIENCE = "https://kubernetes.default.svc", "rgpu.dev"
CLAIM = "claim-aaaaaaaaaaaaaaaa"
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())
FACTS = {
    "iss": ISSUER, "aud": [AUDIENCE], "exp": 2000,
    "kubernetes.io": {"namespace": "team-a", "pod": {"name": "train", "uid": "uid-1"}},
}  # fmt: skip


def jwks(**keys: Any) -> str:
    rows = []
    for kid, key in keys.items():
        kind = jwt.algorithms.RSAAlgorithm if key is RSA else jwt.algorithms.ECAlgorithm
        rows.append({**json.loads(kind.to_jwk(key.public_key())), "kid": kid, "use": "sig"})
    return json.dumps({"keys": rows})


def sign(key: Any = RSA, kid: str = "a", algorithm: str = "RS256", **more: Any) -> str:
    return jwt.encode({**FACTS, **more}, key, algorithm, headers={"kid": kid})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "jwks"
    file.write_text(jwks(a=RSA, b=EC))
    return file


def test_a_pod_is_known_by_its_token(file: Path) -> None:
    tokens = PodTokens(file, ISSUER, AUDIENCE)
    assert tokens.read(sign(), 1000.0) == Pod("team-a", "uid-1")
    assert tokens.read(sign(EC, "b", "ES256"), 1000.0) == Pod("team-a", "uid-1")
    assert PodTokens(file, "", AUDIENCE).read(sign(iss="https://else"), 1000.0) is not None


@pytest.mark.parametrize(
    "token",
    [
        sign(aud=["kubernetes"]),
        sign(iss="https://else"),
        sign(exp=1000),
        sign(kid="c"),
        sign(EC, "a", "ES256"),
        sign(**{"kubernetes.io": {"namespace": "team-a"}}),
        sign(**{"kubernetes.io": {"namespace": "team-a", "pod": "train"}}),
        jwt.encode(FACTS, None, "none", headers={"kid": "a"}),  # type: ignore[arg-type]
        jwt.encode(FACTS, "secret" * 8, "HS256", headers={"kid": "a"}),
        sign()[:-8],
        "a.b.c",
        "..",
        "x" * 20000,
    ],
)
def test_others_are_not(file: Path, token: str) -> None:
    assert PodTokens(file, ISSUER, AUDIENCE).read(token, 1000.0) is None


def test_new_keys_count_at_once_and_a_broken_file_changes_nothing(file: Path) -> None:
    tokens = PodTokens(file, ISSUER, AUDIENCE)

    def write(text: str, age: int) -> None:
        file.write_text(text)
        os.utime(file, (age, age))

    write(jwks(b=EC), 1)
    assert tokens.read(sign(), 1000.0) is None
    write("{", 2)
    assert tokens.read(sign(EC, "b", "ES256"), 1000.0) is not None
    write(jwks(a=RSA), 3)
    assert tokens.read(sign(), 1000.0) is not None
    file.unlink()
    assert tokens.read(sign(), 1000.0) is not None


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"keys": 1}', '{"keys": [{}]}', None])
def test_a_file_without_keys_is_refused(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "jwks").write_text(text)
    with pytest.raises(ConfigError, match=r"identity\.pod_keys"):
        PodTokens(tmp_path / "jwks", ISSUER, AUDIENCE)


def test_a_file_that_is_not_there_yet_has_a_writer(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="`rgpu agent-node --pod-keys` writes it"):
        PodTokens(tmp_path / "jwks", ISSUER, AUDIENCE)


def test_a_pod_may_use_what_its_agent_has_said_and_its_own_lease(file: Path) -> None:
    access = ClaimAccess(None, PodTokens(file, ISSUER, AUDIENCE))
    own = "uid-1"
    assert access.look(sign(), 1000.0) == ("team-a", frozenset({own}))
    access.allow(CLAIM, ["uid-1", "uid-2"])
    assert access.look(sign(), 1000.0) == ("team-a", frozenset({own, CLAIM}))
    access.allow(CLAIM, ["uid-2"])
    assert access.look(sign(), 1000.0) == ("team-a", frozenset({own}))
    access.allow(CLAIM, ["uid-1"])
    access.forget(CLAIM)
    assert access.look(sign(), 1000.0) == ("team-a", frozenset({own}))
