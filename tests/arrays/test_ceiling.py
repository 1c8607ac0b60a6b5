"""What a worker's libraries allocate ends at the ceiling, and its session goes on.

Each program measures how much private memory it had at most beyond what it had at first. It runs in
a process of its own, because the limit of a process can only be lowered.
"""

from __future__ import annotations

import json
import mmap
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.needs import needs

from rgpu_server.arrays.ceiling import OVERHEAD_BYTES, private_bytes
from rgpu_server.workers.groups import raise_own_limit

MIB = 1 << 20
LEASE = 16 * MIB
# What pages and the accounts of the C library add.
SLACK = 4 * MIB

_BEGIN = """
import json, resource, sys, threading
from rgpu_server.arrays.ceiling import give_back, private_bytes, set_ceiling
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
set_ceiling(LEASE)
"""
_TORCH = """
import torch
from helpers.torch_node import Quota
from rgpu_server.arrays.torch_library import TorchLibrary

library = TorchLibrary(Quota(LEASE), LEASE, 1, give_back)
rows = library.define("aten::ones", [[Slot("v")]], {}).call
rows([1000])
watch = Watch()
set_ceiling(LEASE)
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


_LIMITS = """
import resource, sys
from rgpu_server.arrays.ceiling import set_ceiling

def limits():
    print(*resource.getrlimit(resource.RLIMIT_DATA), flush=True)

assert set_ceiling(int(sys.argv[1]))
limits()
"""


def test_the_ceiling_is_the_hard_limit() -> None:
    """Code in the process raises its own limit as far as the system lets it."""
    source = """
soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))
try:
    bytearray(600 << 20)
except MemoryError:
    limits()
"""
    done = subprocess.run(
        [sys.executable, "-c", _LIMITS + source, str(LEASE)],
        capture_output=True, text=True, timeout=300, env=_environment(), check=True,
    )  # fmt: skip
    first, second = done.stdout.splitlines()
    assert first == second
    soft, hard = first.split()
    assert soft == hard


def test_the_daemon_raises_the_ceiling_of_a_lease_that_grows() -> None:
    """Where the system lets it: containers often lack the capability."""
    source = "sys.stdin.readline(); limits()"
    more = 0
    with subprocess.Popen(
        [sys.executable, "-c", _LIMITS + source, str(LEASE)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=_environment(),
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            first = int(process.stdout.readline().split()[0])
            if _may_raise_limits():
                more = 1 << 30
                raise_own_limit(process.pid, more)
            else:
                with pytest.raises(PermissionError):
                    raise_own_limit(process.pid, 1 << 30)
            told, _ = process.communicate("\n", timeout=60)
        finally:
            process.kill()
    assert told.split() == [str(first + more)] * 2


def _may_raise_limits() -> bool:
    """Returns whether this process has CAP_SYS_RESOURCE."""
    (line,) = re.findall(r"CapEff:\s*(\w+)", Path("/proc/self/status").read_text())
    return bool(int(line, 16) >> 24 & 1)
