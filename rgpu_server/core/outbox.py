"""Collects the actions of one event, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_server.core import actions as do
from rgpu_server.core.model import PageState

if TYPE_CHECKING:
    from rgpu_server.core.lease import Lease
    from rgpu_server.core.lending import Lending


class Outbox:
    """Collects actions, and turns changes of leases into actions on their pages."""

    def __init__(self, reclaim_seconds: float) -> None:
        self._reclaim_seconds = reclaim_seconds
        self._actions: list[do.Action] = []

    def add(self, action: do.Action) -> None:
        """Adds an action at the end."""
        self._actions.append(action)

    def take(self) -> list[do.Action]:
        """Returns the collected actions and starts a new collection."""
        actions, self._actions = self._actions, []
        return actions

    def make_page(self, lease: Lease) -> None:
        """Adds the action that makes the page of a new lease."""
        self.add(do.MakePage(lease.id, lease.quota))

    def update_page(self, lease: Lease) -> None:
        """Adds the action that writes a lease's sizes and whether it is paused to its page."""
        state = PageState.PAUSED if lease.paused else PageState.ACTIVE
        self.add(do.UpdatePage(lease.id, lease.quota, state))

    def add_changes(self, lending: Lending) -> None:
        """Adds actions for the leases that made room, got their share back, or will have to end."""
        for lease, gone in lending.take_changes():
            if gone:
                self.add(do.DropPage(lease.id))
            else:
                self.update_page(lease)
        for lease in lending.take_notices():
            self.add(do.AnnounceReclaim(lease.id, self._reclaim_seconds))
