"""`rgpu probe`: how far away a server is."""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING

from netprobe.estimate import RoundTrips, summarise
from rgpu_common.command import OK, Command
from rgpu_common.endpoints import DEFAULT_PORT, Endpoint, TcpEndpoint, UnixEndpoint, parse_endpoint
from rgpu_common.errors import ServerError, UsageError
from rgpu_common.units import format_seconds

if TYPE_CHECKING:
    import argparse

os.environ.setdefault("GRPC_VERBOSITY", "NONE")
_TIMEOUT_SECONDS = 10.0
_MAX_COUNT = 1_000_000
_DEFAULT = f"127.0.0.1:{DEFAULT_PORT}"


def measure_connects(server: Endpoint, count: int) -> RoundTrips:
    """Connects and closes `count` times; ServerError if nobody listens there."""
    times = []
    for _ in range(count):
        started = time.perf_counter()
        _connect(server).close()
        times.append(time.perf_counter() - started)
    return summarise(times)


def measure_calls(server: Endpoint, count: int) -> RoundTrips:
    """Makes `count` small API calls on one warm connection; ServerError if they are not
    answered.
    """
    import grpc

    from rgpu_common.v1 import device_pb2, device_pb2_grpc

    options = [("grpc.enable_http_proxy", 0)]
    with grpc.insecure_channel(server.grpc_target, options=options) as channel:
        call = device_pb2_grpc.DeviceServiceStub(channel).ListDevices
        request = device_pb2.ListDevicesRequest()
        times = []
        try:
            call(request, timeout=_TIMEOUT_SECONDS)
            for _ in range(count):
                started = time.perf_counter()
                call(request, timeout=_TIMEOUT_SECONDS)
                times.append(time.perf_counter() - started)
        except grpc.RpcError as error:
            raise ServerError(
                f"what listens at {server} does not answer as an rgpu server ({error.code().name})"
            ) from None
    return summarise(times)


def _connect(server: Endpoint) -> socket.socket:
    try:
        if isinstance(server, TcpEndpoint):
            return socket.create_connection((server.host, server.port), _TIMEOUT_SECONDS)
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(_TIMEOUT_SECONDS)
            connection.connect(server.path)
        except OSError:
            connection.close()
            raise
        return connection
    except OSError as error:
        raise ServerError(f"{server} cannot be reached: {error.strerror or error}") from None


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "server", nargs="?", help=f"HOST:PORT or unix:/PATH (default: RGPU_SERVER, then {_DEFAULT})"
    )
    parser.add_argument(
        "--server", dest="option", metavar="ADDRESS", help="the same, as other commands have it"
    )
    parser.add_argument(
        "--count", type=int, default=50, metavar="N", help="measurements (default 50)"
    )


def _run(arguments: argparse.Namespace) -> int:
    if arguments.server and arguments.option:
        raise UsageError("name the server once: as SERVER or with --server")
    named = arguments.server or arguments.option
    server = parse_endpoint(named or os.environ.get("RGPU_SERVER") or _DEFAULT)
    count: int = arguments.count
    if not 1 <= count <= _MAX_COUNT:
        raise UsageError(f"{count} measurements make no sense: 1 to {_MAX_COUNT} do")
    connects, calls = measure_connects(server, count), measure_calls(server, count)
    kind = "unix" if isinstance(server, UnixEndpoint) else "tcp"
    each = "1 measurement" if count == 1 else f"{count} measurements"
    print(f"{server} over {kind}, {each} each")
    for name, times in (("connect", connects), ("API call", calls)):
        print(
            f"  {name:<9} min {format_seconds(times.minimum):>9}  "
            f"median {format_seconds(times.median):>9}  p99 {format_seconds(times.p99):>9}"
        )
    return OK


probe = Command("probe", "measure how far away a server is", _configure, _run)
