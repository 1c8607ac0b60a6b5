"""Serves one resource to the kubelet as a device plugin."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import grpc

from rgpu_client.settings import SEND_PTX
from rgpu_cluster.kubelet.api import deviceplugin_pb2, deviceplugin_pb2_grpc
from rgpu_cluster.kubelet.containers import CREDENTIALS, LIBRARY
from rgpu_cluster.kubelet.errors import PrepareError
from rgpu_cluster.kubelet.units.inventory import ids_of, preferred

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from grpc.aio import ServicerContext as Context

    from rgpu_cluster.kubelet.units.daemon import Daemon
    from rgpu_cluster.kubelet.units.keeping import Given, Keeper
    from rgpu_cluster.kubelet.units.vocabulary import Resource

log = logging.getLogger("rgpu.device-plugin")

_HEALTHY, _UNHEALTHY = "Healthy", "Unhealthy"


class Units(deviceplugin_pb2_grpc.DevicePluginServicer):
    """One resource. library: the folder of this node with the driver library."""

    def __init__(self, resource: Resource, daemon: Daemon, keeper: Keeper, library: str) -> None:
        self.resource = resource
        self._daemon = daemon
        self._keeper = keeper
        self._library = library
        self._changed = asyncio.Condition()
        self._ids: tuple[str, ...] = ()
        self._number = 0

    async def changed(self) -> None:
        """Tells the kubelet what there is now."""
        async with self._changed:
            self._number += 1
            self._changed.notify_all()

    def options(self) -> deviceplugin_pb2.DevicePluginOptions:
        return deviceplugin_pb2.DevicePluginOptions(
            pre_start_required=self.resource.leads, get_preferred_allocation_available=True
        )

    async def GetDevicePluginOptions(
        self, request: deviceplugin_pb2.Empty, context: Context
    ) -> deviceplugin_pb2.DevicePluginOptions:
        del request, context
        return self.options()

    async def ListAndWatch(
        self, request: deviceplugin_pb2.Empty, context: Context
    ) -> AsyncIterator[deviceplugin_pb2.ListAndWatchResponse]:
        del request, context
        said: deviceplugin_pb2.ListAndWatchResponse | None = None
        while True:
            number, now = self._number, self._now()
            if now != said:
                said = now
                yield now
            async with self._changed:
                while self._number == number:
                    await self._changed.wait()

    async def GetPreferredAllocation(
        self, request: deviceplugin_pb2.PreferredAllocationRequest, context: Context
    ) -> deviceplugin_pb2.PreferredAllocationResponse:
        del context
        rows = [
            deviceplugin_pb2.ContainerPreferredAllocationResponse(
                deviceIDs=preferred(
                    self.resource, one.available_deviceIDs, one.must_include_deviceIDs,
                    one.allocation_size,
                )
            )
            for one in request.container_requests
        ]  # fmt: skip
        return deviceplugin_pb2.PreferredAllocationResponse(container_responses=rows)

    async def Allocate(
        self, request: deviceplugin_pb2.AllocateRequest, context: Context
    ) -> deviceplugin_pb2.AllocateResponse:
        rows = []
        for one in request.container_requests:
            made = deviceplugin_pb2.ContainerAllocateResponse()
            if self.resource.leads:
                try:
                    made = self._given(await self._keeper.allocate(one.devices_ids))
                except PrepareError as error:
                    await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
            rows.append(made)
        return deviceplugin_pb2.AllocateResponse(container_responses=rows)

    async def PreStartContainer(
        self, request: deviceplugin_pb2.PreStartContainerRequest, context: Context
    ) -> deviceplugin_pb2.PreStartContainerResponse:
        try:
            await self._keeper.start(request.devices_ids)
        except PrepareError as error:
            log.warning("a container does not start: %s", error)
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        return deviceplugin_pb2.PreStartContainerResponse()

    def _now(self) -> deviceplugin_pb2.ListAndWatchResponse:
        """Returns all units; those of a server that is away are not healthy."""
        report = self._daemon.report
        if report is not None:
            self._ids = tuple(ids_of(report.cards, self.resource))
        health = _HEALTHY if report is not None and not report.draining else _UNHEALTHY
        devices = [deviceplugin_pb2.Device(ID=one, health=health) for one in self._ids]
        return deviceplugin_pb2.ListAndWatchResponse(devices=devices)

    def _given(self, given: Given) -> deviceplugin_pb2.ContainerAllocateResponse:
        mounts = {LIBRARY: self._library, CREDENTIALS: str(given.credentials)}
        return deviceplugin_pb2.ContainerAllocateResponse(
            envs={
                **SEND_PTX,
                "LD_LIBRARY_PATH": LIBRARY,
                "RGPU_SERVER": given.server,
                "RGPU_LEASE": given.lease,
                "RGPU_DEVICE": given.devices,
                "RGPU_TOKEN_FILE": f"{CREDENTIALS}/token",
            },
            mounts=[
                deviceplugin_pb2.Mount(container_path=theirs, host_path=ours, read_only=True)
                for theirs, ours in mounts.items()
            ],
        )
