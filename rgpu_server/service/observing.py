"""The part of the control-plane API that shows what leases do over time."""

from __future__ import annotations

import asyncio
import itertools
import math
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from rgpu_common.v1 import observe_pb2, observe_pb2_grpc
from rgpu_server.core.model import PPM
from rgpu_server.core.turns import Turns
from rgpu_server.identity.guard import known
from rgpu_server.observe.seam_bits import words_of
from rgpu_server.observe.steps import Line, Span, lines_of, span_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from grpc.aio import ServicerContext as Context

    from rgpu_server.observe.recorder import Recorder
    from rgpu_server.observe.snapshot import DeviceView, LeaseView, Observer

DEFAULT_SINCE_SECONDS = 600.0
MAX_SINCE_SECONDS = 366 * 86400.0
# The most values in one answer, so that it fits one message.
_MAX_VALUES = 60_000


class _Reader:
    """Reads the record in a thread, because that may take a while, for one request at a time, even
    if earlier callers have gone. Tenants take turns.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "record")
        self._turns = Turns()
        self._reading = False
        self._numbers = itertools.count()
        # Mark and number of each request that waits -> what wakes it.
        self._waiting: dict[tuple[int, int], asyncio.Future[None]] = {}

    async def read(self, whose: str, work: Callable[[], Callable[[], list[Line]]]) -> list[Line]:
        """Returns what the work returns. work: called when it is the request's turn."""
        await self._turn(whose)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work())
        finally:
            self._pass_on()

    async def _turn(self, whose: str) -> None:
        mark = self._turns.mark(whose)
        if not self._reading:
            self._reading = True
            self._turns.serve(mark)
            return
        place = mark, next(self._numbers)
        woken = self._waiting[place] = asyncio.get_running_loop().create_future()
        try:
            await woken
        except asyncio.CancelledError:
            self._waiting.pop(place, None)
            if not woken.cancelled():
                self._pass_on()  # its turn had come
            raise

    def _pass_on(self) -> None:
        while self._waiting:
            place = min(self._waiting)
            woken = self._waiting.pop(place)
            # A request that was taken back stands here until its task goes on.
            if not woken.cancelled():
                self._turns.serve(place[0])
                woken.set_result(None)
                return
        self._reading = False


class ObserveService(observe_pb2_grpc.ObserveServiceServicer):
    def __init__(self, observer: Observer, recorder: Recorder) -> None:
        self._observer = observer
        self._recorder = recorder
        # Operators do not wait for tenants.
        self._readers = {operator: _Reader() for operator in (True, False)}

    async def GetNow(
        self, request: observe_pb2.GetNowRequest, context: Context
    ) -> observe_pb2.GetNowResponse:
        views = self._recorder.look()
        return observe_pb2.GetNowResponse(
            time_seconds=self._recorder.now_ms() / 1000,
            devices=[self._device(view, views) for view in self._observer.devices()],
            leases=[self._lease(v) for v in views if known().identity.sees(v.lease.key.tenant)],
            enforced=self._recorder.enforced,
            draining=self._observer.node().draining,
        )

    async def GetRecord(
        self, request: observe_pb2.GetRecordRequest, context: Context
    ) -> observe_pb2.GetRecordResponse:
        since = request.since_seconds
        if not math.isfinite(since) or since <= 0:
            since = DEFAULT_SINCE_SECONDS
        since = min(since, MAX_SINCE_SECONDS)
        span = span_of(self._recorder.now_ms(), round(since * 1000), request.max_steps)
        lines = await self._lines(span, request)
        return observe_pb2.GetRecordResponse(
            start_seconds=span.start_ms / 1000,
            step_seconds=span.step_ms / 1000,
            steps=span.steps,
            series=[_series(line, span) for line in lines],
        )

    async def _lines(self, span: Span, request: observe_pb2.GetRecordRequest) -> list[Line]:
        identity, tenant, lease = known().identity, request.tenant, request.lease_id

        def sees(whose: str) -> bool:
            return identity.sees(whose) and tenant in ("", whose)

        by_lease, most = request.by_lease or bool(lease), max(_MAX_VALUES // span.steps, 1)

        def work() -> Callable[[], list[Line]]:
            # The copies do not change while they are read.
            ring = self._recorder.ring
            names = {n: one for n, one in ring.series.items() if lease in ("", one.lease)}
            return partial(
                lines_of, tuple(ring.seconds), names, span, sees=sees, by_lease=by_lease, most=most
            )

        origin = known().caller.origin
        whose = origin if identity.tenant is None else f"tenant {identity.tenant}"
        return await self._readers[identity.operator].read(whose, work)

    def _device(self, view: DeviceView, leases: list[LeaseView]) -> observe_pb2.DeviceNow:
        here = [lease.time for lease in leases if lease.lease.device == view.ordinal]
        return observe_pb2.DeviceNow(
            ordinal=view.ordinal,
            name=view.facts.name,
            memory_bytes=view.facts.memory_bytes,
            leased_memory_bytes=view.leased_bytes,
            used_memory_bytes=view.used_bytes,
            leased_share_ppm=view.leased_share_ppm,
            share_1s_ppm=sum(time.share_1s_ppm for time in here),
            share_10s_ppm=sum(time.share_10s_ppm for time in here),
            switches_per_second=self._recorder.switches(view.ordinal),
        )

    def _lease(self, view: LeaseView) -> observe_pb2.LeaseNow:
        lease = view.lease
        total, rates = self._recorder.totals.lease(lease.id), self._recorder.rates(lease.id)
        return observe_pb2.LeaseNow(
            lease_id=lease.id,
            tenant=lease.key.tenant,
            key=lease.key.name,
            name=lease.name,
            device=lease.device,
            share_request_ppm=lease.quota.share_request_ppm,
            share_limit_ppm=lease.quota.share_limit_ppm or PPM,
            share_1s_ppm=view.time.share_1s_ppm,
            share_10s_ppm=view.time.share_10s_ppm,
            waiting_ppm=rates.waiting_ppm,
            throttled_ppm=rates.throttled_ppm,
            memory_limit_bytes=lease.quota.memory_bytes,
            memory_used_bytes=view.counters.used_bytes,
            memory_peak_bytes=view.counters.peak_bytes,
            refused_allocations=total.refused,
            launches_per_second=rates.launches,
            copied_bytes_per_second=rates.copied_bytes,
            sessions=len(lease.slots),
            paused=lease.paused,
            device_ns=total.device_ns,
            waiting_ns=total.waiting_ns,
            throttled_ns=total.throttled_ns,
            launches=total.launches,
            copies=total.copies,
            copied_bytes=total.copied_bytes,
            compiling=self._observer.compiling(lease.id),
            seams=self._observer.seams(lease.id),
        )


def _series(line: Line, span: Span) -> observe_pb2.UsageSeries:
    def parts(times_ms: list[float]) -> list[int]:
        return [round(ms * PPM / span.step_ms) for ms in times_ms]

    series = line.series
    return observe_pb2.UsageSeries(
        tenant=series.tenant,
        lease_id=series.lease,
        key=series.key,
        device=series.device,
        leases=line.leases,
        seams=words_of(line.seams),
        share_ppm=parts(line.device_ms),
        request_ppm=line.request_ppm,
        limit_ppm=line.limit_ppm,
        waiting_ppm=parts(line.waiting_ms),
        throttled_ppm=parts(line.throttled_ms),
        memory_used_bytes=line.memory_used,
        memory_limit_bytes=line.memory_limit,
        launches=[round(count) for count in line.launches],
    )
