"""Runs the event loop of a process that carries tunnels."""

from __future__ import annotations

import asyncio
import ctypes
import sys
from typing import TYPE_CHECKING, Any

from rgpu_common import ending

if TYPE_CHECKING:
    from collections.abc import Coroutine

# <malloc.h>
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_KEPT_BYTES = 32 << 20


def run(work: Coroutine[Any, Any, None]) -> None:
    """Runs `work` in an event loop: uvloop's if it is installed, and else asyncio's."""
    keep_memory()
    run_loop(work)


def run_loop(work: Coroutine[Any, Any, None]) -> None:
    """As `run`, with the allocator as it is."""
    ending.check()
    try:
        import uvloop
    except ImportError:
        asyncio.run(_to_its_end(work))
        return
    if sys.version_info >= (3, 11):
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_to_its_end(work))
    else:
        uvloop.install()
        asyncio.run(_to_its_end(work))


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    finally:
        ending.stay_at_end()


def keep_memory() -> None:
    """Lets the allocator keep the memory that messages of 1 MiB need.

    By default glibc returns the memory to the system, and gets it back zeroed page by page, for
    each message. That took about as long as all other work on a message.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return  # the C library is not glibc
    mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)
    mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
    mallopt(_M_TOP_PAD, _KEPT_BYTES // 8)
