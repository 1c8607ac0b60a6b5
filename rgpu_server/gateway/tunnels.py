"""The gateway of `grpc:` and `grpcs:` as the daemon has it: rgpu-gateway, and what it is told."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from rgpu_common.endpoints import GrpcEndpoint
from rgpu_common.errors import ServerError
from rgpu_server.gateway.keeper import CertificateKeeper, Gateway, limits_of
from rgpu_server.gateway.listening import listen

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from rgpu_common.endpoints import Endpoint
    from rgpu_server.config import ServerConfig
    from rgpu_server.gateway.keeper import House

# A gateway of the daemon before may just be letting go of the port.
_BIND_SECONDS = 3.0
_BIND_PAUSE_SECONDS = 0.1
# A proxy may open one for each tunnel.
_CONNECTIONS = 2048


class TunnelGateway(Gateway):
    """`start`, then `close`."""

    def __init__(self, config: ServerConfig, house: House) -> None:
        super().__init__("grpc", house)
        self._tls = config.tls
        self._certificates = CertificateKeeper(self._process, config.tls)
        self._listeners: list[socket.socket] = []
        self._words = [*limits_of(config), "--connections", str(_CONNECTIONS)]
        if config.identity.certificate == "uri":
            self._words += ["--tenant-uri", config.identity.uri_prefix]

    async def start(self, endpoints: Sequence[Endpoint]) -> list[Endpoint]:
        """Binds the addresses and returns them with their real ports.

        The daemon keeps the sockets, so that nobody is turned away while a gateway is replaced.

        Raises:
            ServerError: an address cannot be listened on, or the gateway does not start.
        """
        bound: list[GrpcEndpoint] = []
        for endpoint in endpoints:
            assert isinstance(endpoint, GrpcEndpoint)
            listeners, real = await _listen(endpoint, bound)
            bound.append(real)
            self._listeners += listeners
            option = "--grpcs-fd" if endpoint.secure else "--grpc-fd"
            for listener in listeners:
                self._words += [option, str(listener.fileno())]
        secure = any(endpoint.secure for endpoint in bound)
        self._process.passes = [listener.fileno() for listener in self._listeners]
        self._process.words = [*self._words, *(self._tls.words() if secure else ())]
        await self._process.start()
        self._process.keep()
        if secure:
            self._certificates.start()
        return [*bound]

    async def close(self) -> None:
        """Lets the gateway go: it takes nobody new and ends with its last tunnel."""
        await self._certificates.close()
        for listener in self._listeners:
            listener.close()
        await super().close()


async def _listen(
    endpoint: GrpcEndpoint, bound: Sequence[GrpcEndpoint]
) -> tuple[list[socket.socket], GrpcEndpoint]:
    """`listen`, again and again for a while; ServerError."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _BIND_SECONDS
    while True:
        try:
            return listen(endpoint, bound)
        except ServerError:
            if loop.time() >= deadline:
                raise
        await asyncio.sleep(_BIND_PAUSE_SECONDS)
