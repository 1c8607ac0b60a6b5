"""Prometheus metrics and health on a small HTTP port."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING, Any

from rgpu_common.endpoints import TcpEndpoint
from rgpu_common.errors import MissingPartError, ServerError
from rgpu_server.core.model import PPM

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

    from rgpu_server.observe.snapshot import LeaseView, Observer
    from rgpu_server.service.frontdoor import DoorCounters

_REQUEST_SECONDS = 5.0
_REQUEST_BYTES = 8192
_LEASE_LABELS = ("tenant", "lease", "key", "device")

# name, help, value of a lease; a counter's name ends in _total.
_PER_LEASE: tuple[tuple[str, str, Any], ...] = (
    ("rgpu_memory_limit_bytes", "Memory limit of a lease.", lambda v: v.lease.quota.memory_bytes),
    ("rgpu_memory_used_bytes", "Memory that a lease holds.", lambda v: v.counters.used_bytes),
    ("rgpu_memory_peak_bytes", "Most memory that a lease held.", lambda v: v.counters.peak_bytes),
    (
        "rgpu_share_request_ratio",
        "Share guaranteed.",
        lambda v: v.lease.quota.share_request_ppm / PPM,
    ),
    ("rgpu_share_limit_ratio", "Cap on the share.", lambda v: v.lease.quota.share_limit_ppm / PPM),
    ("rgpu_memory_refused_total", "Allocations refused.", lambda v: v.counters.refused),
    ("rgpu_launches_total", "Kernels launched.", lambda v: v.counters.launches),
    ("rgpu_copied_bytes_total", "Bytes copied.", lambda v: v.counters.copied_bytes),
    ("rgpu_busy_seconds_total", "Device time used.", lambda v: v.counters.busy_ns / 1e9),
)


class Metrics:
    """Serves `/metrics` and `/health` until it is closed."""

    def __init__(self, observer: Observer, door: DoorCounters) -> None:
        try:
            import prometheus_client
        except ImportError:
            raise MissingPartError(
                "metrics need the package prometheus-client: python -m pip install "
                "'rgpu-cuda[server]'"
            ) from None
        self._render = prometheus_client.generate_latest
        self._registry = prometheus_client.CollectorRegistry()
        self._registry.register(_Collector(observer, door))
        self._observer = observer
        self._server: asyncio.Server | None = None

    async def start(self, endpoint: TcpEndpoint) -> TcpEndpoint:
        """Listens and returns the endpoint with its real port; ServerError if it is taken."""
        try:
            self._server = await asyncio.start_server(self._serve, endpoint.host, endpoint.port)
        except OSError as error:
            number = error.errno or 0  # below 0: of the name service
            reason = os.strerror(number) if number > 0 else error.strerror or str(error)
            raise ServerError(f"cannot serve metrics on {endpoint}: {reason}") from None
        return TcpEndpoint(endpoint.host, self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stops listening."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(
                asyncio.IncompleteReadError,
                asyncio.LimitOverrunError,
                asyncio.TimeoutError,
                OSError,
            ):
                request = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _REQUEST_SECONDS)
                writer.write(self._answer(request[:_REQUEST_BYTES]))
                await asyncio.wait_for(writer.drain(), _REQUEST_SECONDS)
        finally:
            writer.close()

    def _answer(self, request: bytes) -> bytes:
        method, _, rest = request.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method != b"GET":
            return _http(405, "text/plain", b"only GET is served\n")
        if path == b"/metrics":
            return _http(200, "text/plain; version=0.0.4", self._render(self._registry))
        if path in (b"/health", b"/healthz"):
            pools = self._observer.conductor.node.pools.values()
            broken = [pool.library for pool in pools if pool.broken]
            if broken:
                return _http(503, "text/plain", f"workers do not start: {broken}\n".encode())
            return _http(200, "text/plain", b"ok\n")
        return _http(404, "text/plain", b"there are /metrics and /health\n")


class _Collector:
    def __init__(self, observer: Observer, door: DoorCounters) -> None:
        self._observer = observer
        self._door = door

    def collect(self) -> Iterator[Metric]:
        yield from self._devices()
        yield from self._leases(self._observer.leases())
        yield from self._server()

    def _devices(self) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        size = GaugeMetricFamily(
            "rgpu_device_memory_bytes", "Memory of a device.", labels=["device"]
        )
        leased = GaugeMetricFamily(
            "rgpu_device_leased_memory_bytes", "Sum of the leases' limits.", labels=["device"]
        )
        for view in self._observer.devices():
            size.add_metric([str(view.ordinal)], view.facts.memory_bytes)
            leased.add_metric([str(view.ordinal)], view.leased_bytes)
        yield size
        yield leased

    def _leases(self, views: list[LeaseView]) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for name, text, value in _PER_LEASE:
            family = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            metric = family(name, text, labels=_LEASE_LABELS)
            for view in views:
                key = view.lease.key
                metric.add_metric(
                    [key.tenant, view.lease.id, key.name, str(view.lease.device)], value(view)
                )
            yield metric

    def _server(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        sessions = GaugeMetricFamily("rgpu_sessions", "Sessions by state.", labels=["state"])
        for state, count in self._observer.session_states().items():
            sessions.add_metric([state.value], count)
        yield sessions
        workers = GaugeMetricFamily("rgpu_workers", "Worker processes.", labels=["library"])
        for pool in self._observer.conductor.node.pools.values():
            workers.add_metric([pool.library], len(pool))
        yield workers
        conductor = self._observer.conductor
        for name, text, value in (
            ("rgpu_sessions_opened_total", "Sessions opened.", conductor.sessions_opened),
            ("rgpu_sessions_refused_total", "Sessions refused.", conductor.refusals),
            ("rgpu_connections_total", "Connections accepted.", self._door.connections),
            ("rgpu_handshakes_refused_total", "Strangers refused.", self._door.refused),
            ("rgpu_handshakes_late_total", "Handshakes not in time.", self._door.late),
            ("rgpu_connections_dropped_total", "Connections over a limit.", self._door.dropped),
        ):
            yield CounterMetricFamily(name, text, value=value)


def _http(status: int, kind: str, body: bytes) -> bytes:
    reason = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}
    head = (
        f"HTTP/1.1 {status} {reason[status]}\r\nContent-Type: {kind}; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
