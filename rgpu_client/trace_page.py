"""Reads the counters of traced processes: files that the shim maps (shim/trace_page.h)."""

from __future__ import annotations

import os
import stat
import struct
from collections import Counter
from typing import TYPE_CHECKING

from rgpu_client.trace import Compiled, Trace, TracedCall
from rgpu_common.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MAGIC = b"RGPUTRC1"
_HEAD = struct.Struct("<8s4I16QI")
_HEAD_BYTES = 256
_ROW = struct.Struct("<96s4Q")
_NOTES = ("commands", "writes")
# The most rows of each of the three tables in a page.
_MOST_ROWS = 1 << 16
_FAILURE_BYTES = 1024

Row = tuple[str, int, int, int, int]


def read_traces(folder: Path) -> Trace:
    """Returns the sums of the counters in all pages in `folder`.

    Raises:
        ProtocolError: a file there is not a page of this release.
    """
    processes = [_read(path) for path in sorted(folder.glob("*.trace"))]
    used = [trace for trace in processes if trace.calls or trace.missing]
    return _sum(used)


def _read(path: Path) -> Trace:
    data = _bytes_of(path)
    if len(data) < _HEAD_BYTES:
        raise ProtocolError(f"{path.name} is too short for a page of counters")
    magic, calls, missing, compiled, _pid, *totals, failure = _HEAD.unpack_from(data)
    rows = (calls, missing, compiled)
    if magic != _MAGIC or max(rows) > _MOST_ROWS:
        raise ProtocolError(f"{path.name} is not a page of counters of this release")
    if len(data) < _HEAD_BYTES + sum(rows) * _ROW.size:
        raise ProtocolError(f"{path.name} ends before its last counter")
    first = _HEAD_BYTES
    tables = []
    for count in rows:
        tables.append(tuple(_rows(data, first, count)))
        first += count * _ROW.size
    return Trace(
        calls=tuple(TracedCall(*row) for row in tables[0]),
        notes=dict(zip(_NOTES, totals, strict=False)),
        missing={name: count for name, count, *_ in tables[1]},
        compiled=tuple(Compiled(name, count, ns) for name, count, _, ns, _ in tables[2]),
        failures=_failures(data[first : first + failure]),
    )


def _failures(data: bytes) -> tuple[str, ...]:
    text = data.decode(errors="replace")
    return ("".join(c if c.isprintable() else "?" for c in text),) if text else ()


def _bytes_of(path: Path) -> bytes:
    """Returns the bytes of a page. ProtocolError: the file is not a regular file, or too large.

    The program may have put another file there, which could block its reader or fill its memory.
    """
    most = _HEAD_BYTES + 3 * _MOST_ROWS * _ROW.size + _FAILURE_BYTES
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise ProtocolError(f"{path.name} cannot be read: {error.strerror}") from None
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_size > most:
        os.close(descriptor)
        raise ProtocolError(f"{path.name} is not a page of counters")
    with open(descriptor, "rb") as file:
        return file.read(most)


def _rows(data: bytes, first: int, count: int) -> Iterator[Row]:
    """Yields the rows that are in use, in order."""
    for name, calls, size, ns, refused in _ROW.iter_unpack(data[first : first + count * _ROW.size]):
        if calls:
            text = name.partition(b"\0")[0].decode(errors="replace")
            yield "".join(c if c.isprintable() else "?" for c in text), calls, size, ns, refused


def _sum(traces: list[Trace]) -> Trace:
    calls: dict[str, TracedCall] = {}
    compiled: dict[str, Compiled] = {}
    notes, missing = Counter[str](), Counter[str]()
    for trace in traces:
        for call in trace.calls:
            calls[call.name] = call + calls.get(call.name, TracedCall(call.name, 0, 0, 0))
        for kernel in trace.compiled:
            before = compiled.get(kernel.name, Compiled(kernel.name, 0, 0))
            compiled[kernel.name] = kernel + before
        notes.update(trace.notes)
        missing.update(trace.missing)
    failures = tuple(failure for trace in traces for failure in trace.failures)
    return Trace(
        tuple(calls.values()),
        dict(notes),
        dict(missing),
        tuple(compiled.values()),
        failures,
        len(traces),
    )
