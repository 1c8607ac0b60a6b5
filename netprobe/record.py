"""Measurements as JSON and back, and the cache of them on disk."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netprobe.estimate import Bandwidth, Confidence, RoundTrips
from netprobe.prober import Measurement

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Changes with the form of an entry; entries of another schema are as if they were not there.
SCHEMA = 1
MAX_AGE_SECONDS = 600.0
_MAX_BYTES = 256 << 10
_MAX_PATHS = 64


def to_plain(path: Measurement) -> dict[str, Any]:
    """Returns a measurement as what JSON can hold."""
    plain = asdict(path)
    plain["server"] = path.server.hex()
    for name in ("up", "down"):
        if plain[name] is not None:
            plain[name]["confidence"] = plain[name]["confidence"].value
    return plain


def from_plain(plain: Mapping[str, Any]) -> Measurement:
    """Returns the measurement again; ValueError, KeyError or TypeError if it is none."""
    trips = plain["round_trip"]
    rate = plain["messages_per_second"]
    return Measurement(
        uri=str(plain["uri"]),
        kind=str(plain["kind"]),
        error=str(plain["error"]),
        connect=float(plain["connect"]),
        handshake=float(plain["handshake"]),
        round_trip=None if trips is None else RoundTrips(int(trips["count"]), *(
            float(trips[name]) for name in ("minimum", "median", "p99", "jitter")
        )),
        up=_bandwidth(plain["up"]),
        down=_bandwidth(plain["down"]),
        messages_per_second=None if rate is None else float(rate),
        seconds=float(plain["seconds"]),
        server=bytes.fromhex(plain["server"]),
    )  # fmt: skip


def _bandwidth(plain: Mapping[str, Any] | None) -> Bandwidth | None:
    if plain is None:
        return None
    return Bandwidth(
        float(plain["bytes_per_second"]),
        Confidence(plain["confidence"]),
        bool(plain["shaped"]),
        int(plain["trains"]),
        int(plain["bytes"]),
    )


@dataclass(frozen=True, slots=True)
class Entry:
    """What was measured of a server.  at: seconds since 1970.  server: who answered."""

    at: float
    server: bytes
    same_host: bool
    paths: tuple[Measurement, ...]

    def fresh(self, now: float, max_age: float = MAX_AGE_SECONDS) -> bool:
        """True if it is not too old; an entry of the future is none."""
        return 0 <= now - self.at <= max_age


class Cache:
    """One file for each server, for this user.  What cannot be read or written is left out: a
    measurement can always be made again.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def _path(self, client: str, server: str) -> Path:
        name = hashlib.sha256(f"{client}\n{server}".encode()).hexdigest()[:32]
        return self._folder / f"{name}.json"

    def read(self, client: str, server: str) -> Entry | None:
        """Returns what is kept of a (client, server); server: the address as the user gave it."""
        try:
            with open(self._path(client, server), encoding="utf-8") as file:
                plain = json.loads(file.read(_MAX_BYTES))
            if plain["schema"] != SCHEMA:
                return None
            paths = tuple(from_plain(path) for path in plain["paths"][:_MAX_PATHS])
            return Entry(
                float(plain["at"]), bytes.fromhex(plain["server"]), bool(plain["same_host"]), paths
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, client: str, server: str, entry: Entry) -> None:
        """Keeps an entry, in place of the one before."""
        plain = {
            "schema": SCHEMA,
            "at": entry.at,
            "server": entry.server.hex(),
            "same_host": entry.same_host,
            "paths": [to_plain(path) for path in entry.paths],
        }
        with contextlib.suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(dir=self._folder)
            with open(descriptor, "w", encoding="utf-8") as file:
                json.dump(plain, file)
            os.replace(name, self._path(client, server))


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Returns where this user's measurements are kept."""
    base = environment.get("XDG_CACHE_HOME")
    home = Path(base) if base and os.path.isabs(base) else Path(
        environment.get("HOME") or tempfile.gettempdir()
    ) / ".cache"  # fmt: skip
    return home / "rgpu" / "paths"


def client_name(addresses: Sequence[str], boot_id: str | None) -> str:
    """Returns what tells this client's place in the network from others that share the cache."""
    return hashlib.sha256("\n".join([boot_id or "", *sorted(addresses)]).encode()).hexdigest()[:32]
