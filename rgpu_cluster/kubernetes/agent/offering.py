"""Publishes the devices of the node as they are now."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from rgpu_cluster.kubernetes.agent.health import State
from rgpu_cluster.kubernetes.agent.keeper import FULL_SECONDS
from rgpu_cluster.kubernetes.agent.publishing import published
from rgpu_cluster.kubernetes.api import CALL_ERRORS, sentence_of
from rgpu_cluster.kubernetes.slices import Place, Reach, devices_of
from rgpu_common.endpoints import TcpEndpoint, parse_endpoint
from rgpu_common.errors import EndpointError

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from rgpu_cluster.kubernetes.agent.config import AgentConfig
    from rgpu_cluster.kubernetes.agent.health import Health
    from rgpu_cluster.kubernetes.agent.publisher import Publisher
    from rgpu_cluster.kubernetes.slices import Device
    from rgpu_common.v1 import agent_pb2

log = logging.getLogger("rgpu.kubernetes")

# A server that has said nothing so long after the agent's start may be starting as well.
START_SECONDS = 10.0
_DEADLINE_SECONDS = 40.0
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 5.0
_EVERYWHERE = ("0.0.0.0", "::")
_NO_ZONE = "--offer zone needs the node's label topology.kubernetes.io/zone, or `rgpu serve --zone`"


class Offering:
    """degraded: whether the measured paths of the node have become much worse."""

    def __init__(self, config: AgentConfig, publisher: Publisher, health: Health) -> None:
        self.publisher = publisher
        self.degraded = False
        self._config = config
        self._health = health
        self._began = time.monotonic()
        self._heard: agent_pb2.NodeReport | None = None
        self._not_before = 0.0
        self._pause = _FIRST_PAUSE
        self._said = ""

    def fill(self, device: str) -> None:
        """Keeps new claims off a card for a while."""
        self._health.fill(device, time.time() + FULL_SECONDS)

    async def publish(self, report: agent_pb2.NodeReport | None, used: AbstractSet[str]) -> float:
        """Writes what has changed; returns in how many seconds to call it again.

        report: None: the server does not answer. The slices of the pool are known.
        """
        now = time.monotonic()
        self._heard = report or self._heard
        if report is None and now < self._quiet_until():
            return self._quiet_until() - now
        if now < self._not_before:
            return self._not_before - now
        try:
            why = await asyncio.wait_for(self._publish(report, used), _DEADLINE_SECONDS)
        except asyncio.TimeoutError:
            why = "the API server does not answer in time"
        except CALL_ERRORS as error:
            why = sentence_of(error)
        if why:
            if why != self._said:
                log.warning("the pool is not published now: %s", why)
            self._not_before = time.monotonic() + self._pause
            self._said, self._pause = why, min(2 * self._pause, _LONGEST_PAUSE)
            return self._pause
        if self._said:
            log.info("the pool is published again")
        self._said, self._pause = "", _FIRST_PAUSE
        change = self._health.next_change(time.time())
        return float("inf") if change is None else change - time.time()

    def _quiet_until(self) -> float:
        """Returns until when a server that has never said anything may be silent."""
        return self._began + START_SECONDS if self._heard is None else 0.0

    async def _publish(self, report: agent_pb2.NodeReport | None, used: AbstractSet[str]) -> str:
        """Returns why nothing can be published, else ""."""
        await self.publisher.look()
        place = self._place()
        if place is None:
            return _NO_ZONE
        before = published(self.publisher.found())
        reported: dict[str, Device] = {}
        if report is not None:
            reported = {device["name"]: device for device in devices_of(report, place)}
        state = State(report is not None and report.draining, self.degraded)
        devices = self._health.devices(reported, state, before, used, time.time())
        await self.publisher.publish(devices, place)
        return ""

    def _place(self) -> Place | None:
        """Returns where the devices are offered; None: that is not known."""
        reach = self._config.offer
        zone = self.publisher.zone or (self._heard.zone if self._heard is not None else "")
        if reach is Reach.ZONE and not zone:
            return None
        return Place(self._config.node_name, reach, zone, self._agent())

    def _agent(self) -> str:
        """Returns the address for credentials, as client nodes reach it; "" if there is none."""
        told = self._config.advertised
        if told is None:
            return ""
        if told.host in _EVERYWHERE and self._heard is not None:
            try:
                server = parse_endpoint(self._heard.address)
            except EndpointError:
                return str(told)
            if isinstance(server, TcpEndpoint):
                return str(type(told)(server.host, told.port))
        return str(told)
