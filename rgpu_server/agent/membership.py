"""Joins a server to the cluster that its configuration names."""

from __future__ import annotations

import contextlib
import socket
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rgpu_common.clusters import manager_endpoint
from rgpu_common.endpoints import TcpEndpoint, UcxEndpoint
from rgpu_common.errors import UsageError
from rgpu_server.agent.joining import Joining
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


@dataclass(frozen=True, slots=True)
class Membership:
    """The parts of a server that the agent works with. server: the server's identity."""

    conductor: Conductor
    inventory: Inventory
    server: bytes


def join(cluster: Cluster, bound: Sequence[Endpoint], parts: Membership) -> Joining | None:
    """Begins to join; None if the configuration names no manager.

    Raises:
        UsageError: the node has no name, or no address for programs.
    """
    if not cluster.join:
        return None
    manager = manager_endpoint(cluster.join)
    conductor = parts.conductor
    address = cluster.advertise or advertised(bound, manager)
    standing = Standing.of(cluster, parts.server, address)
    yielding = Yielding(conductor.pages.charged, conductor.clock)
    reports = Reports(standing, conductor, parts.inventory, yielding)
    orders = Orders(Control(conductor), conductor.node, conductor.clock, yielding)
    joining = Joining(manager, cluster.token_file, reports, orders)
    conductor.on_change = joining.changed
    joining.start()
    return joining


def advertised(bound: Sequence[Endpoint], manager: Endpoint) -> str:
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
        first = replace(first, host=_own_address(manager) or socket.gethostname())
    return str(first)


def _own_address(manager: Endpoint) -> str:
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
