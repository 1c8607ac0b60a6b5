"""Looks at every lease once a second: totals, the record, and the rates of the last second."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING

from msgspec import Struct

from rgpu_server.core.model import PPM
from rgpu_server.observe.edges import Edges
from rgpu_server.observe.record import Ring, Sample, Series, Store
from rgpu_server.observe.seam_bits import bits_of
from rgpu_server.observe.totals import Amounts, Growing, Totals

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rgpu_server.core.lease import Lease
    from rgpu_server.observe.snapshot import LeaseView, Observer
    from rgpu_server.tokens.protocol import UsageIs
    from rgpu_server.workers.pages import Counters

_PERIOD_SECONDS = 1.0


class Rates(Struct, frozen=True):
    """Of the last second.  waiting_ppm, throttled_ppm, device_ppm: parts of it."""

    launches: float = 0.0
    copied_bytes: float = 0.0
    waiting_ppm: int = 0
    throttled_ppm: int = 0
    device_ppm: int = 0


class Recorder:
    """`start` once leases have been adopted; `look` brings the totals up to now."""

    def __init__(
        self,
        observer: Observer,
        folder: Path,
        max_bytes: int,
        enforced: bool = True,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.totals = Totals()
        self.loop_totals = Growing()
        self.ring = Ring(max_bytes)
        self._observer = observer
        self._store = Store(folder, max_bytes)
        self._edges = Edges()
        self._enforced = enforced
        self._wall = wall
        self._rates: dict[str, Rates] = {}
        self._switches: dict[int, float] = {}
        self._marks: dict[str, Amounts] = {}
        # Those that have a page. One may come and go without a sample of its last program.
        self._leases: dict[str, Lease] = {}
        self._switch_marks: dict[int, int] = {}
        self._marked_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Goes on with the record of an earlier daemon, and begins to look."""
        self._store.load(self.ring)
        running = {view.lease.id for view in self._observer.leases()}
        self.totals.restore(self._store.load_totals(), running)
        self._marked_at = time.monotonic()
        self.look()
        self._wait()

    def close(self) -> None:
        """Looks a last time, and stops."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._record(self.look())
            self._save()
        self._store.close()

    # Leases come and go (LeaseWatcher)

    def lease_made(self, lease: Lease) -> None:
        """A lease that has a page from now on."""
        self.totals.place(lease.id, lease.key.tenant, lease.device)
        self._leases[lease.id] = lease
        # Those that were adopted go on in the record that is read at the start.
        if self._timer is not None:
            self._edges.came(lease.id, self._sample(lease), self.now_ms())

    def lease_ended(self, lease: str, counters: Counters, used: UsageIs) -> None:
        """A lease that has none any more."""
        ended = self._leases.pop(lease, None)
        seams = bits_of(ended.seams) if ended is not None else 0
        self._edges.went(lease, self.totals.end(lease, self._amounts(counters, used)), seams)
        self._rates.pop(lease, None)
        self._marks.pop(lease, None)

    # What others ask for

    def look(self) -> list[LeaseView]:
        """Brings the totals up to now; returns what it looked at."""
        views = self._observer.leases()
        for view in views:
            lease = view.lease
            self.totals.place(lease.id, lease.key.tenant, lease.device)
            self.totals.observe(lease.id, self._amounts(view.counters, view.time))
        for number, said in self._observer.token_reports().items():
            counted = (said.switches, said.fenced, said.decision_ns, said.handover_ns)
            self.loop_totals.observe(number, counted)
            self.loop_totals.observe(("decisions", number), said.decisions)
            self.loop_totals.observe(("handovers", number), said.handovers)
        return views

    def rates(self, lease: str) -> Rates:
        """A lease's rates of the last second."""
        return self._rates.get(lease, Rates())

    def switches(self, device: int) -> float:
        """How often a second the device went from one lease to another."""
        return self._switches.get(device, 0.0)

    @property
    def enforced(self) -> bool:
        """Whether device time is shared out."""
        return self._enforced

    def now_ms(self) -> int:
        """The time in the record's clock."""
        return round(self._wall() * 1000)

    # Once a second

    def _wait(self) -> None:
        """At whole seconds, so that the steps of a picture hold one sample each."""
        left = _PERIOD_SECONDS - self._wall() % _PERIOD_SECONDS
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(left if left > 0.1 else left + _PERIOD_SECONDS, self._tick)

    def _tick(self) -> None:
        self._wait()
        views = self.look()
        self._record(views)
        self._mark(views)
        self._save()

    def _record(self, views: list[LeaseView]) -> None:
        samples = []
        for view in views:
            used, share = view.counters.used_bytes, view.time.share_1s_ppm
            sample = self._sample(view.lease, used, share)
            self._edges.seen(view.lease.id, sample)
            samples.append(sample)
        samples += self._edges.take_last()
        for time_ms, there in (
            (self._edges.since_ms, self._edges.take_first()),
            (self.now_ms(), samples),
        ):
            if there:
                self._store.append(self.ring.add(time_ms, there), self.ring)

    def _sample(self, lease: Lease, used_bytes: int = 0, share_1s_ppm: int = 0) -> Sample:
        total, quota = self.totals.lease(lease.id), lease.quota
        series = Series(lease.id, lease.key.tenant, lease.key.name, lease.device)
        return Sample(
            device_ns=total.device_ns,
            waiting_ns=total.waiting_ns,
            throttled_ns=total.throttled_ns,
            launches=total.launches,
            copied_bytes=total.copied_bytes,
            memory_used=used_bytes,
            memory_limit=quota.memory_bytes,
            request_ppm=quota.share_request_ppm,
            limit_ppm=quota.share_limit_ppm or PPM,
            share_1s_ppm=share_1s_ppm,
            number=self.ring.number(series),
            seams=bits_of(lease.seams),
        )

    def _mark(self, views: list[LeaseView]) -> None:
        now = time.monotonic()
        passed = max(now - self._marked_at, 1e-3)
        self._marked_at = now
        self._rates = {}
        for view in views:
            lease = view.lease.id
            total = self.totals.lease(lease)
            last = self._marks.get(lease, total)
            self._marks[lease] = total
            self._rates[lease] = Rates(
                launches=(total.launches - last.launches) / passed,
                copied_bytes=(total.copied_bytes - last.copied_bytes) / passed,
                waiting_ppm=_part(total.waiting_ns - last.waiting_ns, passed),
                throttled_ppm=_part(total.throttled_ns - last.throttled_ns, passed),
                device_ppm=_part(total.device_ns - last.device_ns, passed),
            )
        for device in self._observer.ordinals():
            switched = (self.loop_totals.sums(device) or (0,))[0]
            before = self._switch_marks.get(device, switched)
            self._switch_marks[device] = switched
            self._switches[device] = (switched - before) / passed

    def _save(self) -> None:
        self._store.save_totals(json.dumps(self.totals.save(), separators=(",", ":")))

    def _amounts(self, counters: Counters, used: UsageIs) -> Amounts:
        return Amounts(
            device_ns=used.device_ns if self._enforced else counters.busy_ns,
            busy_ns=counters.busy_ns,
            held_ns=used.held_ns,
            waiting_ns=used.waiting_ns,
            throttled_ns=used.throttled_ns,
            held_back_ns=counters.held_back_ns,
            grants=used.grants,
            launches=counters.launches,
            copies=counters.copies,
            copied_bytes=counters.copied_bytes,
            refused=counters.refused,
        )


def _part(ns: int, seconds: float) -> int:
    return min(round(ns / 1e9 / seconds * PPM), PPM)
