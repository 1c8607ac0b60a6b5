"""Answers OBSERVE: tells a client what its lease has and uses, without a session."""

from __future__ import annotations

import asyncio
import itertools
import logging
from functools import partial
from typing import TYPE_CHECKING

from rgpu_common.crowds import of_largest_crowd
from rgpu_common.tasks import end
from rgpu_common.wire.frame import WIRE_MAJOR, WireError
from rgpu_common.wire.observe import Observed, decode_observe, encode_observed
from rgpu_common.wire.refused import encode_refused
from rgpu_common.wire.status import (
    CUDA_ERROR_DEVICE_UNAVAILABLE,
    CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
    CUDA_ERROR_UNKNOWN,
)
from rgpu_server.core.model import LeaseKey, Refusal
from rgpu_server.service.sockets import say_and_close
from rgpu_server.service.who import Who, container_of, who

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable

    from rgpu_common.wire.observe import Observe
    from rgpu_server.identity.authenticator import Authenticator
    from rgpu_server.service.callers import Caller

log = logging.getLogger("rgpu.session")

# Beyond so many at once, one of the origin that has most is closed; its client asks again.
_MOST = 256


class Onlookers:
    """look: returns what the lease of a key has. has_lease: whether a key has an active lease."""

    def __init__(
        self,
        authenticator: Authenticator,
        has_lease: Callable[[LeaseKey], bool],
        look: Callable[[LeaseKey, Observe], Awaitable[Observed | Refusal]],
    ) -> None:
        self._authenticator = authenticator
        self._has_lease = has_lease
        self._look = look
        self._numbers = itertools.count()
        # Number -> origin and task, the longest present first.
        self._there: dict[int, tuple[str, asyncio.Task[None]]] = {}

    def take(self, connection: socket.socket, head: bytes, caller: Caller) -> None:
        """Takes over a connection that sent OBSERVE: answers it and closes it."""
        self._make_room_for(caller.origin)
        number = next(self._numbers)
        task = asyncio.ensure_future(self._serve(connection, head, caller))
        self._there[number] = caller.origin, task
        task.add_done_callback(partial(self._over, number, connection))

    async def stop(self) -> None:
        """Closes the connections that have no answer yet."""
        await end([task for _, task in self._there.values()])

    def _over(self, number: int, connection: socket.socket, _task: asyncio.Task[None]) -> None:
        self._there.pop(number, None)
        connection.close()  # also if the task was cancelled before it began

    def _make_room_for(self, origin: str) -> None:
        if len(self._there) < _MOST:
            return
        there = ((number, whose) for number, (whose, _) in self._there.items())
        leaves = of_largest_crowd(there, origin)
        if leaves is not None:
            self._there.pop(leaves)[1].cancel()

    async def _serve(self, connection: socket.socket, head: bytes, caller: Caller) -> None:
        frame = await self._answer(head, caller)
        if frame:
            await say_and_close(connection, frame)

    async def _answer(self, head: bytes, caller: Caller) -> bytes:
        """Returns the frame to send; b"": the caller had too many refusals."""
        try:
            question = decode_observe(head)
        except WireError as error:
            return encode_refused(CUDA_ERROR_UNKNOWN, f"the OBSERVE does not decode: {error}")
        if question.major != WIRE_MAJOR:
            sentence = (
                f"the client speaks wire version {question.major}.{question.minor} and the server "
                f"{WIRE_MAJOR}; install the same release of rgpu-cuda on both"
            )
            return encode_refused(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, sentence)
        whose = self._who(question, caller)
        if isinstance(whose, Refusal):
            if not self._authenticator.answers(caller, "observe", whose):
                return b""
            return encode_refused(CUDA_ERROR_DEVICE_UNAVAILABLE, whose.sentence)
        container = container_of(caller.peer, question.container)
        key = LeaseKey.of_client(whose.tenant, question.lease_key, container)
        answer = await self._look(key, question)
        if isinstance(answer, Refusal):
            return encode_refused(CUDA_ERROR_DEVICE_UNAVAILABLE, answer.sentence)
        return encode_observed(answer)

    def _who(self, question: Observe, caller: Caller) -> Who | Refusal:
        identity = self._authenticator.admit(caller, question.access_token)
        if isinstance(identity, Refusal):
            return identity
        return who(identity, question, self._has_lease)
