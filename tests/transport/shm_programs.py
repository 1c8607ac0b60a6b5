"""Programs for clients on the machine of their server."""

from __future__ import annotations

import textwrap

from helpers import clients

MAPPINGS = """
cuda.open()
maps = open("/proc/self/maps").read()
print(*("memfd:" + name in maps for name in ("rgpu-ring", "rgpu-emu-heap")))
"""
# Sizes around the border between ring and direct copies, and more than one piece of the latter.
COPIES = """
import os
cuda.open()
for count in (1, 4095, 262143, 262144, 262145, 1 << 20, (5 << 20) + 7, (129 << 20) + 1):
    data = os.urandom(min(count, 1 << 20)) * (count // (1 << 20) + 1)
    data = data[:count]
    address = cuda.alloc(count)
    cuda.upload(address, data)
    assert cuda.download(address, count) == data
    cuda("cuMemsetD8_v2", ctypes.c_uint64(address), 7, ctypes.c_size_t(count))
    assert cuda.download(address, count) == bytes([7]) * count
    assert cuda.result("cuStreamQuery", None) == 0
    cuda.free(address)
print("ok")
"""
CTYPES = "import ctypes\n"


def run(address: str, source: str, **environment: str) -> tuple[str, str]:
    code, output, errors = clients.run(address, CTYPES + textwrap.dedent(source), **environment)
    assert code == 0, output + errors
    return output, errors
