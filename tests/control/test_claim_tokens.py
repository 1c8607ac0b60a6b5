"""Credentials of claims: what is in them, and what is no credential."""

from __future__ import annotations

import base64
import secrets
from pathlib import Path

import pytest

from rgpu_common import claim_tokens
from rgpu_common.claim_tokens import ClaimToken, key_in, make, node_key, read
from rgpu_common.clusters import is_lease_of
from rgpu_common.errors import ConfigError
from rgpu_server.identity.claim_access import ClaimAccess

CLAIM = "0e8a8d3c-8ad4-4c2f-9a8e-111111111111"
KEY = node_key(b"k" * 32, "gpu7")


def test_a_token_says_what_was_put_into_it() -> None:
    token = make(KEY, CLAIM, "team-a", 200.0)
    assert read(KEY, token, 100.0) == ClaimToken(CLAIM, "team-a", 200.0)
    assert read(KEY, token, 200.0) is None


def test_another_node_does_not_accept_it() -> None:
    token = make(KEY, CLAIM, "team-a", 200.0)
    assert read(node_key(b"k" * 32, "gpu8"), token, 100.0) is None
    assert read(b"k" * 32, token, 100.0) is None


def test_no_changed_byte_is_accepted() -> None:
    token = make(KEY, CLAIM, "team-a", 200.0)
    for place in range(len(token)):
        for other in "Ab.-_=\n\u00e9":
            # The last character of a text in base64 may differ in bits that say nothing.
            if token[place] == other or place in (len(token) - 1, token.rindex(".") - 1):
                continue
            changed = token[:place] + other + token[place + 1 :]
            assert read(KEY, changed, 100.0) is None, (place, other)


@pytest.mark.parametrize(
    "token", ["", ".", "rgpuc1.", "rgpuc1..", "rgpuc1.e30.", "x" * 5000, "rgpuc1." + "A" * 5000]
)
def test_nonsense_is_no_credential(token: str) -> None:
    assert read(KEY, token, 100.0) is None


@pytest.mark.parametrize("facts", [b"{}", b"[]", b"1", b'{"c":1,"t":2,"e":"x"}', b"\xff"])
def test_signed_nonsense_is_no_credential(facts: bytes) -> None:
    said = claim_tokens.PREFIX + base64.urlsafe_b64encode(facts).decode().rstrip("=")
    proof = claim_tokens._text(claim_tokens._proof(KEY, said))
    assert read(KEY, f"{said}.{proof}", 100.0) is None


def test_a_key_file_holds_32_bytes(tmp_path: Path) -> None:
    file = tmp_path / "key"
    key = secrets.token_bytes(32)
    file.write_bytes(base64.b64encode(key) + b"\n")
    assert key_in(file) == key
    for wrong in (b"", b"secret", base64.b64encode(b"short")):
        file.write_bytes(wrong)
        with pytest.raises(ConfigError, match="head -c 32 /dev/urandom"):
            key_in(file)
    with pytest.raises(ConfigError, match="cannot be read"):
        key_in(tmp_path / "none")


def test_a_claim_is_for_its_own_leases() -> None:
    assert is_lease_of(CLAIM, CLAIM)
    assert is_lease_of(f"{CLAIM}.1", CLAIM)
    for other in ("", CLAIM[:-1], f"{CLAIM}1", f"{CLAIM}.", f"{CLAIM}.x", f"{CLAIM}.\u0661"):
        assert not is_lease_of(other, CLAIM), other


def test_what_it_proves() -> None:
    access = ClaimAccess(KEY)
    assert access.look(make(KEY, CLAIM, "team-a", 200.0), 100.0) == ("team-a", frozenset({CLAIM}))
    assert access.look(make(KEY, CLAIM, "*", 200.0), 100.0) == ("", None)
    assert access.look("rgpu_1_secret", 100.0) == ("", None)
    assert ClaimAccess(None).look(make(KEY, CLAIM, "team-a", 200.0), 100.0) == ("", None)
