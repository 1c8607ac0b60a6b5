"""What a worker's libraries allocate ends at the ceiling, and its session goes on.

Each program measures how much private memory it had at most beyond what it had at first. It runs in
a process of its own, because the limit of a process can only be lowered.
"""

from __future__ import annotations

import json
import mmap
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.needs import needs

from rgpu_server.arrays.ceiling import OVERHEAD_BYTES, Ceiling, private_bytes

MIB = 1 << 20
LEASE = 16 * MIB
# What pages and the accounts of the C library add.
SLACK = 4 * MIB

_BEGIN = """
import json, resource, sys, threading
from rgpu_server.arrays.ceiling import Ceiling, private_bytes
from rgpu_server.arrays.library import Slot

LEASE = int(sys.argv[1])
A = Slot("a")

class Watch(threading.Thread):
    def __init__(self):
        super().__init__(daemon=True)
        self.over, self.begun = threading.Event(), threading.Event()
        self.start()
        self.begun.wait()

    def run(self):
        # The stack of this thread is there already.
        self.first = self.most = private_bytes()
        self.begun.set()
        while not self.over.wait(0.001):
            self.most = max(self.most, private_bytes())

def told(outcome):
    watch.over.set()
    watch.join()
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    print(json.dumps({"outcome": outcome, "most": watch.most - watch.first,
                      "limit": soft - watch.first}))
"""
_NUMPY = """
import numpy as np
from rgpu_server.arrays.cupy_library import CupyLibrary

library = CupyLibrary(LEASE)
call = library.define("fft.fft", [A], {}).call
small = np.ones(10007, np.complex64)
call(small)
watch = Watch()
Ceiling(lambda: LEASE)
"""
_TORCH = """
import torch
from helpers.torch_node import Quota
from rgpu_server.arrays.torch_library import TorchLibrary

room = []
library = TorchLibrary(Quota(LEASE), LEASE, 1, lambda: room[0].follow())
rows = library.define("aten::ones", [[Slot("v")]], {}).call
rows([1000])
watch = Watch()
room.append(Ceiling(lambda: LEASE))
"""


def run(*source: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", "".join((_BEGIN, *source)), str(LEASE)],
        capture_output=True, text=True, timeout=300, env=_environment(), check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def _environment() -> dict[str, str]:
    tests = str(Path(__file__).resolve().parents[1])
    return {"PATH": "/usr/bin:/bin", "PYTHONPATH": tests, "OPENBLAS_NUM_THREADS": "1"}


def test_the_scratch_memory_of_a_transform_ends_at_the_ceiling() -> None:
    """The length is a prime, for which the library needs several times the memory of the input."""
    said = run(
        _NUMPY,
        """
try:
    call(np.ones(3_999_971, np.complex128))
    outcome = "done"
except MemoryError:
    outcome = "refused"
outcome += f", {call(small).size}"
told(outcome)
""",
    )
    assert said["outcome"] == "refused, 10007"
    assert said["limit"] <= LEASE + OVERHEAD_BYTES + SLACK
    assert said["most"] <= said["limit"] + SLACK


@needs("torch")
def test_a_result_whose_layout_the_client_leaves_out_ends_at_the_ceiling() -> None:
    said = run(
        _TORCH,
        """
try:
    library.keep(rows([300_000_000])[0])
    outcome = "done"
except torch.OutOfMemoryError as error:
    outcome = str(error)
outcome += f"; {rows([7])[0].numel()}"
told(outcome)
""",
    )
    assert said["outcome"].startswith("CUDA out of memory. Tried to allocate 1.12 GiB. The lease")
    assert said["outcome"].endswith("; 7")
    assert said["most"] <= said["limit"] + SLACK <= LEASE + OVERHEAD_BYTES + 2 * SLACK


def test_objects_of_python_end_at_the_ceiling() -> None:
    """Views of views: no ledger is charged for them."""
    said = run(
        _NUMPY,
        """
split = library.define("array_split", [A, 30000], {}).call
kept, outcome = [], "done"
try:
    while len(kept) < 300:
        kept.append(library.keep(split(np.ones(30000, np.int8), 30000)))
except MemoryError:
    outcome = "refused"
kept.clear()
outcome += f", {call(small).size}"
told(outcome)
""",
    )
    assert said["outcome"] == "refused, 10007"
    assert said["most"] <= said["limit"] + SLACK


def test_what_is_held_is_measured() -> None:
    before = private_bytes()
    assert before is not None
    # A mapping of its own: malloc may take it from memory that the process has already.
    with mmap.mmap(-1, 64 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as kept:
        after = private_bytes()
        assert after is not None
        assert len(kept) <= after - before <= len(kept) + SLACK


def test_a_lease_that_grows_takes_the_ceiling_along(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[tuple[int, int]] = []
    monkeypatch.setattr(
        "rgpu_server.arrays.ceiling.resource.setrlimit", lambda which, both: limits.append(both)
    )
    lease = [LEASE]
    ceiling = Ceiling(lambda: lease[0])
    lease[0] = 2 * LEASE
    ceiling.follow()
    lease[0] = 1 << 50
    ceiling.follow()
    (first, hard), (second, _), (third, _) = limits
    assert second - first == LEASE
    # The process itself cannot go beyond what was set at first.
    assert third == hard == first + (4 << 30)
