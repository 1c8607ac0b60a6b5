"""A daemon in this process, with fake workers, for tests of its outside behaviour."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from helpers.relay import INSIDE, enter

from rgpu_common.endpoints import Endpoint, TcpEndpoint, UnixEndpoint, parse_endpoint
from rgpu_common.wire.frame import HEADER_BYTES, FrameHeader, parse_header
from rgpu_common.wire.hello import Hello, encode_hello
from rgpu_server.config import Limits, ServerConfig
from rgpu_server.core.model import Device
from rgpu_server.core.policy import Policy, TenantPolicy
from rgpu_server.daemon import Daemon
from rgpu_server.devices import DeviceFacts, Inventory, Served
from rgpu_server.identity.settings import Identity
from rgpu_server.workers.process import WorkerOptions

GIB = 1 << 30
FAKE_WORKER = Path(__file__).with_name("fake_worker.py")
DEADLINE_SECONDS = 60


@dataclass
class Lane:
    """A connection of a client."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def frame(self) -> tuple[FrameHeader, bytes]:
        """Returns the next frame: header and head."""
        header = parse_header(await self.reader.readexactly(HEADER_BYTES))
        return header, await self.reader.readexactly(header.payload_bytes)

    async def ended(self) -> bool:
        """True when the other end has closed, with nothing more said."""
        return await self.reader.read() == b""

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


@dataclass
class RunningDaemon:
    """A running daemon."""

    daemon: Daemon
    endpoints: list[Endpoint]
    running: asyncio.Task[None]

    @property
    def tcp(self) -> TcpEndpoint:
        return next(e for e in self.endpoints if isinstance(e, TcpEndpoint))

    async def lane(self, first: bytes = b"", endpoint: Endpoint | None = None) -> Lane:
        """A connection on which `first` has been sent."""
        where = endpoint or self.tcp
        if where is INSIDE:
            lane = Lane(*await enter(self))
        elif isinstance(where, UnixEndpoint):
            lane = Lane(*await asyncio.open_unix_connection(where.path))
        else:
            lane = Lane(*await asyncio.open_connection(where.host, where.port))
        lane.writer.write(first)
        await lane.writer.drain()
        return lane

    async def hello(self, endpoint: Endpoint | None = None, **fields: object) -> Lane:
        """A connection on which HELLO has been said."""
        return await self.lane(encode_hello(Hello()._replace(**fields)), endpoint)  # type: ignore[arg-type]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Waits until the daemon's state fulfils `condition`, looking after each of its events."""
        changed = self.daemon.conductor.changed
        while not condition():
            changed.clear()
            await asyncio.wait_for(changed.wait(), DEADLINE_SECONDS)


Serve = Callable[..., AbstractAsyncContextManager[RunningDaemon]]


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    """`async with serve(mode="ok", policy=..., limits=...) as server:`"""

    @asynccontextmanager
    async def start(
        mode: str = "ok",
        policy: Policy | None = None,
        limits: Limits | None = None,
        tenants: dict[str, TenantPolicy] | None = None,
        identity: Identity | None = None,
    ) -> AsyncIterator[RunningDaemon]:
        program = [sys.executable, str(FAKE_WORKER), "--mode", mode]
        inventory = Inventory(
            devices=(Device(0, "fake", 8 * GIB, 2 * GIB),),
            served={0: Served(0, {"COLOUR": "blue"}, emulated=False)},
            options={"fake": WorkerOptions(program, Path("/nowhere"))},
            facts={0: DeviceFacts("emulated", "fake device", "fake-0", 8 * GIB)},
        )
        config = ServerConfig(
            listen=(parse_endpoint("127.0.0.1:0"), parse_endpoint(f"unix:{tmp_path}/s")),
            devices=(),
            policy=policy or Policy(warm_workers=1),
            limits=limits or Limits(),
            tenants=tenants or {},
            identity=identity or Identity(),
            metrics=TcpEndpoint("127.0.0.1", 0),
        )
        before = open_descriptors()
        daemon = Daemon(config, inventory)
        bound: asyncio.Future[list[Endpoint]] = asyncio.get_running_loop().create_future()
        running = asyncio.ensure_future(
            daemon.run(lambda endpoints: bound.set_result([*endpoints]))
        )
        await asyncio.wait([running, bound], return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
        server = RunningDaemon(daemon, bound.result(), running)
        try:
            yield server
        finally:
            daemon.stop(end_sessions=True)
            await asyncio.wait_for(running, DEADLINE_SECONDS)
        assert not list(daemon.conductor.workers)
        leaked = open_descriptors() - before
        assert not {d for d in leaked if "rgpu-lease" in d or "pidfd" in d}

    return start


def open_descriptors() -> set[str]:
    """Returns the open descriptors of this process as text."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.add(f"{name} {os.readlink(f'/proc/self/fd/{name}')}")
    return found
