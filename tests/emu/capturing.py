"""Short calls around stream capture."""

from __future__ import annotations

from ctypes import POINTER, byref, c_size_t, c_uint32, c_uint64

from emu.device import Device
from emu.graphs import (
    GLOBAL,
    Graph,
)

INVALID_VALUE, ILLEGAL_STATE, NOT_READY = 1, 401, 600
UNSUPPORTED, INVALIDATED, MERGE, UNMATCHED, UNJOINED, ISOLATION, IMPLICIT = range(900, 907)
CAPTURED_EVENT, WRONG_THREAD = 907, 908
NONE, ACTIVE, INVALID = range(3)
NON_BLOCKING, EXTERNAL = 1, 1
LEGACY, PER_THREAD = 1, 2


def begin(cuda: Device, stream: int, mode: int = GLOBAL) -> None:
    cuda("cuStreamBeginCapture_v2", stream, mode)


def end(cuda: Device, stream: int) -> Graph:
    out = c_uint64(7)
    cuda("cuStreamEndCapture", stream, byref(out))
    return Graph(cuda, out.value)


def status(cuda: Device, stream: int) -> int:
    out = c_uint32(9)
    cuda("cuStreamIsCapturing", stream, byref(out))
    return out.value


def info(cuda: Device, stream: int) -> tuple[int, int, int, list[int]]:
    """Returns status, id, graph and dependencies."""
    state, number, graph, count = c_uint32(), c_uint64(), c_uint64(), c_size_t()
    nodes = POINTER(c_uint64)()
    outs = (state, number, graph, nodes, count)
    cuda("cuStreamGetCaptureInfo_v2", stream, *(byref(o) for o in outs))
    return state.value, number.value, graph.value, [nodes[i] for i in range(count.value)]
