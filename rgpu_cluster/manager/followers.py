"""Clients that follow their requests until these are placed or denied."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rgpu_common.v1 import cluster_pb2

# At most so many clients follow requests: of all tenants, and of one.
MOST, MOST_PER_TENANT = 20_000, 2_000


class Follower:
    """One client's stream. It sees the latest state; states in between may be left out."""

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self._state: cluster_pb2.SubmitResponse | None = None
        self._replaced = False
        self._changed = asyncio.Event()

    def tell(self, state: cluster_pb2.SubmitResponse) -> None:
        """Takes a new state."""
        self._state = state
        self._changed.set()

    async def replaced(self, seconds: float) -> None:
        """Returns when another client has its place, or after so many seconds."""

        async def wait() -> None:
            while not self._replaced:
                await self.next()

        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(wait(), seconds)

    def replace(self) -> None:
        """Ends it, because another client follows the request now."""
        self._replaced = True
        self._changed.set()

    async def next(self) -> cluster_pb2.SubmitResponse | None:
        """Waits for a state that was not returned yet; None: another client has its place."""
        await self._changed.wait()
        self._changed.clear()
        return None if self._replaced else self._state


class Followers:
    """Request -> the client that follows it. A newer client takes the place of an older one."""

    def __init__(self) -> None:
        self._of: dict[str, Follower] = {}
        self._by_tenant: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._of)

    def __contains__(self, request: str) -> bool:
        return request in self._of

    def tenant(self, request: str) -> str:
        """Returns the tenant whose client follows a request; "" if nobody does."""
        follower = self._of.get(request)
        return "" if follower is None else follower.tenant

    def why_not(self, request: str, tenant: str) -> str:
        """Returns why no more client can follow a request; "" if one can."""
        if request in self._of:
            return ""
        if len(self._of) >= MOST:
            return "the manager follows as many requests as it can; try again later"
        if self._by_tenant[tenant] >= MOST_PER_TENANT:
            return f"tenant {tenant} follows {MOST_PER_TENANT} requests; wait for some of them"
        return ""

    def follow(self, request: str, tenant: str) -> Follower:
        """Adds a client."""
        before = self._of.get(request)
        if before is not None:
            before.replace()
            self._forget(request, before)
        self._of[request] = follower = Follower(tenant)
        self._by_tenant[tenant] += 1
        return follower

    def leave(self, request: str, follower: Follower) -> bool:
        """Removes a client. Returns whether nobody follows the request now."""
        if self._of.get(request) is not follower:
            return False
        self._forget(request, follower)
        return True

    def tell(self, request: str, state: cluster_pb2.SubmitResponse) -> None:
        """Tells the client that follows the request, if there is one."""
        follower = self._of.get(request)
        if follower is not None:
            follower.tell(state)

    def _forget(self, request: str, follower: Follower) -> None:
        del self._of[request]
        self._by_tenant[follower.tenant] -= 1
        if not self._by_tenant[follower.tenant]:
            del self._by_tenant[follower.tenant]
