"""Answers the kubelet's calls for claims, and tells it what plugin this is."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from rgpu_cluster.kubelet.api import dra_pb2, dra_pb2_grpc, registration_pb2, registration_pb2_grpc
from rgpu_cluster.kubelet.claims import ClaimName
from rgpu_cluster.kubelet.errors import PrepareError
from rgpu_cluster.kubernetes.names import DRIVER

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from grpc.aio import ServicerContext as Context

    from rgpu_cluster.kubelet.preparing import ForContainers

    Prepare = Callable[[ClaimName, Sequence[ClaimName]], Awaitable[Sequence[ForContainers]]]
    Unprepare = Callable[[ClaimName], Awaitable[None]]

log = logging.getLogger("rgpu.node-plugin")

# The kubelet waits 45 s.
_DEADLINE_SECONDS = 40.0
_LATE = (
    f"it took more than {_DEADLINE_SECONDS:g} s, because the API server or the agent of a GPU node "
    "is slow; the kubelet asks again"
)
PLUGIN, SERVICE = "DRAPlugin", "v1.DRAPlugin"


class Claims(dra_pb2_grpc.DRAPluginServicer):
    """prepare: None: the plugin is being uninstalled and prepares nothing any more."""

    def __init__(self, prepare: Prepare | None, unprepare: Unprepare) -> None:
        self._prepare_one = prepare
        self._unprepare_one = unprepare

    async def NodePrepareResources(
        self, request: dra_pb2.NodePrepareResourcesRequest, context: Context
    ) -> dra_pb2.NodePrepareResourcesResponse:
        del context
        claims = _names(request.claims)
        answers = await asyncio.gather(*(self._prepare(claim, claims) for claim in claims))
        uids = (claim.uid for claim in claims)
        return dra_pb2.NodePrepareResourcesResponse(claims=dict(zip(uids, answers, strict=True)))

    async def NodeUnprepareResources(
        self, request: dra_pb2.NodeUnprepareResourcesRequest, context: Context
    ) -> dra_pb2.NodeUnprepareResourcesResponse:
        del context
        claims = _names(request.claims)
        answers = await asyncio.gather(*(self._unprepare(claim) for claim in claims))
        uids = (claim.uid for claim in claims)
        return dra_pb2.NodeUnprepareResourcesResponse(claims=dict(zip(uids, answers, strict=True)))

    async def _prepare(
        self, claim: ClaimName, beside: Sequence[ClaimName]
    ) -> dra_pb2.NodePrepareResourceResponse:
        try:
            if self._prepare_one is None:
                raise PrepareError(
                    "`rgpu node-plugin --unprepare-all` runs on this node: start the node plugin "
                    "again, without --unprepare-all"
                )
            devices = await asyncio.wait_for(self._prepare_one(claim, beside), _DEADLINE_SECONDS)
        except (PrepareError, asyncio.TimeoutError) as error:
            sentence = str(error) or _LATE
            log.warning("%s is not prepared: %s", claim, sentence)
            return dra_pb2.NodePrepareResourceResponse(error=sentence)
        return dra_pb2.NodePrepareResourceResponse(devices=map(_device, devices))

    async def _unprepare(self, claim: ClaimName) -> dra_pb2.NodeUnprepareResourceResponse:
        try:
            await self._unprepare_one(claim)
        except PrepareError as error:
            log.warning("%s", error)
            return dra_pb2.NodeUnprepareResourceResponse(error=str(error))
        log.info("nothing of %s is prepared any more", claim)
        return dra_pb2.NodeUnprepareResourceResponse()


class Registration(registration_pb2_grpc.RegistrationServicer):
    """Both services are at one socket, so the answer names no endpoint."""

    async def GetInfo(
        self, request: registration_pb2.InfoRequest, context: Context
    ) -> registration_pb2.PluginInfo:
        del request, context
        return registration_pb2.PluginInfo(type=PLUGIN, name=DRIVER, supported_versions=[SERVICE])

    async def NotifyRegistrationStatus(
        self, request: registration_pb2.RegistrationStatus, context: Context
    ) -> registration_pb2.RegistrationStatusResponse:
        del context
        if request.plugin_registered:
            log.info("the kubelet has registered the plugin")
        else:
            log.error("the kubelet has not registered the plugin: %s", request.error)
        return registration_pb2.RegistrationStatusResponse()


def _names(claims: Sequence[dra_pb2.Claim]) -> list[ClaimName]:
    """Returns the claims, each once."""
    return [
        *{claim.uid: ClaimName(claim.namespace, claim.name, claim.uid) for claim in claims}.values()
    ]


def _device(one: ForContainers) -> dra_pb2.Device:
    return dra_pb2.Device(
        request_names=[one.request],
        pool_name=one.pool,
        device_name=one.device,
        cdi_device_ids=one.cdi_ids,
        share_id=one.share or None,
    )
