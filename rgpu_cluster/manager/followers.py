"""Clients that follow their requests until these are placed or denied."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from rgpu_common.crowds import Crowds

if TYPE_CHECKING:
    from rgpu_common.v1 import cluster_pb2

# At most so many clients follow requests: of all tenants, and of one. Where tenants have taken all
# places together, the one with the most loses its newest to each that comes. Operators have a few
# more, so that nobody keeps them out.
MOST, MOST_PER_TENANT, OF_OPERATORS = 20_000, 2_000, 64
ANOTHER = "another client follows this request now"
CROWDED_OUT = (
    "the manager follows as many requests as it can, and this tenant has most of them: the newest "
    "made room for another tenant's; try again later"
)


class Follower:
    """One client's stream. It sees the latest state; states in between may be left out."""

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self._state: cluster_pb2.SubmitResponse | None = None
        self.why_over = ""
        self._changed = asyncio.Event()

    def tell(self, state: cluster_pb2.SubmitResponse) -> None:
        """Takes a new state."""
        self._state = state
        self._changed.set()

    async def replaced(self, seconds: float) -> None:
        """Returns when another client has its place, or after so many seconds."""

        async def wait() -> None:
            while not self.why_over:
                await self.next()

        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(wait(), seconds)

    def end(self, why: str) -> None:
        """Ends it. why: `ANOTHER` or `CROWDED_OUT`."""
        self.why_over = why
        self._changed.set()

    async def next(self) -> cluster_pb2.SubmitResponse | None:
        """Waits for a state that was not returned yet; None: it is over (`why_over`)."""
        await self._changed.wait()
        self._changed.clear()
        return None if self.why_over else self._state


class Followers:
    """Request -> the client that follows it. A newer client takes the place of an older one."""

    def __init__(self) -> None:
        self._of: dict[str, Follower] = {}
        self._tenants: Crowds[str] = Crowds()

    def __len__(self) -> int:
        return len(self._of)

    def __contains__(self, request: str) -> bool:
        return request in self._of

    def tenant(self, request: str) -> str:
        """Returns the tenant whose client follows a request; "" if nobody does."""
        follower = self._of.get(request)
        return "" if follower is None else follower.tenant

    def why_not(self, request: str, tenant: str, *, operator: bool = False) -> str:
        """Returns why no more client can follow a request; "" if one can."""
        if request in self._of:
            return ""
        if self._tenants.count(tenant) >= MOST_PER_TENANT:
            return f"tenant {tenant} follows {MOST_PER_TENANT} requests; wait for some of them"
        if self._is_full(operator) and self._tenants.gives_way(tenant) is None:
            return "the manager follows as many requests as it can; try again later"
        return ""

    def follow(self, request: str, tenant: str, *, operator: bool = False) -> Follower:
        """Adds a client for which `why_not` has no reason."""
        before = self._of.get(request)
        if before is not None:
            self._end(request, before, ANOTHER)
        elif self._is_full(operator):
            leaves = self._tenants.gives_way(tenant)
            if leaves is not None:
                self._end(leaves, self._of[leaves], CROWDED_OUT)
        self._of[request] = follower = Follower(tenant)
        self._tenants.come(request, tenant)
        return follower

    def _is_full(self, operator: bool) -> bool:
        return len(self._of) >= MOST + OF_OPERATORS * operator

    def _end(self, request: str, follower: Follower, why: str) -> None:
        follower.end(why)
        self._forget(request)

    def leave(self, request: str, follower: Follower) -> bool:
        """Removes a client. Returns whether nobody follows the request now. A client whose place
        another one got has no say, also when that one has left.
        """
        if self._of.get(request) is follower:
            self._forget(request)
        return request not in self._of and follower.why_over != ANOTHER

    def tell(self, request: str, state: cluster_pb2.SubmitResponse) -> None:
        """Tells the client that follows the request, if there is one."""
        follower = self._of.get(request)
        if follower is not None:
            follower.tell(state)

    def _forget(self, request: str) -> None:
        del self._of[request]
        self._tenants.go(request)
