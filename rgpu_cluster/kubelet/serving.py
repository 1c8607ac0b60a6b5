"""Runs the plugin for claims until a signal."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import grpc.aio
from msgspec import Struct

from rgpu_client.program_environment import library_path
from rgpu_cluster.kubelet.api import dra_pb2_grpc, registration_pb2_grpc
from rgpu_cluster.kubelet.cdi import CdiFolder
from rgpu_cluster.kubelet.credentials import Agents
from rgpu_cluster.kubelet.dra import Claims, Registration
from rgpu_cluster.kubelet.files import on_disk
from rgpu_cluster.kubelet.library import put_library
from rgpu_cluster.kubelet.preparing import Places, Preparer
from rgpu_cluster.kubelet.reading import ApiCluster
from rgpu_cluster.kubelet.renewing import Renewer
from rgpu_cluster.kubelet.shelf import Shelf
from rgpu_cluster.kubelet.sockets import bind
from rgpu_cluster.kubelet.store import Store
from rgpu_cluster.kubernetes.api import open_client
from rgpu_cluster.kubernetes.names import DRIVER
from rgpu_common.errors import ConfigError, ServerError
from rgpu_common.tasks import end
from rgpu_common.units import counted

if TYPE_CHECKING:
    from rgpu_cluster.kubelet.claims import ClaimName

log = logging.getLogger("rgpu.node-plugin")

# Calls in progress have so long to end when the plugin stops.
_GRACE_SECONDS = 5.0
# Other authorities reach the containers within this time.
_LOOK_SECONDS = 10.0


class PluginOptions(Struct, frozen=True):
    """The options of `rgpu node-plugin`."""

    node: str
    kubelet: Path
    state: Path
    cdi: Path
    library: Path
    token_file: Path
    kubeconfig: str
    closing: bool


async def run(options: PluginOptions) -> None:
    """Serves the kubelet until SIGTERM or SIGINT.

    Raises:
        RgpuError: it cannot start.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        store = _store(options)
        if options.closing:
            await _remove_all(options, store, stop)
        else:
            await _serve_claims(options, store, stop)
    except OSError as error:
        raise ServerError(
            f"{error.filename} cannot be written ({error.strerror}): run the plugin as root, or "
            "name other folders with --state, --cdi-dir and --library"
        ) from None


async def _serve_claims(options: PluginOptions, store: Store, stop: asyncio.Event) -> None:
    library = str(put_library(library_path(), options.library))
    places = Places(options.node, library, store, os.environ.get("RGPU_TLS_NAME", ""))
    client = open_client(options.kubeconfig)
    try:
        agents = Agents(options.token_file, os.environ)
        preparer = Preparer(places, ApiCluster(client), agents)
        renewer = Renewer(preparer)
        preparer.changed = renewer.changed
        tasks = [
            asyncio.create_task(renewer.run()),
            asyncio.create_task(_keep_authorities(store)),
        ]
        try:
            await _serve(options, Claims(preparer.prepare, preparer.unprepare), stop)
        finally:
            await end(tasks)
    finally:
        await client.close()


async def _keep_authorities(store: Store) -> None:
    """Gives running containers the authorities of RGPU_TLS_CA again when that file has changed."""
    said = ""
    while True:
        try:
            count = store.shelf.renew_authorities()
            said = ""
            if count:
                log.info("the containers of %d claims have other authorities now", count)
        except (OSError, ConfigError) as error:
            if str(error) != said:
                log.warning("containers keep the authorities that they have: %s", error)
            said = str(error)
        await asyncio.sleep(_LOOK_SECONDS)


async def _remove_all(options: PluginOptions, store: Store, stop: asyncio.Event) -> None:
    """Removes all claims. Then it lets the kubelet remove its pods, which wait for this answer."""
    count = store.remove_all()
    had = counted(count, "prepared claim")
    print(f"rgpu: this node had {had}; nothing of what was prepared is left", flush=True)

    async def unprepare(claim: ClaimName) -> None:
        store.remove(claim)

    await _serve(options, Claims(None, unprepare), stop)


async def _serve(options: PluginOptions, claims: Claims, stop: asyncio.Event) -> None:
    path = options.kubelet / "plugins_registry" / f"{DRIVER}.sock"
    server = grpc.aio.server()
    dra_pb2_grpc.add_DRAPluginServicer_to_server(claims, server)
    registration_pb2_grpc.add_RegistrationServicer_to_server(Registration(), server)
    bind(server, path, "name the kubelet's folder with --kubelet-dir")
    await server.start()
    print(f"rgpu: node plugin of {options.node}, at {path}", flush=True)
    await stop.wait()
    # The kubelet sees that the socket goes, and pods wait until it is there again.
    path.unlink(missing_ok=True)
    await server.stop(_GRACE_SECONDS)


def _store(options: PluginOptions) -> Store:
    authorities = os.environ.get("RGPU_TLS_CA")
    shelf = Shelf(options.state, Path(authorities) if authorities else None)
    if on_disk(options.state):
        log.warning("credentials in %s may reach a disk: name a tmpfs with --state", options.state)
    return Store(shelf, CdiFolder(options.cdi))
