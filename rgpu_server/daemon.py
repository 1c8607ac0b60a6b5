"""`rgpu serve`: builds the parts, runs them until a signal, takes them down again."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netprobe.identity import HostIdentity, identity_in
from rgpu_common.clock import MonotonicClock
from rgpu_common.endpoints import speaks_tls
from rgpu_common.errors import ServerError
from rgpu_common.tunnel import process
from rgpu_server.agent.membership import Agency, Membership
from rgpu_server.agent.node_orders import NodeOrderService
from rgpu_server.conductor import Conductor, Equipment
from rgpu_server.config_files import make_folder
from rgpu_server.core.events import Started, StopRequested
from rgpu_server.core.isolation import Process
from rgpu_server.core.node import Node
from rgpu_server.core.pool import device_library, seam_of
from rgpu_server.descriptors import fitted, raise_limit
from rgpu_server.devices import Inventory, strange_models, take_inventory
from rgpu_server.entrances import Entrances
from rgpu_server.gateway.keeper import House
from rgpu_server.handover import Handover
from rgpu_server.identity.access_tokens import existing_access_tokens
from rgpu_server.identity.authenticator import Authenticator
from rgpu_server.identity.guard import Guard
from rgpu_server.isolation import Isolation, isolation_of, worker_of
from rgpu_server.memory_watch import MemoryWatch
from rgpu_server.observe.audit import leave, listen
from rgpu_server.observe.collector import Collector, Sources
from rgpu_server.observe.lease_log import LeaseLog
from rgpu_server.observe.metrics import Metrics
from rgpu_server.observe.onlooking import Onlooking
from rgpu_server.observe.recorder import Recorder
from rgpu_server.observe.snapshot import Observer
from rgpu_server.reserved import ReservedFile
from rgpu_server.service.api import Services, start_api
from rgpu_server.service.control import Control
from rgpu_server.service.frontdoor import FrontDoor
from rgpu_server.service.observing import ObserveService
from rgpu_server.service.offers import NetworkService, offered
from rgpu_server.service.onlookers import Onlookers
from rgpu_server.service.probes import Probes, responder_report
from rgpu_server.service.taken import check_free
from rgpu_server.tokens.home import InUseError, open_state, state_path
from rgpu_server.tokens.link import TokenLink
from rgpu_server.tokens.protocol import Setup
from rgpu_server.web.opening import WebDoor, server_pages
from rgpu_server.workers.compiler import Compilers
from rgpu_server.workers.groups import ceiling_of, describe, details
from rgpu_server.workers.kernel_cache import forget_passing, kernel_cache
from rgpu_server.workers.pages import warm_up
from rgpu_server.workers.process import first_report

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence

    from rgpu_common.endpoints import Endpoint
    from rgpu_server.config import ServerConfig
    from rgpu_server.core.model import LeaseKey
    from rgpu_server.identity.claim_access import ClaimAccess
    from rgpu_server.tokens.home import StateFolder

log = logging.getLogger("rgpu.server")

_API_GRACE_SECONDS = 0.5
_END_MARGIN_SECONDS = 1.0
# With the first process of a PID namespace, as that of a container, all others there end.
_FIRST_PROCESS = 1


class Daemon:
    """One server.  `run` returns when a signal has stopped it."""

    def __init__(
        self, config: ServerConfig, inventory: Inventory, isolation: Isolation | None = None
    ) -> None:
        self._config = config
        self._inventory = inventory
        self.state = Path(config.state).absolute() if config.state else state_path(config.listen)
        self._state = _open_state(self.state, config)
        self._folder = self._state.own_folder()
        self._stop = asyncio.Event()
        self._end_sessions = False
        warm_up()
        self._cache = _cache(config, inventory, self.state)
        self._compilers: Compilers | None = None
        if self._cache is not None:
            self._compilers = Compilers(self._cache, config.emulated.compiler)
        self.isolation = isolation or isolation_of(config)
        self._claims = config.identity.claim_access()
        self.authenticator = _authenticator(config, self._claims)
        self.conductor = Conductor(
            _node(config, inventory),
            MonotonicClock(),
            self._equipment(),
        )
        self._link = TokenLink(self._state, _setup(config, inventory))
        uuids = {ordinal: facts.uuid for ordinal, facts in inventory.facts.items()}
        self._handover = Handover(self.conductor, self._link, uuids, config.enforcement.enforce)
        self.observer = Observer(self.conductor, inventory)
        self.recorder = _recorder(config, self.observer, self.state)
        self.conductor.report_to(self._handover, self.recorder)
        self._memory = MemoryWatch(self.conductor)
        self.log = LeaseLog(self._key_of, name_of=self._name_of)
        api_path = str(self._folder / "api")
        self._api_address = f"unix:{api_path}"
        self.probes = Probes(_identity(self.state), config.probe, self.isolation)
        leases = self.conductor.node.leases
        self._onlooking = Onlooking(leases.of, self.observer, self.recorder, inventory)
        onlookers = Onlookers(self.authenticator, leases.is_active, self._onlooking.look)
        desk = self.conductor.desk
        self.door = FrontDoor(desk, onlookers, self.probes, api_path, config.limits)
        house = House(self.authenticator, self.isolation, self.door.enter_inside)
        self._entrances = Entrances(config, self.door, house)
        self._web = WebDoor(config.web, config.tls, self.authenticator)

    def _equipment(self) -> Equipment:
        return Equipment(
            self._inventory.options,
            self._inventory.served,
            self._config.limits,
            self._compilers,
            self._config.emulated.compiler,
            self.authenticator,
            self.isolation,
        )

    async def run(self, ready: Callable[[Sequence[Endpoint]], None]) -> None:
        """Serves; calls `ready` with the bound endpoints once sessions can be opened.

        Raises:
            ServerError: an address cannot be listened on.
            WorkerError: no compiler or token loop can be started.
        """
        metrics = None
        api = None
        joining = None
        listen(self.log)
        try:
            bound = await self._open()
            self._handover.adopt(self._link.open())
            self._link.watch(self._handover)
            self.recorder.start()
            self._memory.start()
            guard = Guard(self.authenticator, self.door.callers)
            agency = Agency(self._config.cluster, bound, self._membership())
            services = self._services(agency)
            api = await start_api(services, self._api_address, guard)
            self._on_signals()
            self.conductor.feed(Started())
            self._keep_reservations()
            self.door.start()
            # Last of all, so that /health answers when sessions can be opened.
            metrics = await self._start_metrics()
            await self._web.open(server_pages(services))
            joining = agency.join()
            ready(bound)
            await self._stop.wait()
        finally:
            if joining is not None:
                await joining.close()
            await self._memory.close()
            await self._web.close()
            await self.door.stop()
            self.probes.close()
            self._onlooking.close()
            await self._entrances.close()
            if metrics is not None:
                await metrics.close()
            if api is not None:
                await api.stop(_API_GRACE_SECONDS)
            await self._take_down()
            leave(self.log)

    async def _open(self) -> list[Endpoint]:
        """Listens everywhere, and returns the bound endpoints."""
        bound = self._entrances.listen()
        if self._compilers is not None:
            self._compilers.start()
        bound += await self._entrances.start()
        bound += self._entrances.open_own_socket(bound)
        self.probes.endpoints = offered(bound)
        return bound

    def _key_of(self, lease_id: str) -> LeaseKey | None:
        lease = self.conductor.node.leases.get(lease_id)
        return None if lease is None else lease.key

    def _name_of(self, lease_id: str) -> str:
        lease = self.conductor.node.leases.get(lease_id)
        return "" if lease is None else lease.name

    def _membership(self) -> Membership:
        return Membership(self.conductor, self._inventory, self.probes.identity.server)

    def _services(self, agency: Agency) -> Services:
        network = NetworkService(self.probes.identity, self.probes.endpoints)
        orders = NodeOrderService(agency, self._claims)
        control = Control(self.conductor)
        observing = ObserveService(self.observer, self.recorder)
        return Services(self.observer, control, network, orders, self.log, observing)

    def collector(self) -> Collector:
        """Returns the collector of this server's metrics."""
        door, gateways = self.door.counters, self._entrances.figures
        sources = Sources(
            self.observer, self.recorder, door, self._link, self.authenticator, gateways,
            self.isolation,
        )  # fmt: skip
        return Collector(sources, self._config.observing.gpumanager)

    async def _start_metrics(self) -> Metrics | None:
        if self._config.metrics is None:
            return None
        metrics = Metrics(self.collector(), self.authenticator, self._health)
        where = await metrics.start(self._config.metrics)
        log.info("metrics on http://%s/metrics", where)
        return metrics

    def _health(self) -> tuple[int, str]:
        """Returns the status and the text of `/health`."""
        broken = self.observer.broken_libraries()
        if broken:
            return 503, f"workers do not start: {broken}\n"
        weak = "".join(f"weak isolation: {line}\n" for line in self.isolation.lines())
        return 200, f"ok\n{weak}"

    def _keep_reservations(self) -> None:
        """Takes over the reservations of an earlier server, before others take their room."""
        uuids = {ordinal: facts.uuid for ordinal, facts in self._inventory.facts.items()}
        kept = ReservedFile(self.state, self.conductor, uuids)
        kept.restore()
        self.conductor.listeners.append(kept.changed)

    def stop(self, end_sessions: bool) -> None:
        """Begins the end.  Sessions that run go on unless they are to be ended."""
        self._end_sessions = self._end_sessions or end_sessions
        self._stop.set()

    def _on_signals(self) -> None:
        loop = asyncio.get_running_loop()
        # Sessions that cannot go on are told why they end.
        loop.add_signal_handler(signal.SIGTERM, self.stop, os.getpid() == _FIRST_PROCESS)
        loop.add_signal_handler(signal.SIGINT, self.stop, True)
        loop.add_signal_handler(signal.SIGHUP, self._hang_up)

    def _hang_up(self) -> None:
        """SIGHUP: who serves with certificates wants them read again, else a terminal is gone."""
        if any([self._entrances.reload(), self._web.reload()]):
            return
        if any(speaks_tls(endpoint) for endpoint in self._config.listen):
            log.info("the gateway for grpcs: reads its certificates again when they change")
        else:
            self.stop(False)

    async def _take_down(self) -> None:
        conductor = self.conductor
        conductor.feed(StopRequested(self._end_sessions))
        await self._wait_for_workers()
        left = len(conductor.node.sessions)
        self.recorder.close()
        await conductor.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        if not self._config.emulated.cache:
            forget_passing(self._cache)
        await self._link.close(wait=not left)
        if left:
            log.info("%d sessions go on without the daemon until their clients end", left)

    async def _wait_for_workers(self) -> None:
        """Waits until warm workers, and sessions that are to end, are gone; bounded."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._config.policy.end_seconds + _END_MARGIN_SECONDS
        while loop.time() < deadline:
            node = self.conductor.node
            idle = any(pool.idle() for pool in node.pools.values())
            if not idle and not (self._end_sessions and len(node.sessions)):
                return
            self.conductor.changed.clear()
            try:
                await asyncio.wait_for(self.conductor.changed.wait(), deadline - loop.time())
            except asyncio.TimeoutError:
                break
        self.conductor.kill_idle()


def _array_pools(inventory: Inventory) -> list[str]:
    return [pool for pool in inventory.options if device_library(pool) != pool]


def _open_state(path: Path, config: ServerConfig) -> StateFolder:
    """Two servers at one port want one folder as well: then the port is the reason to give."""
    try:
        return open_state(path)
    except InUseError:
        check_free(config.listen)
        raise


def _cache(config: ServerConfig, inventory: Inventory, state: Path) -> Path | None:
    """Returns the folder of compiled kernels, or None if no device is emulated."""
    if not any(served.emulated for served in inventory.served.values()):
        return None
    return kernel_cache(config.emulated.cache, state, own=not config.state)


def _identity(state: Path) -> HostIdentity:
    try:
        return identity_in(state)
    except OSError as error:
        raise ServerError(
            f"the state folder {state} cannot be written to: {error.strerror or error}"
        ) from None


def _setup(config: ServerConfig, inventory: Inventory) -> Setup:
    enforcement = config.enforcement
    devices = tuple(inventory.facts) if enforcement.enforce else ()
    return Setup(devices, round(enforcement.max_kernel_seconds * 1000))


def _node(config: ServerConfig, inventory: Inventory) -> Node:
    policy = replace(config.policy, member=bool(config.cluster.join))
    return Node(inventory.devices, policy, config.tenants, _array_pools(inventory))


def _authenticator(config: ServerConfig, claims: ClaimAccess | None) -> Authenticator:
    """ConfigError if the tokens file cannot be used."""
    identity = config.identity
    known = existing_access_tokens(Path(identity.tokens)) if identity.tokens else None
    rules = identity.rules(certificates=bool(config.tls.client_ca), insecure=config.insecure)
    return Authenticator(rules, known, claims)


def _recorder(config: ServerConfig, observer: Observer, state: Path) -> Recorder:
    """ConfigError if the folder that the operator named cannot be used."""
    observing = config.observing
    folder = Path(observing.record).absolute() if observing.record else state
    if observing.record:
        make_folder("record.folder", folder)
    return Recorder(observer, folder, observing.record_bytes, config.enforcement.enforce)


def serve(config: ServerConfig, remarks: Sequence[str] = ()) -> None:
    """Runs a server in this process until a signal; errors as `Daemon.run`.

    remarks: sentences for the log, once it serves.
    """
    if config.emulated.cache:
        # Otherwise only the first kernel would notice a folder that cannot be used.
        make_folder("emulated.cache", Path(config.emulated.cache))
    if any(speaks_tls(endpoint) for endpoint in config.listen):
        config.tls.check()
    isolation = isolation_of(config)
    inventory = take_inventory(config)
    isolation.require(first_reports(inventory))
    for sentence in strange_models(config, inventory):
        log.warning("%s", sentence)
    config, lowered = fitted(config, raise_limit())
    if lowered:
        log.warning("%s", lowered)
    for endpoint in config.listen:
        if config.identity.tokens and not (endpoint.loopback or speaks_tls(endpoint)):
            log.warning(
                "access tokens come to %s unencrypted: a tls: address keeps them secret", endpoint
            )

    async def main() -> None:
        daemon = Daemon(config, inventory, isolation)
        await daemon.run(lambda bound: _announce(config, inventory, bound, remarks))

    run_loop(main)


def first_reports(inventory: Inventory) -> Iterator[tuple[Process, str]]:
    """What processes of each kind say before any of them serves anybody."""
    for library, options in inventory.options.items():
        # Workers for arrays start slowly, and each is judged by its own report.
        if device_library(library) == library:
            yield worker_of(library), first_report(options)
    yield Process.RESPONDER, responder_report()


def _announce(
    config: ServerConfig, inventory: Inventory, bound: Sequence[Endpoint], remarks: Sequence[str]
) -> None:
    devices = ", ".join(str(facts) for facts in inventory.facts.values())
    print(f"rgpu: serving {devices} on {', '.join(str(e) for e in bound)}", flush=True)
    for remark in remarks:
        log.info("%s", remark)
    ceilings = {
        kind: ceiling_of(
            emulated=one.emulated, arrays=bool(seam_of(kind)), grouped=one.groups is not None
        )
        for kind, one in inventory.options.items()
    }
    groups = next(iter(inventory.options.values())).groups  # all workers have the same
    log.info("%s", describe(groups, off=config.cgroup == "off"))
    log.debug("%s", details(groups, ceilings))


def run_loop(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Runs `main` to its end, on uvloop where it is installed."""
    process.run_loop(main())
