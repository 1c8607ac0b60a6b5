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
import signal
import socket
import sys
from typing import TYPE_CHECKING

os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc

from rgpu_common.endpoints import GrpcEndpoint, TcpEndpoint, parse_endpoint
from rgpu_common.errors import ConfigError, ServerError
from rgpu_common.tunnel import process
from rgpu_common.tunnel.chunk import MAX_DATA_BYTES, MAX_MESSAGE_BYTES
from rgpu_server.tunnel.bridge import ApiHandler
from rgpu_server.tunnel.callers import Callers, Files, credentials
from rgpu_server.tunnel.servicer import TunnelHandler

if TYPE_CHECKING:
    from collections.abc import Sequence

log = logging.getLogger("rgpu.tunnel")

MAX_CALLS = 4096
_PING_MS = 5000
_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # A message of bulk in few frames.
    ("grpc.http2.max_frame_size", MAX_DATA_BYTES),
    # Finds a silent neighbour; the heartbeats inside a tunnel go from end to end.
    ("grpc.keepalive_time_ms", _PING_MS),
    ("grpc.keepalive_timeout_ms", _PING_MS),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 1000),
    ("grpc.so_reuseport", 0),
    # Who begins no call makes room and connects again.
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_connection_idle_ms", 60_000),
)
_ALL = ("0.0.0.0", "::")
_REPORT_SECONDS = 1.0
_GRACE_SECONDS = 7 * 86400.0


async def _serve(arguments: argparse.Namespace) -> None:
    control = socket.socket(fileno=arguments.control_fd)
    control.setblocking(False)
    loop = asyncio.get_running_loop()
    server = grpc.aio.server(options=_OPTIONS, maximum_concurrent_rpcs=MAX_CALLS)
    callers = Callers(arguments.tenant_uri)
    tunnels, api = TunnelHandler(arguments.inner, callers), ApiHandler(arguments.inner, callers)
    server.add_generic_rpc_handlers((tunnels, api))
    try:
        bound = _listen_all(server, arguments)
        await server.start()
        said = f"ready\t{' '.join(map(str, bound))}"
    except (ServerError, ConfigError) as error:
        said = f"error\t{error}"
    # The daemon may have gone meanwhile.
    with contextlib.suppress(OSError):
        await loop.sock_sendall(control, said.encode())
        if said.startswith("ready"):
            await _report(control, tunnels)
    if said.startswith("ready"):
        # Calls that run go on; the port is free for the gateway of the next daemon.
        await server.stop(_GRACE_SECONDS if len(tunnels) else 0)
    await api.close()


async def _report(control: socket.socket, tunnels: TunnelHandler) -> None:
    """Says the figures when they have changed, until the daemon has gone; OSError is the same."""
    said = ""
    gone = asyncio.ensure_future(asyncio.get_running_loop().sock_recv(control, 1))
    try:
        while not (await asyncio.wait((gone,), timeout=_REPORT_SECONDS))[0]:
            figures = tunnels.figures()
            if figures != said:
                # Without room it is said next time.
                with contextlib.suppress(BlockingIOError):
                    control.send(f"figures\t{figures}".encode())
                    said = figures
        gone.result()
    finally:
        gone.cancel()


def _listen_all(server: grpc.aio.Server, arguments: argparse.Namespace) -> list[GrpcEndpoint]:
    """Returns the endpoints with their real ports; ServerError, ConfigError."""
    bound: list[GrpcEndpoint] = []
    for text in arguments.listen:
        endpoint = parse_endpoint(text)
        assert isinstance(endpoint, GrpcEndpoint)
        # gRPC listens on all addresses of both families where either is asked for.
        twins = (one for one in bound if one.host in _ALL and endpoint.host in _ALL)
        if any((one.port, one.secure) == (endpoint.port, endpoint.secure) for one in twins):
            bound.append(endpoint)
        else:
            bound.append(_listen(server, endpoint, arguments))
    return bound


def _listen(
    server: grpc.aio.Server, endpoint: GrpcEndpoint, arguments: argparse.Namespace
) -> GrpcEndpoint:
    where = TcpEndpoint.__str__(endpoint)
    try:
        if endpoint.secure:
            files = Files(arguments.certificate, arguments.key, arguments.client_ca)
            required = arguments.require_client_certificate
            port = server.add_secure_port(where, credentials(files, required))
        else:
            port = server.add_insecure_port(where)
    except RuntimeError:
        port = 0
    if not port:
        raise ServerError(
            f"cannot listen on {endpoint}: the address is in use, or not ours; end what listens "
            "there, or name another address with --listen"
        )
    return GrpcEndpoint(endpoint.host, port, endpoint.secure)


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
    process.run(_serve(arguments))


main(sys.argv[1:])
