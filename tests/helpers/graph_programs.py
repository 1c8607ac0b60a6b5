"""Programs that use graphs through the driver, for tests of the shim."""

from __future__ import annotations

from helpers import clients

START = """
import ctypes, os, struct
from ctypes import byref, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
cuda.open()
FUNCTION = ctypes.CFUNCTYPE(None, c_void_p)
context = c_void_p()
cuda("cuCtxGetCurrent", byref(context))

def made(call, *rest):
    handle = c_void_p()
    cuda(call, byref(handle), *rest)
    return handle

def pinned(size):
    memory = made("cuMemHostAlloc", c_size_t(size), 0)
    return memory, (ctypes.c_char * size).from_address(memory.value)

class Copy(ctypes.Structure):
    _side = [("x", c_size_t), ("y", c_size_t), ("z", c_size_t), ("lod", c_size_t), ("type", c_int),
             ("host", c_void_p), ("device", c_uint64), ("array", c_void_p), ("reserved", c_void_p),
             ("pitch", c_size_t), ("height", c_size_t)]
    _fields_ = ([("from_" + n, t) for n, t in _side] + [("to_" + n, t) for n, t in _side] +
                [("width", c_size_t), ("rows", c_size_t), ("depth", c_size_t)])

def copy(to, source, width, rows=1, depth=1, **more):
    sides = {}
    for side, address in (("to", to), ("from", source)):
        host = isinstance(address, c_void_p)
        sides[side + "_type"] = 1 if host else 2
        sides[side + ("_host" if host else "_device")] = address.value if host else address
    return Copy(width=width, rows=rows, depth=depth, **sides, **more)

def add(graph, call, params, *after, **more):
    before = (c_void_p * len(after))(*[n.value for n in after])
    extra = [context] if "ctx" in more else []
    return made(call, graph, before, c_size_t(len(after)), byref(params), *extra)

def ready(graph, flags=0):
    return made("cuGraphInstantiateWithFlags", graph, c_uint64(flags))

def attribute(which):
    value = c_uint64()
    cuda("cuDeviceGetGraphMemAttribute", 0, which, byref(value))
    return value.value
"""


def said(server: str, source: str, **variables: str) -> list[str]:
    """Returns the lines that a program prints; `made` and the others above are there for it."""
    code, output, errors = clients.run(server, START + source, **variables)
    assert code == 0, errors
    return output.split("\n")[:-1]
