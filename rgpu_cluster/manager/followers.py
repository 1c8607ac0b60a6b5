"""Clients that follow their requests until these are placed or denied."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rgpu_common.v1 import cluster_pb2


class Follower:
    """One client's stream. It sees the latest state; states in between may be left out."""

    def __init__(self) -> None:
        self._state: cluster_pb2.SubmitResponse | None = None
        self._changed = asyncio.Event()

    def tell(self, state: cluster_pb2.SubmitResponse) -> None:
        """Takes a new state."""
        self._state = state
        self._changed.set()

    async def next(self) -> cluster_pb2.SubmitResponse:
        """Waits for a state that was not returned yet."""
        await self._changed.wait()
        self._changed.clear()
        assert self._state is not None
        return self._state


class Followers:
    """Request -> the client that follows it. A newer client takes the place of an older one."""

    def __init__(self) -> None:
        self._of: dict[str, Follower] = {}

    def __len__(self) -> int:
        return len(self._of)

    def __contains__(self, request: str) -> bool:
        return request in self._of

    def follow(self, request: str) -> Follower:
        """Adds a client."""
        self._of[request] = follower = Follower()
        return follower

    def leave(self, request: str, follower: Follower) -> bool:
        """Removes a client. Returns whether nobody follows the request now."""
        if self._of.get(request) is not follower:
            return False
        del self._of[request]
        return True

    def tell(self, request: str, state: cluster_pb2.SubmitResponse) -> None:
        """Tells the client that follows the request, if there is one."""
        follower = self._of.get(request)
        if follower is not None:
            follower.tell(state)
