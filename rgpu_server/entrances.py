"""The ways into a server: the addresses that it listens on, and the gateways behind some."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_common.endpoints import GrpcEndpoint, TcpEndpoint, TlsEndpoint, UcxEndpoint
from rgpu_common.errors import ServerError
from rgpu_server.gateway.keeper import TlsGateway, UcxGateway
from rgpu_server.gateway.tunnels import TunnelGateway
from rgpu_server.service.own_socket import open_own_socket, own_socket_path
from rgpu_server.service.taken import check_free
from rgpu_server.tokens.home import base_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rgpu_common.endpoints import Endpoint
    from rgpu_server.config import ServerConfig
    from rgpu_server.gateway.figures import Figures
    from rgpu_server.gateway.keeper import House
    from rgpu_server.service.frontdoor import FrontDoor


class Entrances:
    """Clients come in at the door's own sockets, or over a gateway that brings them to the door.

    figures: of the gateways that there are, by transport.
    """

    def __init__(self, config: ServerConfig, door: FrontDoor, house: House) -> None:
        self.figures: dict[str, Figures] = {}
        self._config = config
        self._door = door
        self._house = house
        self._tls: TlsGateway | None = None
        self._ucx: UcxGateway | None = None
        self._tunnels: TunnelGateway | None = None

    def listen(self) -> list[Endpoint]:
        """Binds the addresses of the door and of the gateway for `tls:`, and returns them.

        Raises:
            ServerError: an address cannot be listened on.
        """
        bound: list[Endpoint] = []
        for endpoint in self._config.listen:
            if isinstance(endpoint, GrpcEndpoint | UcxEndpoint):
                continue  # bound by their gateways
            if isinstance(endpoint, TlsEndpoint):
                if self._tls is None:
                    self._tls = TlsGateway(self._config, self._house)
                    self.figures["tls"] = self._tls.figures
                bound.append(self._tls.listen(endpoint))
            else:
                bound += self._listen_at_door(endpoint)
        return bound

    async def start(self) -> list[Endpoint]:
        """Starts the gateways; returns the addresses that they have bound themselves.

        Raises:
            ServerError: an address cannot be listened on.
        """
        if self._tls is not None:
            await self._tls.start()
        return [*await self._listen_for_ucx(), *await self._listen_for_tunnels()]

    def open_own_socket(self, bound: Sequence[Endpoint]) -> list[Endpoint]:
        """For the programs of this machine, unless the operator has said how they come in."""
        ports = [one.port for one in bound if isinstance(one, TcpEndpoint)]
        if not self._config.socket or not ports or len(ports) < len(bound):
            return []
        path = own_socket_path(ports[0])
        listener = open_own_socket(path, base_folder())
        return [] if listener is None else [self._door.take(listener, str(path))]

    def reload(self) -> bool:
        """Has the gateway for `tls:` read its certificates again; False: there is none."""
        if self._tls is None:
            return False
        self._tls.reload()
        return True

    async def close(self) -> None:
        """Closes the gateways.  The door is its owner's to stop."""
        for gateway in (self._tls, self._ucx, self._tunnels):
            if gateway is not None:
                await gateway.close()

    def _listen_at_door(self, endpoint: Endpoint) -> list[Endpoint]:
        try:
            return self._door.listen([endpoint])
        except ServerError:
            check_free([endpoint])
            raise

    async def _listen_for_ucx(self) -> list[Endpoint]:
        asked = [e for e in self._config.listen if isinstance(e, UcxEndpoint)]
        if not asked:
            return []
        self._ucx = UcxGateway(self._config, self._house)
        self.figures["ucx"] = self._ucx.figures
        return [*await self._ucx.open(asked)]

    async def _listen_for_tunnels(self) -> list[Endpoint]:
        asked = [e for e in self._config.listen if isinstance(e, GrpcEndpoint)]
        if not asked:
            return []
        self._tunnels = TunnelGateway(self._config, self._house)
        self.figures["grpc"] = self._tunnels.figures
        return await self._tunnels.start(asked)
