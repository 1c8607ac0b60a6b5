"""Queues in which tenants take turns, so that one tenant's many requests hold up no other's."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Hashable

T = TypeVar("T", bound="Hashable")


class TurnQueue(Generic[T]):
    """What waits, each once. Whatever other tenants have waiting, the first of a tenant waits for
    one of each of them at most. A tenant's own come in the order in which they were added.
    """

    def __init__(self) -> None:
        # Tenant -> what it has waiting. The tenant whose turn is next stands first.
        self._of: OrderedDict[str, OrderedDict[T, None]] = OrderedDict()
        self._tenants: dict[T, str] = {}

    def __len__(self) -> int:
        return len(self._tenants)

    def __contains__(self, one: object) -> bool:
        return one in self._tenants

    def add(self, one: T, tenant: str) -> None:
        """Adds one at the end of its tenant's, if it does not wait already."""
        if one not in self._tenants:
            self._tenants[one] = tenant
            self._of.setdefault(tenant, OrderedDict())[one] = None

    def discard(self, one: T) -> None:
        """Takes one out, if it waits."""
        tenant = self._tenants.pop(one, None)
        if tenant is not None:
            del self._of[tenant][one]
            if not self._of[tenant]:
                del self._of[tenant]

    def pop(self) -> T:
        """Takes out the next one and returns it; the queue must not be empty."""
        tenant, own = next(iter(self._of.items()))
        self._of.move_to_end(tenant)
        one = next(iter(own))
        self.discard(one)
        return one


class TurnPlaces:
    """A semaphore with `count` places. Of those that wait for one, tenants take turns."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: TurnQueue[asyncio.Future[None]] = TurnQueue()

    @asynccontextmanager
    async def place(self, tenant: str) -> AsyncIterator[None]:
        """Waits for a place and holds it."""
        await self._take(tenant)
        try:
            yield
        finally:
            self._pass_on()

    async def _take(self, tenant: str) -> None:
        if self._free:
            self._free -= 1
            return
        woken = asyncio.get_running_loop().create_future()
        self._waiting.add(woken, tenant)
        try:
            await woken
        except asyncio.CancelledError:
            self._waiting.discard(woken)
            if not woken.cancelled():
                self._pass_on()  # its turn had come
            raise

    def _pass_on(self) -> None:
        while self._waiting:
            woken = self._waiting.pop()
            # One that was taken back stands here until its task goes on.
            if not woken.done():
                woken.set_result(None)
                return
        self._free += 1
