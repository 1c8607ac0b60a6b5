"""A worker of PyTorch keeps the pages of freed tensors for the next ones."""

from __future__ import annotations

import subprocess
import sys

import pytest

_BLOCKS = 100
_BLOCK_BYTES = 1 << 20
_PROGRAM = """
import ctypes
import sys

if sys.argv[1] == "keep":
    from rgpu_server.arrays.host_memory import keep_freed_memory
    keep_freed_memory()

class Figures(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks",
        "fordblks", "keepcost")]

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
libc.mallinfo2.restype = Figures
count, size = int(sys.argv[2]), int(sys.argv[3])
for block in [libc.malloc(size) for _ in range(count)]:
    libc.free(block)
print(libc.mallinfo2().fordblks)
"""


def _kept_bytes(how: str) -> int:
    """Bytes that glibc holds free after a program has freed all of its blocks."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", _PROGRAM, how, str(_BLOCKS), str(_BLOCK_BYTES)],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return int(done.stdout)


@pytest.mark.parametrize("how", ["keep", "leave"])
def test_freed_blocks_stay_with_a_worker(how: str) -> None:
    kept = _kept_bytes(how) >= _BLOCKS * _BLOCK_BYTES
    assert kept == (how == "keep")
