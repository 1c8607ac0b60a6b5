"""Says what the server has, for the manager."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from netprobe.identity import machine_name, read_boot_id
from netprobe.netdev import SOFTWARE, net_devices
from rgpu_common import release
from rgpu_common.clusters import MAX_NAME
from rgpu_common.mig import bare_name
from rgpu_common.units import PPM
from rgpu_common.v1 import agent_pb2, network_pb2
from rgpu_server.agent.location import location_of
from rgpu_server.agent.using import card_uses
from rgpu_server.core.model import LeaseState
from rgpu_server.service.offers import device_message

if TYPE_CHECKING:
    from rgpu_server.agent.settings import Cluster
    from rgpu_server.agent.yielding import Yielding
    from rgpu_server.conductor import Conductor
    from rgpu_server.core.lease import Lease
    from rgpu_server.core.node import Node
    from rgpu_server.devices import Inventory

_MOST_NETWORK_DEVICES = 64
# How often network devices are looked at.
_NETWORK_SECONDS = 10.0


class Standing(Struct, frozen=True):
    """What does not change while the server runs.

    server: the server's identity. address: for programs.
    """

    name: str
    server: bytes
    address: str
    rack: str
    zone: str

    @classmethod
    def of(cls, cluster: Cluster, server: bytes, address: str) -> Standing:
        """Returns what the configuration says; UsageError if the host name cannot name a node."""
        return cls(cluster.node_name, server, address, cluster.rack, cluster.zone)


class Reports:
    """Makes reports of the whole node."""

    def __init__(
        self,
        standing: Standing,
        conductor: Conductor,
        inventory: Inventory,
        yielding: Yielding,
    ) -> None:
        self._conductor = conductor
        self._node = node = conductor.node
        self._yielding = yielding
        self._clock = conductor.clock
        self._network: list[network_pb2.NetDevice] = []
        self._network_until = self._clock.now()
        self._still = agent_pb2.NodeReport(
            name=standing.name,
            server=standing.server,
            host=machine_name(read_boot_id()),
            address=standing.address,
            rack=standing.rack,
            zone=standing.zone,
            release=release(),
            cards=_cards(node, inventory),
        )

    def look(self) -> agent_pb2.NodeReport:
        """Returns the node as it is now, without a generation."""
        report = agent_pb2.NodeReport()
        report.CopyFrom(self._still)
        report.draining = self._node.standing.drain is not None or self._node.standing.stopping
        # An empty lease that nobody was granted makes room for a new one.
        self._yielding.look(self._node.leases)
        report.leases.extend(self._lease(x) for x in self._node.leases if not x.idle)
        if self._clock.now() >= self._network_until:
            self._network = _network()
            self._network_until = self._clock.now() + _NETWORK_SECONDS
        report.devices.extend(self._network)
        return report

    def stamp(self, report: agent_pb2.NodeReport) -> None:
        """Adds what is new in every report: how long reservations last, and what programs use."""
        now = self._clock.now()
        for held in report.leases:
            lease = self._node.leases.get(held.lease_id) if held.reserved else None
            if lease is not None and lease.ends_at is not None:
                held.left_seconds = max(lease.ends_at - now, 0.0)
        report.uses.extend(self.uses())

    def uses(self) -> list[agent_pb2.CardUse]:
        """Returns what programs use of each card now."""
        return card_uses(self._node.leases, self._conductor.pages)

    def _lease(self, lease: Lease) -> agent_pb2.HeldLease:
        held = _lease(lease)
        if held.request_id and lease.booked is not None:
            held.since, held.number = lease.booked.since, lease.booked.number
            held.priority = lease.quota.priority
            elastic = self._yielding.elastic(lease)
            if elastic is not None:
                held.elastic.CopyFrom(elastic)
        return held


def _network() -> list[network_pb2.NetDevice]:
    there = [device for device in net_devices() if device.up and device.kind not in SOFTWARE]
    return [device_message(device) for device in there[:_MOST_NETWORK_DEVICES]]


def _cards(node: Node, inventory: Inventory) -> list[agent_pb2.CardReport]:
    return [
        agent_pb2.CardReport(
            ordinal=device.ordinal,
            model=bare_name(device.model),
            uuid=inventory.facts[device.ordinal].uuid,
            memory_bytes=device.memory_bytes,
            pool=device.pool,
            location=location_of(inventory.facts[device.ordinal]),
            mig=inventory.facts[device.ordinal].mig,
            part_ppm=inventory.facts[device.ordinal].part_ppm,
        )
        for device in node.devices
    ]


def _lease(lease: Lease) -> agent_pb2.HeldLease:
    held = agent_pb2.HeldLease(
        ordinal=lease.device,
        tenant=lease.key.tenant,
        share_ppm=min(lease.amount.share_ppm, PPM),
        memory_bytes=lease.amount.memory_bytes,
        lease_id=lease.id,
        name=lease.name[:MAX_NAME],
    )
    booked = lease.booked
    # A lease that has ended takes room until its last session is gone, but is nobody's any more.
    if booked is not None and lease.state is LeaseState.ACTIVE:
        held.request_id, held.attempt = booked.request, booked.attempt
        held.whole, held.reserved, held.kept = booked.whole, booked.reserved, booked.kept
        held.cards = booked.cards if booked.reserved else 0
        held.neighbours.affinity = booked.affinity
        held.neighbours.anti_affinity = booked.anti_affinity
        held.neighbours.exclusion = booked.exclusion
    return held
