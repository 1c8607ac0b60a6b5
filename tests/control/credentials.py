"""A tokens file with access tokens of two tenants and an operator."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
