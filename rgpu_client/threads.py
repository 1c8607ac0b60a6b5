"""Runs a call that waits in a thread, for coroutines."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


async def in_thread(
    call: Callable[[Callable[[], bool]], T], undo: Callable[[T], object] | None = None
) -> T:
    """Returns the result of `call`, which runs in a thread of its own.

    A thread of asyncio's pool would keep its place there for as long as a claim waits in line.

    Args:
        call: its argument tells whether the coroutine was cancelled, so that the call may end.
        undo: gets the result if the coroutine was cancelled and the call succeeded all the same.

    Raises:
        CancelledError: after the call has ended, so that nothing goes on behind the caller's back.
    """
    loop, stop = asyncio.get_running_loop(), threading.Event()
    done: asyncio.Future[T] = loop.create_future()

    def work() -> None:
        try:
            result = call(stop.is_set)
        except BaseException as error:
            loop.call_soon_threadsafe(done.set_exception, error)
        else:
            loop.call_soon_threadsafe(done.set_result, result)

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(work,), daemon=True).start()
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([done])
        if done.exception() is None and undo is not None:
            undo(done.result())
        raise
