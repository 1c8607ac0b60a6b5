"""Bounds the time that the calls of tenants take from a process that does other work, too."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from rgpu_common.turns import TurnPlaces

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator

    from rgpu_server.core.identity import Identity

T = TypeVar("T")


class Kind(Enum):
    """LOOK: takes time for every lease, and nobody is lost who waits for it.
    GLANCE: programs ask it before they start, and soon take a server for dead that is silent.
    CHANGE: changes leases or requests, or keeps them alive. One that comes late loses its lease.
    """

    LOOK = auto()
    GLANCE = auto()
    CHANGE = auto()


# One row per method of the services in protos/rgpu_common.
KINDS = {
    "AgentService/Join": Kind.CHANGE,
    "CredentialService/GetCredential": Kind.GLANCE,
    "DeviceService/ListDevices": Kind.GLANCE,
    "LeaseService/CancelClaim": Kind.CHANGE,
    "LeaseService/GrantLease": Kind.CHANGE,
    "LeaseService/KeepAliveLease": Kind.CHANGE,
    "LeaseService/ListLeases": Kind.LOOK,
    "LeaseService/PauseLease": Kind.CHANGE,
    "LeaseService/ResizeLease": Kind.CHANGE,
    "LeaseService/ResumeLease": Kind.CHANGE,
    "LeaseService/RevokeLease": Kind.CHANGE,
    "LogService/GetLog": Kind.LOOK,
    "ManagerService/Explain": Kind.LOOK,
    "ManagerService/FindReservation": Kind.GLANCE,
    "ManagerService/GetPool": Kind.LOOK,
    "ManagerService/ListEvents": Kind.LOOK,
    "ManagerService/Release": Kind.CHANGE,
    "ManagerService/Submit": Kind.CHANGE,
    "ManagerService/Withdraw": Kind.CHANGE,
    "NetworkService/ListEndpoints": Kind.GLANCE,
    "NodeOrderService/Grant": Kind.CHANGE,
    "NodeOrderService/Keep": Kind.CHANGE,
    "NodeOrderService/Revoke": Kind.CHANGE,
    "NodeOrderService/WatchReport": Kind.CHANGE,
    "NodeService/DrainNode": Kind.CHANGE,
    "NodeService/GetNode": Kind.GLANCE,
    "NodeService/ListTenants": Kind.LOOK,
    "NodeService/UndrainNode": Kind.CHANGE,
    "ObserveService/GetNow": Kind.LOOK,
    "ObserveService/GetRecord": Kind.LOOK,
    "SessionService/GetUsage": Kind.LOOK,
    "SessionService/ListSessions": Kind.LOOK,
    "TunnelService/Open": Kind.CHANGE,
}


def kind_of(method: str) -> Kind:
    """Returns the kind of a method by its name in gRPC: "/rgpu.v1.NodeService/GetNode"."""
    return KINDS.get(method.rpartition(".")[2], Kind.LOOK)


# All tenants' calls of a kind together take at most this part of the process's time, after a burst
# of so many seconds. Changes take what they need: one that waits for long loses its lease.
_PARTS = {Kind.LOOK: 0.25, Kind.GLANCE: 0.5}
_BURST_SECONDS = 0.5
# The debt is at most so many seconds, so that nobody waits longer than two seconds after an
# expensive call. Calls of more than half a second therefore take more than this part.
_DEBT_SECONDS = 0.5


class Pacing:
    """Tenants take turns, among the calls of each kind. Operators do not wait, and what they ask
    does not count.

    clock: of the time that passes. While a call works nothing else in the process goes on, also
    where a busy machine makes it slow. So that time counts, and not the processor's.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._queues = {kind: _Queue(_PARTS.get(kind), clock, sleep) for kind in Kind}

    async def answer(
        self, kind: Kind, identity: Identity, origin: str, work: Coroutine[Any, Any, T]
    ) -> T:
        """Awaits what answers a call, when it is the caller's turn."""
        if identity.operator:
            return await work
        queue = self._queues[kind]
        try:
            await queue.turn(_whose(identity, origin))
        except BaseException:
            work.close()
            raise
        return await queue.metered(work)

    async def stream(
        self, kind: Kind, identity: Identity, origin: str, work: AsyncGenerator[T, None]
    ) -> AsyncGenerator[T, None]:
        """Yields what answers a call, when it is the caller's turn."""
        queue = self._queues[kind]
        async with aclosing(work):
            if not identity.operator:
                await queue.turn(_whose(identity, origin))
            while True:
                step = work.__anext__()
                try:
                    message = await (step if identity.operator else queue.metered(step))
                except StopAsyncIteration:
                    return
                yield message


class _Queue:
    """The calls of one kind. part: of the process's time; None: no bound but the turns."""

    def __init__(
        self,
        part: float | None,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._part = part
        self._clock = clock
        self._sleep = sleep
        self._places = TurnPlaces(1)
        self._left, self._at = _BURST_SECONDS, clock()

    def metered(self, work: Awaitable[T]) -> Awaitable[T]:
        """Returns the work, so that the time that it takes counts."""
        return _Metered(work, self._clock, self._charge)

    async def turn(self, whose: str) -> None:
        """Waits until it is the caller's turn, and lets all else go on once before it."""
        async with self._places.place(whose):
            await self._sleep(0.0 if self._part is None else self._debt_seconds(self._part))

    def _debt_seconds(self, part: float) -> float:
        """Returns how long it takes until nothing is owed."""
        now = self._clock()
        self._left = min(self._left + part * (now - self._at), _BURST_SECONDS)
        self._at = now
        return max(-self._left / part, 0.0)

    def _charge(self, seconds: float) -> None:
        self._left = max(self._left - seconds, -_DEBT_SECONDS)


class _Metered(Generic[T]):
    """An awaitable that measures how long its own steps take, without what it waits for."""

    def __init__(
        self, work: Awaitable[T], clock: Callable[[], float], charge: Callable[[float], None]
    ) -> None:
        self._work = work
        self._clock = clock
        self._charge = charge

    def __await__(self) -> Generator[Any, Any, T]:
        steps: Any = self._work.__await__()
        step, said = steps.send, None
        while True:
            began = self._clock()
            try:
                waits_for = step(said)
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                self._charge(self._clock() - began)
            try:
                said = yield waits_for
                step = steps.send
            except BaseException as error:  # whatever it is, the work hears of it
                step, said = steps.throw, error


def _whose(identity: Identity, origin: str) -> str:
    """Returns who takes turns with others: a caller that may name any tenant is its network."""
    return origin if identity.tenant is None else f"tenant {identity.tenant}"
