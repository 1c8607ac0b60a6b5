"""How exactly memory limits hold: one process, and four of one lease that race."""

from __future__ import annotations

import subprocess

from helpers import clients

from benchmarks.harness import Row, say
from benchmarks.server import Server

MIB = 1 << 20
LIMIT = 256 * MIB
# What an allocation is rounded up to.
GRANULE = 2 * MIB

ALLOCATE = """
import ctypes
cuda.open()
print("ready")
wait_for_line()
bytes_held = 0
while True:
    try:
        cuda.alloc({piece})
    except CudaError as error:
        assert error.result == 2, error
        break
    bytes_held += {piece}
print(bytes_held, *cuda.memory())
wait_for_line()
"""


def _fill(server: Server, pieces: list[int], lease: str) -> list[list[int]]:
    """Fills a lease from as many processes; of each: bytes it got, free and total at its end."""
    options = {"RGPU_MEMORY": str(LIMIT), "RGPU_LEASE": lease}
    running = [
        clients.start(server.unix, ALLOCATE.format(piece=piece), **options) for piece in pieces
    ]
    try:
        for process in running:
            _read(process)
        for process in running:
            _line(process)
        return [[int(word) for word in _read(process).split()] for process in running]
    finally:
        for process in running:
            process.communicate("\n")


def _line(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def _read(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError("a client ended: " + process.communicate()[1])
    return line


def rows() -> list[Row]:
    """Bytes left when an allocation was refused, and bytes held beyond the limit."""
    found = []
    with Server() as server:
        for name, pieces in (
            ("1 MiB pieces", [MIB]),
            ("64 KiB pieces", [MIB // 16]),
            ("4 processes racing", [MIB, MIB, MIB // 2, 3 * MIB]),
        ):
            say(f"memory, {name}")
            got = _fill(server, pieces, f"fill-{name.replace(' ', '-')}")
            held = sum(process[0] for process in got)
            left = min(process[1] for process in got) - min(pieces)
            found += [
                _row(name, "left at the refusal", max(left, 0), GRANULE),
                _row(name, "held beyond the limit", max(held - LIMIT, 0), 0),
            ]
    return found


def _row(name: str, what: str, value: float, most: float) -> Row:
    target = f"at most {most / MIB:g} MiB"
    return Row(f"memory, {name}: {what}", "MiB", value / MIB, None, None, target, value <= most)
