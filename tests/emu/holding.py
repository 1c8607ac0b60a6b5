"""Work that holds a stream until the test lets it go."""

from __future__ import annotations

import ctypes

from emu.device import Device

GEQ, EQ, AND, NOR = range(4)
NOT_READY = 600


NON_BLOCKING = 1


def hold(cuda: Device, stream: int) -> int:
    """Makes `stream` wait; `let_go(cuda, flag)` ends it."""
    flag = cuda.alloc(8)
    cuda("cuCtxSynchronize")
    cuda("cuStreamWaitValue32_v2", stream, flag, 1, EQ)
    return flag


def hold_more(cuda: Device, stream: int) -> int:
    """Does the same as `hold` without its wait for the context, which would wait for held
    streams.
    """
    flag = cuda.pinned(4)
    ctypes.memset(flag, 0, 4)
    cuda("cuStreamWaitValue32_v2", stream, flag, 1, 1)
    return flag


def let_go(cuda: Device, flag: int) -> None:
    writer = cuda.stream(NON_BLOCKING)
    cuda("cuStreamWriteValue32_v2", writer, flag, 1, 0)
    cuda("cuStreamDestroy_v2", writer)
