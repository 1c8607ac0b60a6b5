"""What a client sends through its tunnel, on its way to the daemon's socket."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from rgpu_common.errors import ProtocolError
from rgpu_common.tunnel.pieces import Pieces

if TYPE_CHECKING:
    from rgpu_common.tunnel.local import LocalEnd
    from rgpu_server.http2.call import Call

# Small pieces wait together.
_CHUNK_BYTES = 64 << 10


class Inflow:
    """Hands bytes to the socket in the moment in which they come; what it does not take waits
    here, as much as the call's window.

    heard_at: when something came, by the loop's clock.  received: bytes of the connection.
    """

    def __init__(self, call: Call) -> None:
        self._call = call
        self._loop = asyncio.get_running_loop()
        self._pieces = Pieces(self)
        self._local: LocalEnd | None = None
        self._queue: deque[bytearray] = deque()
        self._at = 0  # in the first of the queue
        self._held = 0
        self._ending = False
        self._over = call.heard_all
        self._failure: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self.received = 0
        self.heard_at = self._loop.time()
        call.sink = self.take

    @property
    def waiting(self) -> bool:
        """True if the socket is slow to take what came."""
        return self._held > 0

    def take(self, piece: memoryview | None) -> int:
        """Takes what came, None: the end; returns how much of it waits."""
        self.heard_at = self._loop.time()
        if piece is None:
            self._over = True
            self._wake()
        elif self._failure is None:
            try:
                self._pieces.take(piece)
            except (ProtocolError, OSError) as error:
                self._fail(error)
        return self._held + self._pieces.gathered

    async def first(self) -> bool:
        """Waits for data; False: there is none.  ProtocolError."""
        while not self.received and not self._over:
            await self._wait()
        if self._failure is not None and not self.received:
            raise self._failure
        return self.received > 0

    def connect(self, local: LocalEnd) -> None:
        """Begins to hand on."""
        self._local = local
        self._flush()
        if self._queue:
            local.on_room(self._flush)

    async def finished(self) -> None:
        """Waits until the socket has all; OSError, ProtocolError."""
        while not (self._over and not self._held) and self._failure is None:
            await self._wait()
        if self._failure is not None:
            raise self._failure

    # What the messages bring

    def data(self, piece: memoryview) -> None:
        """Bytes for the socket."""
        if not self.received:
            self._wake()
        self.received += len(piece)
        if self._local is not None and not self._queue:
            piece = piece[self._local.send(piece) :]
            if not piece:
                return
            self._local.on_room(self._flush)
        self._keep(piece)

    def said_all(self) -> None:
        """Nothing more comes."""
        self._ending = True
        self._finish()

    def _keep(self, piece: memoryview) -> None:
        if not self._queue or len(self._queue[-1]) + len(piece) > _CHUNK_BYTES:
            self._queue.append(bytearray(piece))
        else:
            self._queue[-1] += piece
        self._held += len(piece)

    def _flush(self) -> None:
        local, before = self._local, self._held
        assert local is not None
        try:
            while self._queue:
                view = memoryview(self._queue[0])[self._at :]
                sent, size = local.send(view), len(view)
                view.release()
                self._held -= sent
                if sent < size:
                    self._at += sent
                    break
                self._queue.popleft()
                self._at = 0
        except OSError as error:
            self._fail(error)
        self.heard_at = self._loop.time()
        if self._held < before:
            self._call.holds(self._held + self._pieces.gathered)
        if not self._queue:
            local.on_room(None)
            self._finish()
            self._wake()

    def _finish(self) -> None:
        if self._ending and not self._queue and self._local is not None:
            self._local.finish()

    def _fail(self, error: Exception) -> None:
        self._failure, self._over = error, True
        self._queue.clear()
        self._at = self._held = 0
        self._wake()

    async def _wait(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
