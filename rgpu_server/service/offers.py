"""What a server tells clients about its network: endpoints, identity, network devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netprobe.native import MAX_ENDPOINTS, schemes
from netprobe.netdev import net_devices, reachable_addresses
from rgpu_common.endpoints import (
    GrpcEndpoint,
    TcpEndpoint,
    TlsEndpoint,
    UcxEndpoint,
    UnixEndpoint,
)
from rgpu_common.v1 import network_pb2, network_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from grpc.aio import ServicerContext as Context

    from netprobe.identity import HostIdentity
    from netprobe.netdev import NetDevice
    from rgpu_common.endpoints import Endpoint

UNSPECIFIED = ("0.0.0.0", "::", "*")
_LOCAL_SCHEMES = ("unix", "shm")
# How many addresses are named, besides the client's own choice, if the server listens on all.
_MAX_ADDRESSES = 8


def offered(bound: Iterable[Endpoint], gateways: Sequence[str] = ()) -> tuple[str, ...]:
    """Returns the URIs by which clients can reach a server that listens on `bound`.

    gateways: URIs of transports that a gateway process serves.
    """
    known = schemes()
    found: list[str] = []
    for endpoint in bound:
        if isinstance(endpoint, UnixEndpoint):
            found += [f"{s}:{endpoint.path}" for s in _LOCAL_SCHEMES[::-1] if s in known]
        elif isinstance(endpoint, TcpEndpoint):
            scheme = _scheme(endpoint)
            found += [f"{scheme}:{where}" for where in _spread(endpoint.host, endpoint.port)]
    return tuple(dict.fromkeys([*found, *gateways]))[:MAX_ENDPOINTS]


def _scheme(endpoint: TcpEndpoint) -> str:
    if isinstance(endpoint, GrpcEndpoint):
        return "grpcs" if endpoint.secure else "grpc"
    if isinstance(endpoint, TlsEndpoint):
        return "tls"
    return "ucx" if isinstance(endpoint, UcxEndpoint) else "tcp"


def _spread(host: str, port: int) -> list[str]:
    here = str(TcpEndpoint(host, port))
    if host not in UNSPECIFIED:
        return [here]
    addresses = reachable_addresses(net_devices())[:_MAX_ADDRESSES]
    if host == "0.0.0.0":
        addresses = [address for address in addresses if ":" not in address]
    elif host == "::":
        addresses = [address for address in addresses if ":" in address]
    return [here, *(str(TcpEndpoint(address, port)) for address in addresses)]


class NetworkService(network_pb2_grpc.NetworkServiceServicer):
    """endpoints: the result of `offered`."""

    def __init__(self, identity: HostIdentity, endpoints: Sequence[str]) -> None:
        self._identity = identity
        self._endpoints = tuple(endpoints)

    async def ListEndpoints(
        self, request: network_pb2.ListEndpointsRequest, context: Context
    ) -> network_pb2.ListEndpointsResponse:
        who = self._identity
        return network_pb2.ListEndpointsResponse(
            endpoints=[
                network_pb2.Endpoint(uri=uri, local=uri.startswith(("unix:", "shm:")))
                for uri in self._endpoints
            ],
            identity=network_pb2.HostIdentity(server=who.server, nonce=who.nonce, host=who.host),
            devices=[device_message(device) for device in net_devices()],
        )


def device_message(device: NetDevice) -> network_pb2.NetDevice:
    """Returns a network device as a message."""
    return network_pb2.NetDevice(
        name=device.name,
        kind=network_pb2.NetKind.Value(f"NET_KIND_{device.kind.upper()}"),
        up=device.up,
        speed_mbps=device.speed_mbps,
        numa_node=device.numa_node,
        mtu=device.mtu,
        addresses=device.addresses,
        rdma_ports=[
            network_pb2.RdmaPort(
                device=port.device,
                port=port.port,
                active=port.active,
                link_layer=port.link_layer,
                speed_mbps=port.speed_mbps,
                numa_node=port.numa_node,
            )
            for port in device.rdma_ports
        ],
    )
