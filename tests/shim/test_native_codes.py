"""Error codes that were seen of NVIDIA's driver, and that its documentation leaves open."""

from __future__ import annotations

import ast

from helpers import clients

PROGRAM = """
import ctypes, mmap
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p
cuda.open()
seen = {}

def pinned(flags, size=8192):
    memory = c_void_p()
    assert cuda.result("cuMemHostAlloc", byref(memory), c_size_t(size), flags) == 0
    return memory

def flags_of(memory):
    flags = c_uint(77)
    assert cuda.result("cuMemHostGetFlags", byref(flags), memory) == 0
    return flags.value

seen["flags"] = [flags_of(pinned(flags)) for flags in (0, 1, 2)]
seen["no bytes"] = pinned(0, 0).value
seen["unregister pinned"] = cuda.result("cuMemHostUnregister", pinned(0))
page = mmap.mmap(-1, 8192)
place = ctypes.addressof(ctypes.c_char.from_buffer(page))
seen["unregister unknown"] = cuda.result("cuMemHostUnregister", c_void_p(place))
cuda("cuMemHostRegister_v2", c_void_p(place), c_size_t(8192), 0)
seen["unregister inside"] = cuda.result("cuMemHostUnregister", c_void_p(place + 4096))
seen["unregister"] = cuda.result("cuMemHostUnregister", c_void_p(place))
out = c_uint64()
address = cuda.alloc(64)
seen["attribute"] = cuda.result("cuPointerGetAttribute", byref(out), 77, c_uint64(address))
module = c_void_p()
for name, image in {
    "target first": b".target sm_80\\n.version 7.0\\n",
    "version behind a comment": b"/* a */ // b\\n .version 7.0\\n.target sm_80\\n}{\\n",
    "words": b"hello",
}.items():
    seen[name] = cuda.result("cuModuleLoadData", byref(module), image + b"\\0")
print(seen)
"""


def test_codes_are_those_of_the_driver(server: str) -> None:
    code, output, errors = clients.run(server, PROGRAM)
    assert code == 0, errors
    assert ast.literal_eval(output) == {
        "flags": [2, 3, 2],
        "no bytes": None,
        "unregister pinned": 1,
        "unregister unknown": 713,
        "unregister inside": 1,
        "unregister": 0,
        "attribute": 1,
        "target first": 200,
        "version behind a comment": 218,
        "words": 200,
    }
