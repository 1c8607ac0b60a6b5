"""`python -m rgpu_server.tunnel`: the gateway process.  The daemon starts it.

Over the control socket it speaks as rgpu-gateway does (gateway/control.h): `isolation REPORT`,
`ready ENDPOINTS` or `error TEXT`, then `figures`.  When that socket closes the daemon has gone: the
gateway takes nothing new and ends with its last tunnel.
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
from dataclasses import dataclass
from typing import TYPE_CHECKING

# The API's channels have nothing to say beside ours.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

from rgpu_common.confine import confine_tunnel
from rgpu_common.endpoints import GrpcEndpoint, parse_endpoint
from rgpu_common.errors import ConfigError, ServerError
from rgpu_common.tunnel import process
from rgpu_common.tunnel.chunk import OPEN
from rgpu_server.http2.certificates import Certificates, Files
from rgpu_server.http2.server import Server
from rgpu_server.tunnel.bridge import ApiHandler
from rgpu_server.tunnel.callers import Callers
from rgpu_server.tunnel.door import Door
from rgpu_server.tunnel.listening import listen
from rgpu_server.tunnel.servicer import TunnelHandler

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rgpu_server.http2.call import Handler

log = logging.getLogger("rgpu.tunnel")

_REPORT_SECONDS = 1.0
_GRACE_SECONDS = 7 * 86400.0


@dataclass(frozen=True, slots=True)
class _Doors:
    """Where it listens, opened while that is still allowed.  listeners: and with what."""

    bound: list[GrpcEndpoint]
    listeners: list[tuple[socket.socket, Certificates | None]]

    def renew(self, files: Sequence[int]) -> None:
        """Takes certificates and key from open files."""
        shown = {id(one): one for _, one in self.listeners if one is not None}
        for certificates in shown.values():
            certificates.renew(files)


async def _serve(arguments: argparse.Namespace, control: socket.socket, doors: _Doors) -> None:
    control.setblocking(False)
    callers = Callers(arguments.tenant_uri)
    door = Door(arguments.door_fd)
    tunnels, api = TunnelHandler(door, callers), ApiHandler(door, callers)

    def find(path: str) -> Handler | None:
        if path == OPEN:
            return tunnels.open
        return api.answer if api.answers(path) else None

    server = Server(find)
    for listener, certificates in doors.listeners:
        server.listen(listener, certificates)
    # The daemon may have gone meanwhile.
    with contextlib.suppress(OSError):
        said = f"ready\t{' '.join(map(str, doors.bound))}"
        await asyncio.get_running_loop().sock_sendall(control, said.encode())
        hearing = asyncio.ensure_future(_hear(control, doors))
        try:
            await _report(control, lambda: tunnels.figures(server.refused), hearing)
        finally:
            hearing.cancel()
    # Tunnels go on; the port is free for the gateway of the next daemon.
    server.leave()
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(tunnels.none_left(), _GRACE_SECONDS)
    await server.close()
    await api.close()


async def _hear(control: socket.socket, doors: _Doors) -> None:
    """Takes certificates that the daemon passes, until it has gone; OSError is the same."""
    loop = asyncio.get_running_loop()
    while True:
        readable: asyncio.Future[None] = loop.create_future()
        loop.add_reader(control.fileno(), readable.set_result, None)
        try:
            await readable
        finally:
            loop.remove_reader(control.fileno())
        data, files, _, _ = socket.recv_fds(control, 64, 4)
        if not data:
            return
        if data == b"reload":
            doors.renew(files)
        for file in files:
            os.close(file)


async def _report(
    control: socket.socket, figures: Callable[[], str], gone: asyncio.Future[None]
) -> None:
    """Says the figures when they have changed, until the daemon has gone; OSError is the same."""
    said = ""
    while not (await asyncio.wait((gone,), timeout=_REPORT_SECONDS))[0]:
        now = figures()
        if now != said:
            # Without room it is said next time.
            with contextlib.suppress(BlockingIOError):
                control.send(f"figures\t{now}".encode())
                said = now
    gone.result()


def _open_doors(arguments: argparse.Namespace) -> _Doors:
    """Listens; ServerError, ConfigError."""
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
    doors = _Doors([], [])
    for endpoint in endpoints:
        assert isinstance(endpoint, GrpcEndpoint)
        listeners, real = listen(endpoint, doors.bound)
        doors.bound.append(real)
        doors.listeners.extend(
            (one, certificates if endpoint.secure else None) for one in listeners
        )
    return doors


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="rgpu_server.tunnel")
    parser.add_argument("--control-fd", type=int, required=True)
    parser.add_argument("--door-fd", type=int, required=True)
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
    control = socket.socket(fileno=arguments.control_fd)
    # Before there is an event loop: uvloop's would open a ring (io_uring) beside the list of calls.
    try:
        doors = _open_doors(arguments)
    except (ServerError, ConfigError) as error:
        control.send(f"error\t{error}".encode())
        return
    control.send(f"isolation\t{confine_tunnel()}".encode())
    process.run(_serve(arguments, control, doors))


main(sys.argv[1:])
