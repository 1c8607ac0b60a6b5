"""Runs the device plugin until a signal."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from typing import TYPE_CHECKING

import grpc.aio
from msgspec import Struct

from rgpu_client.program_environment import library_path
from rgpu_cluster.kubelet.api import deviceplugin_pb2, deviceplugin_pb2_grpc
from rgpu_cluster.kubelet.library import put_library
from rgpu_cluster.kubelet.sockets import bind
from rgpu_cluster.kubelet.units.daemon import Daemon
from rgpu_cluster.kubelet.units.held import HeldFolder
from rgpu_cluster.kubelet.units.keeping import Keeper
from rgpu_cluster.kubelet.units.listing import KubeletList
from rgpu_cluster.kubelet.units.service import Units
from rgpu_common.claim_tokens import key_in
from rgpu_common.errors import ServerError
from rgpu_common.tasks import end

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path
    from typing import Any

    from rgpu_cluster.kubelet.units.vocabulary import Vocabulary
    from rgpu_common.endpoints import Endpoint

log = logging.getLogger("rgpu.device-plugin")

_VERSION = "v1beta1"
_LOOK_SECONDS = 1.0
_CALL_SECONDS = 10.0
_GRACE_SECONDS = 2.0


class UnitOptions(Struct, frozen=True):
    """The options of `rgpu device-plugin`."""

    vocabulary: Vocabulary
    server: Endpoint
    key_file: Path
    kubelet: Path
    state: Path
    library: Path


async def run(options: UnitOptions) -> None:
    """Serves the kubelet until SIGTERM or SIGINT.

    Raises:
        RgpuError: it cannot start.
    """
    plugin = _Plugin(options)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    tasks = [asyncio.create_task(one) for one in plugin.tasks()]
    try:
        await asyncio.wait(
            [asyncio.create_task(stop.wait()), *tasks], return_when=asyncio.FIRST_COMPLETED
        )
        for task in tasks:
            if task.done():
                task.result()
    finally:
        await end(tasks)
        await plugin.close()


class _Plugin:
    """All resources of a vocabulary, each at a socket of its own."""

    def __init__(self, options: UnitOptions) -> None:
        self._folder = options.kubelet / "device-plugins"
        self._servers: list[grpc.aio.Server] = []
        self._told: set[asyncio.Task[None]] = set()
        key = key_in(options.key_file)
        try:
            held = HeldFolder(options.state)
            library = str(put_library(library_path(), options.library))
        except OSError as error:
            raise ServerError(
                f"{error.filename} cannot be written ({error.strerror}): run the plugin as root, "
                "or name other folders with --state and --library"
            ) from None
        self._daemon = Daemon(options.server, self._changed)
        listed = KubeletList(options.kubelet / "pod-resources" / "kubelet.sock", options.vocabulary)
        self._keeper = Keeper(options.vocabulary, held, self._daemon, listed, key)
        self._units = [
            Units(resource, self._daemon, self._keeper, library)
            for resource in options.vocabulary.resources
        ]

    def tasks(self) -> list[Coroutine[Any, Any, None]]:
        return [self._daemon.run(), self._keeper.run(), self._register()]

    async def close(self) -> None:
        """Ends all servers and removes their sockets."""
        await asyncio.gather(*(server.stop(_GRACE_SECONDS) for server in self._servers))
        self._servers.clear()
        for units in self._units:
            self._socket(units).unlink(missing_ok=True)

    async def _register(self) -> None:
        """Registers with the kubelet, and again when a kubelet starts: it removes all sockets."""
        kubelet = self._folder / "kubelet.sock"
        known: tuple[int, int] | None = None
        while True:
            with contextlib.suppress(FileNotFoundError):
                status = kubelet.stat()
                if (status.st_ino, status.st_ctime_ns) != known and await self._registered(kubelet):
                    known = status.st_ino, status.st_ctime_ns
            await asyncio.sleep(_LOOK_SECONDS)

    async def _registered(self, kubelet: Path) -> bool:
        """Serves all resources anew and tells the kubelet; False: it does not answer."""
        await self.close()
        for units in self._units:
            server = grpc.aio.server()
            deviceplugin_pb2_grpc.add_DevicePluginServicer_to_server(units, server)
            bind(server, self._socket(units), "name the kubelet's folder with --kubelet-dir")
            await server.start()
            self._servers.append(server)
        async with grpc.aio.insecure_channel(f"unix:{kubelet}") as channel:
            stub = deviceplugin_pb2_grpc.RegistrationStub(channel)
            for units in self._units:
                request = deviceplugin_pb2.RegisterRequest(
                    version=_VERSION, endpoint=self._socket(units).name,
                    resource_name=units.resource.name, options=units.options(),
                )  # fmt: skip
                try:
                    await stub.Register(request, timeout=_CALL_SECONDS)
                except grpc.aio.AioRpcError as error:
                    log.warning("the kubelet at %s: %s", kubelet, error.details())
                    return False
        names = ", ".join(units.resource.name for units in self._units)
        print(f"rgpu: the kubelet has the units {names}", flush=True)
        return True

    def _changed(self) -> None:
        for units in self._units:
            task = asyncio.ensure_future(units.changed())
            self._told.add(task)
            task.add_done_callback(self._told.discard)

    def _socket(self, units: Units) -> Path:
        return self._folder / f"rgpu-{units.resource.name.rpartition('/')[2]}.sock"
