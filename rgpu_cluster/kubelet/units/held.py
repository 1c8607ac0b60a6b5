"""What lies on this node for containers with units: one folder for each, named by its units.

A folder has `container.json`, and `credentials/token`, which is mounted into the container. The
name of the lease is made when the kubelet chooses the units; only later it says for whom.
"""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
import shutil
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import asdict

from rgpu_cluster.kubelet.files import replace_file
from rgpu_cluster.kubernetes.names import UNIT_REQUEST

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

log = logging.getLogger("rgpu.device-plugin")

_RECORD, _CREDENTIALS, _TOKEN = "container.json", "credentials", "token"


class Held(Struct, frozen=True, eq=False):
    """A container's units of the leading resource. One that is granted again is another one, though
    it says the same: what was begun for the first does not concern it.

    request: the id of its lease. made: when, in seconds since 1970. tenant: "" before the lease was
    granted. attempt: that of the last grant.
    """

    ids: tuple[str, ...]
    request: str
    made: float
    tenant: str = ""
    attempt: int = 0


def name_of(ids: Iterable[str]) -> str:
    """Returns the name of the folder of these units."""
    return hashlib.sha256("\n".join(sorted(ids)).encode()).hexdigest()[:32]


def new_held(ids: Iterable[str], now: float) -> Held:
    """Returns units that have just been chosen, with the name of a lease that nobody knows."""
    return Held(tuple(sorted(ids)), f"{UNIT_REQUEST}{secrets.token_hex(16)}", now)


class HeldFolder:
    """root: the folder of all containers, which only root can enter.

    Raises:
        OSError: it cannot be made.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        root.chmod(0o700)

    def credentials(self, held: Held) -> Path:
        """Returns the folder that the container sees."""
        return self._root / name_of(held.ids) / _CREDENTIALS

    def put(self, held: Held, token: str = "") -> None:
        """Writes what is known of a container; OSError. token: replaces its credential."""
        folder = self.credentials(held)
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        if token:
            # Whoever is in the container may read it, and nobody else can reach it.
            replace_file(folder / _TOKEN, f"{token}\n", 0o444)
        replace_file(folder.parent / _RECORD, json.dumps(asdict(held)), 0o600)

    def remove(self, held: Held) -> None:
        """Removes all of a container; OSError."""
        shutil.rmtree(self._root / name_of(held.ids), ignore_errors=True)

    def read(self) -> dict[str, Held]:
        """Returns all containers by the names of their folders, without broken records."""
        found = {path.parent.name: _read(path) for path in self._root.glob(f"*/{_RECORD}")}
        return {name: held for name, held in found.items() if held is not None}


def _read(path: Path) -> Held | None:
    try:
        row = json.loads(path.read_text(encoding="utf-8"))
        return Held(**{**row, "ids": tuple(row["ids"])})
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warning("%s cannot be read: %s", path, error)
        return None
