"""Turns what the server knows into families of Prometheus metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from rgpu_common import release
from rgpu_common.wire.resume import Lane
from rgpu_common.wire.worker import Ring
from rgpu_server.observe.families import COUNTED, DEVICE, LEASE_LABELS, SHOWN, TENANT_LABELS
from rgpu_server.observe.gateways import gateway_metrics
from rgpu_server.observe.gpumanager import gpumanager_metrics
from rgpu_server.observe.token_loop import token_loop_metrics

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from prometheus_client.core import Metric

    from rgpu_server.gateway.figures import Figures
    from rgpu_server.identity.authenticator import Authenticator
    from rgpu_server.isolation import Isolation
    from rgpu_server.observe.recorder import Recorder
    from rgpu_server.observe.snapshot import LeaseView, Observer
    from rgpu_server.service.frontdoor import DoorCounters
    from rgpu_server.session_counts import SessionCounts
    from rgpu_server.tokens.link import TokenLink


class Sources(Struct, frozen=True):
    """Where the values come from.  gateways: by transport."""

    observer: Observer
    recorder: Recorder
    door: DoorCounters
    link: TokenLink
    authenticator: Authenticator
    gateways: Mapping[str, Figures]
    isolation: Isolation


class Collector:
    """What prometheus_client asks at each scrape."""

    def __init__(self, sources: Sources, gpumanager: bool) -> None:
        self._sources = sources
        self._gpumanager = gpumanager

    def collect(self) -> Iterator[Metric]:
        sources = self._sources
        views = sources.recorder.look()
        yield from self._devices()
        yield from self._leases(views)
        yield from self._tenants(views)
        yield from self._server()
        yield from token_loop_metrics(sources.link, sources.observer, sources.recorder.loop_totals)
        yield from gateway_metrics(sources.gateways)
        if self._gpumanager:
            yield from gpumanager_metrics(views)

    def _devices(self) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily

        devices = self._sources.observer.devices()
        about = InfoMetricFamily("rgpu_device", "What a device is.", labels=["device"])
        for view in devices:
            facts = {"name": view.facts.name, "uuid": view.facts.uuid, "pool": view.pool}
            about.add_metric([str(view.ordinal)], facts)
        yield about
        for row in DEVICE:
            metric = GaugeMetricFamily(row.name, row.help, labels=["device"])
            for view in devices:
                metric.add_metric([str(view.ordinal)], row.value(view))
            yield metric

    def _leases(self, views: list[LeaseView]) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        totals = self._sources.recorder.totals
        for row in COUNTED:
            counter = CounterMetricFamily(f"rgpu_{row.name}_total", row.help, labels=LEASE_LABELS)
            for view in views:
                counter.add_metric(_labels(view), row.value(totals.lease(view.lease.id)))
            yield counter
        for shown in SHOWN:
            gauge = GaugeMetricFamily(f"rgpu_{shown.name}", shown.help, labels=LEASE_LABELS)
            for view in views:
                gauge.add_metric(_labels(view), shown.value(view))
            yield gauge

    def _tenants(self, views: list[LeaseView]) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        tenants = self._sources.recorder.totals.tenants
        for row in COUNTED:
            text = f"Of all leases of a tenant, also ended ones: {row.help}"
            name = f"rgpu_tenant_{row.name}_total"
            counter = CounterMetricFamily(name, text, labels=TENANT_LABELS)
            for (tenant, device), amounts in tenants.items():
                counter.add_metric([tenant, str(device)], row.value(amounts))
            yield counter
        for shown in (row for row in SHOWN if row.of_tenant):
            text = f"Of all leases of a tenant: {shown.help}"
            gauge = GaugeMetricFamily(f"rgpu_tenant_{shown.name}", text, labels=TENANT_LABELS)
            sums = dict.fromkeys(tenants, 0.0)
            for view in views:
                sums[view.lease.key.tenant, view.lease.device] += shown.value(view)
            for (tenant, device), value in sums.items():
                gauge.add_metric([tenant, str(device)], value)
            yield gauge
        yield self._tenant_sessions(views)

    def _tenant_sessions(self, views: list[LeaseView]) -> Metric:
        from prometheus_client.core import GaugeMetricFamily

        name = "rgpu_tenant_sessions"
        metric = GaugeMetricFamily(name, "Sessions of a tenant.", labels=TENANT_LABELS)
        sums = dict.fromkeys(self._sources.recorder.totals.tenants, 0)
        for view in views:
            sums[view.lease.key.tenant, view.lease.device] += len(view.lease.slots)
        for (tenant, device), count in sums.items():
            metric.add_metric([tenant, str(device)], count)
        return metric

    def _server(self) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily

        yield InfoMetricFamily("rgpu_build", "The running release.", value={"version": release()})
        draining = float(self._sources.observer.node().draining)
        yield GaugeMetricFamily("rgpu_draining", "1: nothing new is taken.", value=draining)
        yield from self._sessions()
        yield from self._connections()
        yield self._workers()
        yield from self._identity()
        yield self._weakened()

    def _sessions(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        observer = self._sources.observer
        sessions = GaugeMetricFamily("rgpu_sessions", "Sessions by state.", labels=["state"])
        for state, count in observer.session_states().items():
            sessions.add_metric([state.value], count)
        yield sessions
        over = GaugeMetricFamily(
            "rgpu_transport_sessions", "Sessions by transport.", labels=["transport"]
        )
        for transport, count in observer.session_transports().items():
            over.add_metric([transport], count)
        yield over
        seams = GaugeMetricFamily("rgpu_seam_sessions", "Sessions by seam.", labels=["seam"])
        for seam, count in observer.session_seams().items():
            seams.add_metric([seam], count)
        yield seams
        counts = observer.session_counts()
        for name, text, value in (
            ("rgpu_sessions_opened_total", "Sessions opened.", counts.opened),
            ("rgpu_sessions_refused_total", "Sessions refused.", counts.refused),
            (
                "rgpu_resumes_refused_total",
                "Connections for sessions that are not there, or not theirs.",
                observer.resumes_refused(),
            ),
            ("rgpu_resent_bytes_total", "Bytes sent again.", counts.resent_bytes),
        ):
            yield CounterMetricFamily(name, text, value=value)
        yield from _lanes(counts)
        yield from _rings(counts)

    def _connections(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily

        door = self._sources.door
        for name, text, value in (
            ("rgpu_connections_total", "Connections accepted.", door.connections),
            ("rgpu_handshakes_refused_total", "Strangers refused.", door.refused),
            ("rgpu_handshakes_late_total", "Handshakes not in time.", door.late),
            ("rgpu_connections_dropped_total", "Connections over a limit.", door.dropped),
        ):
            yield CounterMetricFamily(name, text, value=value)
        arrived = CounterMetricFamily(
            "rgpu_transport_connections_total",
            "Connections of lanes and of the API that made themselves known.",
            labels=["transport"],
        )
        for transport, count in door.by_transport.items():
            arrived.add_metric([transport], count)
        yield arrived

    def _workers(self) -> Metric:
        from prometheus_client.core import GaugeMetricFamily

        metric = GaugeMetricFamily("rgpu_workers", "Worker processes.", labels=["library"])
        for library, count in self._sources.observer.workers().items():
            metric.add_metric([library], count)
        return metric

    def _weakened(self) -> Metric:
        from prometheus_client.core import GaugeMetricFamily

        metric = GaugeMetricFamily(
            "rgpu_isolation_weakened",
            "1: processes of this kind do without a measure of isolation, as the operator allows.",
            labels=["process", "measure"],
        )
        for process, measure in self._sources.isolation.weakened:
            metric.add_metric([process.value, measure], 1)
        return metric

    def _identity(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily

        authenticator = self._sources.authenticator
        for name, text, label, counts in (
            (
                "rgpu_identity_admitted_total",
                "Callers that were admitted.",
                "proof",
                authenticator.admitted,
            ),
            (
                "rgpu_identity_refused_total",
                "Callers that were refused.",
                "asked",
                authenticator.refused,
            ),
        ):
            metric = CounterMetricFamily(name, text, labels=[label])
            for value, count in counts.items():
                metric.add_metric([value], count)
            yield metric
        name = "rgpu_identity_unanswered_total"
        text = "Of those not let in: too many from one address to be answered and noted."
        yield CounterMetricFamily(name, text, value=authenticator.unanswered)


def _labels(view: LeaseView) -> list[str]:
    key = view.lease.key
    return [key.tenant, view.lease.id, key.name, view.lease.name, str(view.lease.device)]


def _lanes(counts: SessionCounts) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily

    for name, text, by_lane in (
        (
            "rgpu_resumes_total",
            "Lanes that got a connection after a cut.",
            counts.resumes,
        ),
        ("rgpu_moves_total", "Lanes that went over to another connection.", counts.moves),
    ):
        family = CounterMetricFamily(name, text, labels=["lane"])
        for lane in Lane:
            family.add_metric([lane.name.lower()], by_lane[lane])
        yield family


def _rings(counts: SessionCounts) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily

    text = "Sessions whose commands come through shared memory."
    yield CounterMetricFamily("rgpu_shm_sessions_total", text, value=counts.rings[Ring.USED])
    text = "Sessions that asked for shared memory and went on over the socket."
    family = CounterMetricFamily("rgpu_shm_fallbacks_total", text, labels=["reason"])
    for ring in (Ring.NOT_LOCAL, Ring.NOT_MADE, Ring.DECLINED):
        family.add_metric([ring.name.lower()], counts.rings[ring])
    yield family
