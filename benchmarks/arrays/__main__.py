"""`python -m benchmarks.arrays [issue] [programs] [steps] [bulk] [far] [install] [--quick]`.

One server with an emulated device on this machine, over a Unix socket. Each figure is a median of
rounds in which the node's way and this machine's own take turns. The node has one half of the
processors and this process the other, as two machines would, so both compute with as many threads.

`far` emulates a link, for which it must be root.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterator
from importlib.util import find_spec

import numpy as np

from benchmarks.arrays import places
from benchmarks.arrays.far import far
from benchmarks.arrays.installed import installed
from benchmarks.arrays.raw import peer
from benchmarks.arrays.timing import once
from benchmarks.harness import Row, arguments, rate, report
from benchmarks.server import Server

PARTS = ("issue", "programs", "steps", "bulk", "far", "install")
BULK_BYTES = 64 << 20


def bulk(rounds: int, node: str) -> Iterator[Row]:
    """Rows of uploads and downloads, beside raw copies between the same processors."""
    import rgpu_client.cupy as cp

    host = np.random.default_rng(1).integers(0, 255, BULK_BYTES, dtype=np.uint8)
    there = cp.asarray(host)
    with peer(node, BULK_BYTES) as raw:
        ways: dict[str, tuple[Callable[[], float], Callable[[], object]]] = {
            "upload of 64 MiB": (raw.up, lambda: cp.asarray(host)[0].get()),
            # A new array has new memory, which the kernel clears first; the raw copy's is in use.
            "download of 64 MiB": (raw.down, there.get),
            "download of 64 MiB with out=": (raw.down, lambda: there.get(out=host)),
        }
        for name, (floor, ours) in ways.items():
            # The first round warms up.
            found = [(floor(), once(ours)) for _ in range(rounds + 1)][1:]
            least, seconds = map(statistics.median, zip(*found, strict=True))
            yield rate(name, "MiB/s", 64 / seconds, 64 / least, 0.8)


def measured(parts: list[str], rounds: int, node: str) -> Iterator[Row]:
    """The rows that were asked for, of those that need the server."""
    from benchmarks.arrays import with_cupy

    with_pytorch = find_spec("torch") is not None
    if with_pytorch:
        import rgpu_client.torch  # noqa: F401
        from benchmarks.arrays import with_torch
    if "issue" in parts:
        yield from with_cupy.issued(rounds)
        if with_pytorch:
            yield from with_torch.issued(rounds)
    if "programs" in parts:
        yield from with_cupy.programs(rounds)
    if "steps" in parts and with_pytorch:
        yield from with_torch.steps(rounds)
        yield from with_torch.over_local(rounds)
    if "bulk" in parts:
        yield from bulk(rounds, node)


def main() -> None:
    asked = arguments("what arrays on a node cost", PARTS)
    node, rounds = places.settle(), 5 if asked.quick else 21
    rows: list[Row] = []
    if "far" in asked.parts and find_spec("torch") is not None:
        rows += far(rounds, node)
    if "install" in asked.parts:
        rows += installed(rounds)
    with Server(device="emulated:8GiB", before=("taskset", "-c", node)) as server:
        os.environ.update(RGPU_SERVER=server.unix, RGPU_MEMORY="6GiB", RGPU_LEASE="arrays")
        rows += measured(asked.parts, rounds, node)
    report("arrays", rows, asked.json)


if __name__ == "__main__":
    main()
