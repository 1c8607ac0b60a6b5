"""What a connection knows of a stream."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from rgpu_common.http2.frames import DEFAULT_WINDOW

if TYPE_CHECKING:
    from rgpu_common.http2.headers import Headers

# Windows that every stream has: what nobody has read yet waits in this much memory.
STREAM_WINDOW: Final = DEFAULT_WINDOW


@dataclass(slots=True)
class Stream:
    """A call's half of a connection.

    room: bytes that we may send.  window: that the peer may send.  target: what window and held,
    which came and was not read, add up to when all is well.
    """

    number: int
    room: int
    window: int = STREAM_WINDOW
    target: int = STREAM_WINDOW
    held: int = 0
    heard_all: bool = False
    said_all: bool = False
    user: Any = field(default=None, repr=False)


class Events(Protocol):
    """Who is told what happens on a connection."""

    def opened(self, stream: Stream, fields: Headers) -> None:
        """A request; with `heard_all` set nothing follows it."""

    def data(self, stream: Stream, piece: memoryview) -> None:
        """Bytes that are only good during the call; `held` counts them until `Connection.holds`."""

    def ended(self, stream: Stream) -> None:
        """The peer has said all."""

    def reset(self, stream: Stream, code: int) -> None:
        """The stream is over: the peer gave it up, or broke its rules."""

    def room(self, stream: Stream | None) -> None:
        """More may be sent than before, on a stream or, with None, on all."""
