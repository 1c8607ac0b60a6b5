"""What the shell shall do after one event, collected in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_server.core import actions as do
from rgpu_server.core.model import PageState

if TYPE_CHECKING:
    from rgpu_server.core.lease import Lease
    from rgpu_server.core.lending import Lending


class Outbox:
    """Actions, and what leases come to as actions on their pages."""

    def __init__(self, reclaim_seconds: float) -> None:
        self._reclaim_seconds = reclaim_seconds
        self._actions: list[do.Action] = []

    def add(self, action: do.Action) -> None:
        """The next thing to do."""
        self._actions.append(action)

    def take(self) -> list[do.Action]:
        """Returns what has been collected, and begins anew."""
        actions, self._actions = self._actions, []
        return actions

    def make_page(self, lease: Lease) -> None:
        """The lease is new."""
        self.add(do.MakePage(lease.id, lease.quota))

    def update_page(self, lease: Lease) -> None:
        """An active lease has other sizes, or runs again, or no longer."""
        state = PageState.PAUSED if lease.paused else PageState.ACTIVE
        self.add(do.UpdatePage(lease.id, lease.quota, state))

    def add_changes(self, lending: Lending) -> None:
        """Leases that gave way for another one, got their share back, or will have to end."""
        for lease, gone in lending.take_changes():
            if gone:
                self.add(do.DropPage(lease.id))
            else:
                self.update_page(lease)
        for lease in lending.take_notices():
            self.add(do.AnnounceReclaim(lease.id, self._reclaim_seconds))
