"""Carries out what the node decides about leases: their pages, and who hears of it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

from rgpu_common.errors import WorkerError
from rgpu_common.units import format_bytes
from rgpu_server.core import actions as do
from rgpu_server.observe.audit import audit
from rgpu_server.tokens.protocol import UsageIs, no_usage
from rgpu_server.workers.pages import Counters, LeasePage

if TYPE_CHECKING:
    from collections.abc import Callable

    from rgpu_server.core.lease import Lease
    from rgpu_server.core.leases import LeaseBook

log = logging.getLogger("rgpu.server")


class PageWatcher(Protocol):
    """Hears of the pages, and shares out device time by them (Handover)."""

    def page_made(self, lease: str) -> None: ...

    def lease_is(self, lease_id: str) -> None: ...

    def lease_gone(self, lease: str) -> None: ...

    def slot_cleared(self, lease: str, session: int) -> None: ...

    def usage(self, lease: str) -> UsageIs: ...


class LeaseWatcher(Protocol):
    """Hears of leases that come and go (Recorder)."""

    def lease_made(self, lease: Lease) -> None: ...

    def lease_ended(self, lease: str, counters: Counters, used: UsageIs) -> None: ...


class LeasePages:
    """One page per lease of the book.

    handover, recorder: told of every lease; None: nobody schedules, nothing is recorded.
    doers: one row per action type that is about a lease, the method that carries it out.
    """

    def __init__(self, leases: LeaseBook) -> None:
        self.handover: PageWatcher | None = None
        self.recorder: LeaseWatcher | None = None
        self._leases = leases
        self._pages: dict[str, LeasePage] = {}
        self.doers: dict[type[Any], Callable[[Any], None]] = {
            do.MakePage: self._make,
            do.UpdatePage: self._update,
            do.TakeSlot: self._take_slot,
            do.ClearSlot: self._clear_slot,
            do.DropPage: self._drop,
            do.AnnounceReclaim: self._announce_reclaim,
        }

    def get(self, lease_id: str) -> LeasePage | None:
        """Returns the page of a lease, or None."""
        return self._pages.get(lease_id)

    def adopt(self, lease_id: str, page: LeasePage) -> None:
        """Takes over a page that an earlier daemon made."""
        self._pages[lease_id] = page

    def give_up(self, lease_id: str) -> None:
        """Closes an adopted page that no session uses; nobody hears of it."""
        self._pages.pop(lease_id).close()

    def usage(self, lease_id: str) -> Counters:
        """Returns what a lease holds and did; zeros if it is not there."""
        page, lease = self._pages.get(lease_id), self._leases.get(lease_id)
        return Counters() if page is None or lease is None else page.total(list(lease.slots))

    def charged(self, lease_id: str) -> int:
        """Returns the bytes of memory that are charged to a lease; 0 if it is not there."""
        page = self._pages.get(lease_id)
        return page.charged() if page is not None else 0

    def time_used(self, lease_id: str) -> UsageIs:
        """Returns what a lease used of its device and waited for; zeros if nobody schedules."""
        return self.handover.usage(lease_id) if self.handover is not None else no_usage(lease_id)

    def close(self) -> None:
        """Unmaps all pages; workers keep their own mappings."""
        for page in self._pages.values():
            page.close()
        self._pages.clear()

    def _make(self, action: do.MakePage) -> None:
        try:
            self._pages[action.lease] = LeasePage(action.quota)
        except OSError as error:
            # No session of the lease can be assigned then; each is refused.
            log.error("no page for lease %s: %s", action.lease, error)
            return
        if self.handover is not None:
            self.handover.page_made(action.lease)
        lease = self._leases.get(action.lease)
        if lease is not None:
            if self.recorder is not None:
                self.recorder.lease_made(lease)
            audit(
                "lease_granted",
                lease=lease.id,
                tenant=lease.key.tenant,
                key=lease.key.name,
                name=lease.name,
                device=lease.device,
                memory_bytes=action.quota.memory_bytes,
                explicit=lease.explicit,
            )

    def _update(self, action: do.UpdatePage) -> None:
        page = self._pages.get(action.lease)
        if page is None:
            return
        page.update(action.quota, action.state)
        if self.handover is not None:
            self.handover.lease_is(action.lease)
        lease = self._leases.get(action.lease)
        audit(
            "lease_updated",
            lease=action.lease,
            tenant=None if lease is None else lease.key.tenant,
            memory_bytes=action.quota.memory_bytes,
            share_request_ppm=action.quota.share_request_ppm,
            share_limit_ppm=action.quota.share_limit_ppm,
            state=action.state.name.lower(),
        )

    def _take_slot(self, action: do.TakeSlot) -> None:
        page = self._pages.get(action.lease)
        if page is None:
            return
        try:
            page.take(action.slot, action.session)
        except WorkerError as error:
            # A worker of this lease wrote where it must not: nothing that others wait for stops.
            log.error("lease %s: %s", action.lease, error)

    def _clear_slot(self, action: do.ClearSlot) -> None:
        page = self._pages.get(action.lease)
        if page is not None:
            page.clear(action.slot)
            if self.handover is not None:
                self.handover.slot_cleared(action.lease, action.session)

    def _drop(self, action: do.DropPage) -> None:
        page = self._pages.pop(action.lease, None)
        if page is None:
            return
        total = page.total([])
        page.close()
        if self.recorder is not None:
            self.recorder.lease_ended(action.lease, total, self.time_used(action.lease))
        if self.handover is not None:
            self.handover.lease_gone(action.lease)
        audit(
            "lease_ended",
            lease=action.lease,
            peak_bytes=total.peak_bytes,
            refused=total.refused,
            launches=total.launches,
            copied_bytes=total.copied_bytes,
        )
        log.info("lease %s ended; peak %s", action.lease, format_bytes(total.peak_bytes))

    def _announce_reclaim(self, action: do.AnnounceReclaim) -> None:
        audit("lease_reclaim_announced", lease=action.lease, seconds=action.seconds)
        log.warning(
            "lease %s ends in %.0f s: its memory was borrowed and the owner needs it",
            action.lease,
            action.seconds,
        )
