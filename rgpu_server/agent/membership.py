"""What acts for this server as a node: it joins a cluster, and takes orders for its leases."""

from __future__ import annotations

import contextlib
import socket
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct

from rgpu_common.clusters import manager_endpoint
from rgpu_common.endpoints import TcpEndpoint, UcxEndpoint
from rgpu_common.errors import UsageError
from rgpu_server.agent.joining import Joining
from rgpu_server.agent.measured import MeasuredPaths
from rgpu_server.agent.orders import Orders
from rgpu_server.agent.reports import Reports, Standing
from rgpu_server.agent.yielding import Yielding
from rgpu_server.service.control import Control
from rgpu_server.service.offers import UNSPECIFIED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rgpu_common.endpoints import Endpoint
    from rgpu_server.agent.settings import Cluster
    from rgpu_server.conductor import Conductor
    from rgpu_server.devices import Inventory


class Membership(Struct, frozen=True):
    """The parts of a server that the agent works with. server: the server's identity."""

    conductor: Conductor
    inventory: Inventory
    server: bytes


class Agency:
    """The orders, the reports and the measured paths of a server, which the manager's stream and
    the agent of a Kubernetes node share.
    """

    def __init__(self, cluster: Cluster, bound: Sequence[Endpoint], parts: Membership) -> None:
        self._cluster = cluster
        self._bound = bound
        self._parts = parts
        self.conductor = conductor = parts.conductor
        self.measured = MeasuredPaths()
        self._yielding = Yielding(conductor.pages.charged, conductor.clock)
        self.orders = Orders(Control(conductor), conductor.node, conductor.clock, self._yielding)

    @cached_property
    def reports(self) -> Reports:
        """What makes reports; UsageError: the node has no name, or no address for programs."""
        cluster = self._cluster
        manager = manager_endpoint(cluster.join) if cluster.join else None
        address = cluster.advertise or advertised(self._bound, manager)
        standing = Standing.of(cluster, self._parts.server, address)
        return Reports(standing, self.conductor, self._parts.inventory, self._yielding)

    def join(self) -> Joining | None:
        """Begins to join the cluster that the configuration names; None: it names no manager.

        Raises:
            UsageError: as `reports`.
        """
        if not self._cluster.join:
            return None
        manager = manager_endpoint(self._cluster.join)
        joining = Joining(
            manager, self._cluster.token_file, self.reports, self.orders, self.measured
        )
        self.conductor.listeners.append(joining.changed)
        joining.start()
        return joining


def advertised(bound: Sequence[Endpoint], manager: Endpoint | None) -> str:
    """Returns the address at which programs reach a server that listens on `bound`.

    Where the server listens on all addresses, that is the one from which it reaches the manager.
    """
    ports = [one for one in bound if isinstance(one, TcpEndpoint | UcxEndpoint)]
    ports.sort(key=lambda one: (isinstance(one, UcxEndpoint), one.loopback))
    if not ports or isinstance(ports[0], UcxEndpoint):
        raise UsageError(
            "no program of the cluster could reach this server: listen on HOST:PORT (--listen), "
            "or name the address of a proxy with --advertise"
        )
    first = ports[0]
    if first.host in UNSPECIFIED:
        first = first.at(_own_address(manager) or socket.gethostname(), first.port)
    return str(first)


def _own_address(manager: Endpoint | None) -> str:
    """Returns the address from which this machine reaches the manager, or ""."""
    if not isinstance(manager, TcpEndpoint):
        return ""
    with contextlib.suppress(OSError):
        family, kind, number, _, where = socket.getaddrinfo(
            manager.host, manager.port, type=socket.SOCK_DGRAM
        )[0]
        # A datagram socket that is connected sends nothing.
        with socket.socket(family, kind, number) as asked:
            asked.connect(where)
            return str(asked.getsockname()[0])
    return ""
