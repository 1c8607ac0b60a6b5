"""`rgpu serve`: builds the parts, runs them until a signal, takes them down again."""

from __future__ import annotations

import asyncio
import logging
import resource
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rgpu_common.clock import MonotonicClock
from rgpu_common.errors import ConfigError
from rgpu_server.conductor import Conductor, Equipment
from rgpu_server.core.events import Started, StopRequested
from rgpu_server.core.node import Node
from rgpu_server.devices import Inventory, take_inventory
from rgpu_server.observe.metrics import Metrics
from rgpu_server.observe.snapshot import Observer
from rgpu_server.service.api import start_api
from rgpu_server.service.frontdoor import FrontDoor
from rgpu_server.workers.compiler import Compilers
from rgpu_server.workers.pages import warm_up

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from rgpu_common.endpoints import Endpoint
    from rgpu_server.config import ServerConfig

log = logging.getLogger("rgpu.server")

_API_GRACE_SECONDS = 0.5
_END_MARGIN_SECONDS = 1.0


class Daemon:
    """One server.  `run` returns when a signal has stopped it."""

    def __init__(self, config: ServerConfig, inventory: Inventory) -> None:
        self._config = config
        self._inventory = inventory
        self._folder = Path(tempfile.mkdtemp(prefix="rgpu-"))
        self._stop = asyncio.Event()
        warm_up()
        emulated = any(served.emulated for served in inventory.served.values())
        # A cache of its own unless one is named: it dies with the daemon and is never out of date.
        named = config.emulated.cache
        cache = Path(named) if named else self._folder / "cache"
        self._compilers = Compilers(cache) if emulated else None
        node = Node(inventory.devices, config.policy, config.tenants)
        equipment = Equipment(inventory.options, inventory.served, config.limits, self._compilers)
        self.conductor = Conductor(node, MonotonicClock(), equipment)
        self.observer = Observer(self.conductor, inventory)
        api_path = str(self._folder / "api")
        self.door = FrontDoor(self.conductor.desk, api_path, config.limits)
        self._api_address = f"unix:{api_path}"
        self._end_sessions = False

    async def run(self, ready: Callable[[Sequence[Endpoint]], None]) -> None:
        """Serves; calls `ready` with the bound endpoints once sessions can be opened.

        Raises:
            ServerError: an address cannot be listened on.
            WorkerError: no compiler can be started.
        """
        metrics = None
        api = None
        try:
            bound = self.door.listen(self._config.listen)
            if self._config.metrics is not None:
                metrics = Metrics(self.observer, self.door.counters)
                where = await metrics.start(self._config.metrics)
                log.info("metrics on http://%s/metrics", where)
            if self._compilers is not None:
                self._compilers.start()
            api = await start_api(self.observer, self._api_address)
            self._on_signals()
            self.conductor.feed(Started())
            self.door.start()
            ready(bound)
            await self._stop.wait()
        finally:
            await self.door.stop()
            if metrics is not None:
                await metrics.close()
            if api is not None:
                await api.stop(_API_GRACE_SECONDS)
            await self._take_down()

    def stop(self, end_sessions: bool) -> None:
        """Begins the end.  Sessions that run go on unless they are to be ended."""
        self._end_sessions = self._end_sessions or end_sessions
        self._stop.set()

    def _on_signals(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.stop, False)
        loop.add_signal_handler(signal.SIGINT, self.stop, True)

    async def _take_down(self) -> None:
        conductor = self.conductor
        conductor.feed(StopRequested(self._end_sessions))
        await self._wait_for_workers()
        left = len(conductor.node.sessions)
        await conductor.close()
        shutil.rmtree(self._folder, ignore_errors=True)
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


def _check_cache(text: str) -> None:
    """A folder that cannot be used would only be noticed by the first kernel."""
    folder = Path(text)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigError(
            f"emulated.cache: {text!r} is not a folder that can be written to ({error.strerror})"
        ) from None


def serve(config: ServerConfig) -> None:
    """Runs a server in this process until a signal; errors as `Daemon.run`."""
    if config.emulated.cache:
        _check_cache(config.emulated.cache)
    inventory = take_inventory(config)
    # Each session holds a handful of descriptors here.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    async def main() -> None:
        daemon = Daemon(config, inventory)
        await daemon.run(lambda bound: _announce(inventory, bound))

    _run(main)


def _announce(inventory: Inventory, bound: Sequence[Endpoint]) -> None:
    devices = ", ".join(str(facts) for facts in inventory.facts.values())
    print(f"rgpu: serving {devices} on {', '.join(str(e) for e in bound)}", flush=True)


def _run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    try:
        import uvloop
    except ImportError:
        asyncio.run(main())
        return
    if sys.version_info >= (3, 11):
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())
    else:
        uvloop.install()
        asyncio.run(main())
