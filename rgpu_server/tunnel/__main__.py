"""`python -m rgpu_server.tunnel`: the gateway process.  The daemon starts it.

Over the control socket it speaks as rgpu-gateway does (gateway/control.h): `ready ENDPOINTS` or
`error TEXT`, then `figures`.  When that socket closes the daemon has gone: the gateway takes
nothing new and ends with its last tunnel.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import resource
import signal
import socket
import sys
from typing import TYPE_CHECKING

# The API's channels have nothing to say beside ours.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

from rgpu_common.endpoints import GrpcEndpoint, parse_endpoint
from rgpu_common.errors import ConfigError, ServerError
from rgpu_common.tunnel import process
from rgpu_common.tunnel.chunk import OPEN
from rgpu_server.http2.certificates import Certificates, Files
from rgpu_server.http2.server import Server
from rgpu_server.tunnel.bridge import ApiHandler
from rgpu_server.tunnel.callers import Callers
from rgpu_server.tunnel.listening import listen
from rgpu_server.tunnel.servicer import TunnelHandler

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rgpu_server.http2.call import Handler

log = logging.getLogger("rgpu.tunnel")

_REPORT_SECONDS = 1.0
_GRACE_SECONDS = 7 * 86400.0


async def _serve(arguments: argparse.Namespace) -> None:
    control = socket.socket(fileno=arguments.control_fd)
    control.setblocking(False)
    loop = asyncio.get_running_loop()
    callers = Callers(arguments.tenant_uri)
    tunnels, api = TunnelHandler(arguments.inner, callers), ApiHandler(arguments.inner, callers)

    def find(path: str) -> Handler | None:
        if path == OPEN:
            return tunnels.open
        return api.answer if api.answers(path) else None

    server = Server(find)
    try:
        bound = _listen_all(server, arguments)
        said = f"ready\t{' '.join(map(str, bound))}"
    except (ServerError, ConfigError) as error:
        said = f"error\t{error}"
    # The daemon may have gone meanwhile.
    with contextlib.suppress(OSError):
        await loop.sock_sendall(control, said.encode())
        if said.startswith("ready"):
            await _report(control, server, tunnels)
    # Tunnels go on; the port is free for the gateway of the next daemon.
    server.leave()
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(tunnels.none_left(), _GRACE_SECONDS)
    await server.close()
    await api.close()


async def _report(control: socket.socket, server: Server, tunnels: TunnelHandler) -> None:
    """Says the figures when they have changed, until the daemon has gone; OSError is the same."""
    said = ""
    gone = asyncio.ensure_future(asyncio.get_running_loop().sock_recv(control, 1))
    try:
        while not (await asyncio.wait((gone,), timeout=_REPORT_SECONDS))[0]:
            figures = tunnels.figures(server.refused)
            if figures != said:
                # Without room it is said next time.
                with contextlib.suppress(BlockingIOError):
                    control.send(f"figures\t{figures}".encode())
                    said = figures
        gone.result()
    finally:
        gone.cancel()


def _listen_all(server: Server, arguments: argparse.Namespace) -> list[GrpcEndpoint]:
    """Returns the endpoints with their real ports; ServerError, ConfigError."""
    endpoints = [parse_endpoint(text) for text in arguments.listen]
    certificates = None
    if any(isinstance(one, GrpcEndpoint) and one.secure for one in endpoints):
        certificates = Certificates(
            Files(
                arguments.certificate,
                arguments.key,
                arguments.client_ca,
                arguments.require_client_certificate,
            )
        )
    bound: list[GrpcEndpoint] = []
    for endpoint in endpoints:
        assert isinstance(endpoint, GrpcEndpoint)
        listeners, real = listen(endpoint, bound)
        bound.append(real)
        for listener in listeners:
            server.listen(listener, certificates if endpoint.secure else None)
    return bound


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="rgpu_server.tunnel")
    parser.add_argument("--control-fd", type=int, required=True)
    parser.add_argument("--inner", required=True)
    parser.add_argument("--listen", action="append", required=True)
    parser.add_argument("--certificate", default="")
    parser.add_argument("--key", default="")
    parser.add_argument("--client-ca", default="")
    parser.add_argument("--require-client-certificate", action="store_true")
    parser.add_argument("--tenant-uri", help="the tenant is what follows this in a certificate")
    arguments = parser.parse_args(argv)
    # It ends when the daemon ends it, or with its last tunnel.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    # Each tunnel needs two descriptors.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    process.run(_serve(arguments))


main(sys.argv[1:])
