"""The server's own record: a sample of each lease each second, bounded, in memory and in two files.

A file holds entries, each with a head of kind (1 byte) and length (4): SERIES, JSON that says which
lease a number means from here on, and SECOND, a time and the samples.  When the current file has
half of the bound it becomes the older one.  A torn end, as a crash leaves it, is cut off.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import struct
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

log = logging.getLogger("rgpu.server")

CURRENT, OLDER, TOTALS = "usage.record", "usage.record.old", "usage.totals"
# What a state folder may hold of it.
FILES = (CURRENT, OLDER, TOTALS, f"{TOTALS}.new")

_MAGIC = b"rgpu usage record 2\n"
_HEAD = struct.Struct("<BI")
_TIME = struct.Struct("<Q")
_SAMPLE = struct.Struct("<7Q5I")
_SERIES, _SECOND = 1, 2
_MAX_ENTRY = 1 << 20
# Unused series are removed only when there are more than so many.
_SERIES_KEPT = 1024
_FLAGS = os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


class Series(NamedTuple):
    """Whom samples are about."""

    lease: str
    tenant: str
    key: str
    device: int


class Sample(NamedTuple):
    """Totals since the lease began, and what it has now.  number: of its series.  seams: the bits
    of all that its sessions have used.
    """

    device_ns: int
    waiting_ns: int
    throttled_ns: int
    launches: int
    copied_bytes: int
    memory_used: int
    memory_limit: int
    request_ppm: int
    limit_ppm: int
    share_1s_ppm: int
    number: int
    seams: int = 0


class Second(NamedTuple):
    """All samples of one moment.  time_ms: since 1970."""

    time_ms: int
    packed: bytes

    def samples(self) -> Iterator[Sample]:
        """Unpacks them."""
        return (Sample(*values) for values in _SAMPLE.iter_unpack(self.packed))


class Ring:
    """The newest seconds, up to max_bytes, and the series that they are about."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self.seconds: deque[Second] = deque()
        self.series: dict[int, Series] = {}
        self._numbers: dict[Series, int] = {}
        self._next = 1
        self._forget_at = _SERIES_KEPT

    def number(self, series: Series) -> int:
        """The number of a series, which it gets here."""
        known = self._numbers.get(series)
        if known is None:
            known, self._next = self._next, self._next + 1
            self.series[known] = series
            self._numbers[series] = known
        return known

    def add(self, time_ms: int, samples: Sequence[Sample]) -> Second:
        """Adds a moment; the oldest make room."""
        second = Second(time_ms, b"".join(_SAMPLE.pack(*sample) for sample in samples))
        self.keep(second)
        return second

    def keep(self, second: Second) -> None:
        """As `add`, of what is packed already."""
        self.seconds.append(second)
        self._bytes += len(second.packed) + _TIME.size
        while self._bytes > self._max_bytes and len(self.seconds) > 1:
            self._bytes -= len(self.seconds.popleft().packed) + _TIME.size
        if len(self.series) > self._forget_at:
            self._forget_series()

    def _forget_series(self) -> None:
        used = {sample.number for second in self.seconds for sample in second.samples()}
        self.series = {n: s for n, s in self.series.items() if n in used}
        self._numbers = {s: n for n, s in self.series.items()}
        # This is slow, so it is done again only when the number of series has doubled.
        self._forget_at = max(_SERIES_KEPT, 2 * len(self.series))


class Store:
    """The two files.  Whatever the disk refuses is said once, and the memory goes on alone."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder = folder
        self._half = max(max_bytes // 2, 1)
        self._file: int | None = None
        self._size = 0
        self._said: set[int] = set()
        self._told = False

    def load(self, ring: Ring) -> None:
        """Reads what an earlier daemon wrote, and opens the file for more."""
        for name in (OLDER, CURRENT):
            self._size = self._read(self._folder / name, ring)
        self._open(self._size)

    def append(self, second: Second, ring: Ring) -> None:
        """Writes a moment, with the series that this file does not know yet."""
        if self._file is None:
            return
        if self._size > self._half:
            self._turn_over()
        entries = []
        for sample in second.samples():
            if sample.number not in self._said:
                self._said.add(sample.number)
                text = json.dumps([sample.number, *ring.series[sample.number]]).encode()
                entries.append(_HEAD.pack(_SERIES, len(text)) + text)
        body = _TIME.pack(second.time_ms) + second.packed
        entries.append(_HEAD.pack(_SECOND, len(body)) + body)
        self._write(b"".join(entries))

    def save_totals(self, text: str) -> None:
        """Replaces the totals; a crash leaves the old or the new ones."""
        new = self._folder / f"{TOTALS}.new"
        try:
            fd = os.open(new, _FLAGS | os.O_WRONLY | os.O_TRUNC, 0o600)
            with os.fdopen(fd, "w", encoding="utf-8") as file:
                file.write(text)
            new.replace(self._folder / TOTALS)
        except OSError as error:
            self._complain(error)

    def load_totals(self) -> object:
        """What `save_totals` was given, as JSON; None if there is nothing."""
        with contextlib.suppress(OSError, ValueError):
            return json.loads((self._folder / TOTALS).read_text(encoding="utf-8"))
        return None

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _read(self, path: Path, ring: Ring) -> int:
        """Returns up to where the file makes sense."""
        try:
            data = path.read_bytes()
        except OSError:
            return 0
        if not data.startswith(_MAGIC):
            return 0
        at = len(_MAGIC)
        numbers: dict[int, int] = {}
        while at + _HEAD.size <= len(data):
            kind, length = _HEAD.unpack_from(data, at)
            end = at + _HEAD.size + length
            if length > _MAX_ENTRY or end > len(data):
                break
            if not _take(kind, data[at + _HEAD.size : end], numbers, ring):
                break
            at = end
        return at

    def _open(self, size: int) -> None:
        try:
            self._file = os.open(self._folder / CURRENT, _FLAGS | os.O_RDWR | os.O_APPEND, 0o600)
            os.ftruncate(self._file, size)
        except OSError as error:
            self._complain(error)
            return
        self._size = size
        self._said.clear()
        if not size:
            self._write(_MAGIC)

    def _turn_over(self) -> None:
        self.close()
        try:
            (self._folder / CURRENT).replace(self._folder / OLDER)
        except OSError as error:
            self._complain(error)
            return
        self._open(0)

    def _write(self, data: bytes) -> None:
        if self._file is None:
            return
        try:
            written = os.write(self._file, data)
            if written < len(data):
                os.ftruncate(self._file, self._size)
                return
            self._size += written
        except OSError as error:
            self._complain(error)

    def _complain(self, error: OSError) -> None:
        if not self._told:
            self._told = True
            log.error("the record of usage is not written to %s: %s", self._folder, error.strerror)


def _take(kind: int, body: bytes, numbers: dict[int, int], ring: Ring) -> bool:
    """Takes an entry into the ring under the ring's own numbers; False: it makes no sense."""
    if kind == _SERIES:
        try:
            number, lease, tenant, key, device = json.loads(body)
            numbers[int(number)] = ring.number(
                Series(str(lease), str(tenant), str(key), int(device))
            )
        except (ValueError, TypeError):
            return False
        return True
    if kind != _SECOND or (len(body) - _TIME.size) % _SAMPLE.size:
        return False
    second = Second(_TIME.unpack_from(body)[0], body[_TIME.size :])
    samples = list(second.samples())
    if any(sample.number not in numbers for sample in samples):
        return False
    renumbered = [sample._replace(number=numbers[sample.number]) for sample in samples]
    ring.add(second.time_ms, renumbered)
    return True
