"""A tokens file with access tokens of two tenants and an operator."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rgpu_server.identity.access_tokens import AccessTokenRow, changing, make_access_token
from rgpu_server.identity.settings import Identity

NOW = 1_700_000_000.0


@dataclass
class Keys:
    """A tokens file with access tokens of alice, bob and ops."""

    path: Path
    alice: str = ""
    bob: str = ""
    ops: str = ""

    def add(self, tenant: str, expires: float | None = None) -> tuple[str, AccessTokenRow]:
        access_token, row = make_access_token(tenant, NOW, expires)
        with changing(self.path) as rows:
            rows.append(row)
        return access_token, row

    def identity(self, **fields: Any) -> Identity:
        return Identity(tokens=str(self.path), operators=("ops",), **fields)


def make_keys(path: Path) -> Keys:
    """Writes a tokens file and returns its access tokens."""
    found = Keys(path)
    for tenant in ("alice", "bob", "ops"):
        setattr(found, tenant, found.add(tenant)[0])
    return found


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    """Access tokens of all tests of a file."""
    return make_keys(tmp_path_factory.mktemp("keys") / "tokens.toml")


@pytest.fixture(name="keys")
def keys_of_a_test(tmp_path: Path) -> Keys:
    """Access tokens of one test alone."""
    return make_keys(tmp_path / "tokens.toml")
