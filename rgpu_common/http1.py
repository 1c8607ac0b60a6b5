"""Reads HTTP/1.1 from a stream by h11, for what answers browsers and Kubernetes.

h11 is no package of the base install, so the callers import it and bring its connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable

# Small, because h11 checks the length of a head only after a piece that does not complete it.
_HEAD_PIECE = 4 << 10
_BODY_PIECE = 64 << 10


async def next_event(
    http: Any, reader: asyncio.StreamReader, welcome: Callable[[], Awaitable[None]]
) -> Any:
    """Returns the next event of an `h11.Connection`.

    welcome: called if the other side waits for `100 Continue` before it sends the body.

    Raises:
        h11.RemoteProtocolError: what came is no HTTP, or a head is too long.
        OSError: the connection is lost.
    """
    import h11

    while True:
        event = http.next_event()
        if event is not h11.NEED_DATA:
            return event
        if http.they_are_waiting_for_100_continue:
            await welcome()
        piece = _HEAD_PIECE if http.their_state is h11.IDLE else _BODY_PIECE
        http.receive_data(await reader.read(piece))
