"""Measurements as JSON, and their cache on disk."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from netprobe.estimate import Bandwidth
    from netprobe.prober import Measurement

# Changes with the form of an entry; entries with another schema are ignored.
SCHEMA = 2
MAX_AGE_SECONDS = 600.0
# Shorter for a broken path, because it may work again soon, and may be the one to fall back on.
MAX_AGE_BROKEN_SECONDS = 60.0
# How long the server behind a broken path is remembered. Programs fall back on such a path without
# asking which server answers. A link may be down for a night; after more than a day its address may
# belong to another server.
MAX_UNSEEN_SECONDS = 86400.0
_MAX_BYTES = 256 << 10
_MAX_PATHS = 64
_MOST = 1e18
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def to_plain(path: Measurement) -> dict[str, Any]:
    """Returns a measurement as a JSON object."""
    # Imported here and in `Entry.after` only: that takes milliseconds, which only a run that
    # measures needs to spend.
    from dataclasses import asdict

    plain = asdict(path)
    plain["server"] = path.server.hex()
    for name in ("up", "down"):
        if plain[name] is not None:
            plain[name]["confidence"] = plain[name]["confidence"].value
    return plain


def from_plain(plain: Mapping[str, Any]) -> Measurement:
    """Returns the measurement of a JSON object; raises ValueError, KeyError or TypeError."""
    from netprobe.estimate import RoundTrips
    from netprobe.prober import Measurement

    trips = plain["round_trip"]
    rate = plain["messages_per_second"]
    return Measurement(
        uri=_text(plain["uri"]),
        kind=_text(plain["kind"]),
        error=_text(plain["error"]),
        connect=_number(plain["connect"]),
        handshake=_number(plain["handshake"]),
        round_trip=None if trips is None else RoundTrips(int(_number(trips["count"])), *(
            _number(trips[name]) for name in ("minimum", "median", "p99", "jitter")
        )),
        up=_bandwidth(plain["up"]),
        down=_bandwidth(plain["down"]),
        messages_per_second=None if rate is None else _number(rate),
        seconds=_number(plain["seconds"]),
        server=bytes.fromhex(plain["server"]),
    )  # fmt: skip


def _number(value: object) -> float:
    """Returns a time, rate or count; raises ValueError for anything else."""
    if not isinstance(value, (int, float)) or not 0 <= value <= _MOST:
        raise ValueError(f"{value!r} is not a measured value")
    return float(value)


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.isprintable():
        raise ValueError(f"{value!r} is not a printable text")
    return value


def _bandwidth(plain: Mapping[str, Any] | None) -> Bandwidth | None:
    if plain is None:
        return None
    from netprobe.estimate import Bandwidth, Confidence

    return Bandwidth(
        _number(plain["bytes_per_second"]),
        Confidence(plain["confidence"]),
        bool(plain["shaped"]),
        int(_number(plain["trains"])),
        int(_number(plain["bytes"])),
    )


class Entry(NamedTuple):
    """The measurements of a server. at: seconds since 1970. server: which server answered.

    seen: for broken paths, by URI, when a server last answered there, if that was before `at`.
    """

    at: float
    server: bytes
    same_host: bool
    paths: tuple[Measurement, ...]
    seen: Mapping[str, float] = MappingProxyType({})

    def fresh(self, now: float) -> bool:
        """Returns True if the entry is recent enough; an entry from the future is not."""
        whole = all(path.works for path in self.paths)
        return 0 <= now - self.at <= (MAX_AGE_SECONDS if whole else MAX_AGE_BROKEN_SECONDS)

    def after(self, before: Entry | None) -> Entry:
        """Returns this entry, with the servers that `before` knew behind paths that are broken
        now, unless that is too long ago.
        """
        from dataclasses import replace

        known = before.answered(self.at) if before else {}
        paths, seen = [], dict(self.seen)
        for path in self.paths:
            if path.works or path.server or path.uri not in known:
                paths.append(path)
                continue
            server, seen[path.uri] = known[path.uri]
            paths.append(replace(path, server=server))
        return self._replace(paths=tuple(paths), seen=seen)

    def answered(self, now: float) -> dict[str, tuple[bytes, float]]:
        """Returns, by URI, which server last answered on a path and when, if that is recent
        enough.
        """
        times = ((path, self.seen.get(path.uri, self.at)) for path in self.paths if path.server)
        return {
            path.uri: (path.server, at) for path, at in times if 0 <= now - at <= MAX_UNSEEN_SECONDS
        }


class Cache:
    """One file per client and server, for this user. A file that cannot be read or written is
    ignored, since the measurement can be repeated.
    """

    def __init__(self, folder: Path | None) -> None:
        """folder: where the files lie; None keeps nothing."""
        self._folder = folder

    def _path(self, client: str, server: str) -> Path | None:
        """Returns a file's path. None if there is no folder, or if other users may write there:
        what they say about paths is not trusted.
        """
        if self._folder is None or not _is_private(self._folder):
            return None
        name = hashlib.sha256(f"{client}\n{server}".encode(errors="replace")).hexdigest()[:32]
        return self._folder / f"{name}.json"

    def holds_any(self) -> bool:
        """Returns False if there is surely no entry."""
        try:
            return self._folder is not None and bool(os.listdir(self._folder))
        except OSError:
            return False

    def read(self, client: str, server: str) -> Entry | None:
        """Returns the entry of a client and server; server: the address as the user gave it."""
        try:
            path = self._path(client, server)
            if path is None:
                return None
            plain = json.loads(_content(path))
            if plain["schema"] != SCHEMA:
                return None
            paths = tuple(from_plain(path) for path in plain["paths"][:_MAX_PATHS])
            who, same_host = bytes.fromhex(plain["server"]), bool(plain["same_host"])
            times = plain["seen"]
            seen = {path.uri: _number(times[path.uri]) for path in paths if path.uri in times}
            return Entry(_number(plain["at"]), who, same_host, paths, seen)
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def write(self, client: str, server: str, entry: Entry) -> None:
        """Stores an entry in place of the earlier one."""
        plain = {
            "schema": SCHEMA,
            "at": entry.at,
            "server": entry.server.hex(),
            "same_host": entry.same_host,
            "paths": [to_plain(path) for path in entry.paths],
            "seen": dict(entry.seen),
        }
        if self._folder is None:
            return
        with contextlib.suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = self._path(client, server)
            if path is not None:
                _replace(path, json.dumps(plain))


def _is_private(folder: Path) -> bool:
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    mine = found.st_uid == os.geteuid() and not found.st_mode & 0o022
    return stat.S_ISDIR(found.st_mode) and mine


def _content(path: Path) -> str:
    """Returns a file's text; raises OSError, or ValueError if it is too long or no regular file."""
    with open(os.open(path, _READ), encoding="utf-8") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("not a regular file")
        text = file.read(_MAX_BYTES + 1)
    if len(text) > _MAX_BYTES:
        raise ValueError("too long")
    return text


def _replace(path: Path, text: str) -> None:
    """Replaces a file atomically, also if other processes do the same; raises OSError."""
    import tempfile

    descriptor, name = tempfile.mkstemp(dir=path.parent)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(name, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def user_folder(environment: Mapping[str, str], variable: str, below_home: str) -> Path | None:
    """Returns the folder for a kind of user files: XDG's variable, else below HOME, else a
    folder of the user's own in the temporary folder. None: there is no temporary folder.
    """
    base = environment.get(variable)
    if base and os.path.isabs(base):
        return Path(base)
    if home := environment.get("HOME"):
        return Path(home) / below_home
    import tempfile

    try:
        return Path(tempfile.gettempdir()) / f"rgpu-{os.geteuid()}"
    except FileNotFoundError:
        return None


def cache_folder(environment: Mapping[str, str]) -> Path | None:
    """Returns the folder for this user's measurements, or None."""
    base = user_folder(environment, "XDG_CACHE_HOME", ".cache")
    return None if base is None else base / "rgpu" / "paths"


def client_name(addresses: Sequence[str], boot_id: str | None) -> str:
    """Returns a name that distinguishes this client's place in the network from others sharing
    the cache.
    """
    return hashlib.sha256("\n".join([boot_id or "", *sorted(addresses)]).encode()).hexdigest()[:32]
