"""An address that somebody else has: who that is, and what to do."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from netprobe.native import Line
from rgpu_common.endpoints import TcpEndpoint, cannot_listen
from rgpu_common.errors import RgpuError, ServerError
from rgpu_server.service.frontdoor import bind_tcp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rgpu_common.endpoints import Endpoint

_ASK_SECONDS = 1.0
_MAX_PORT = 65535
_UNSPECIFIED = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def check_free(endpoints: Sequence[Endpoint]) -> None:
    """ServerError for the first of these ports that cannot be bound; it says who has it."""
    for endpoint in endpoints:
        if not isinstance(endpoint, TcpEndpoint):
            continue
        try:
            bind_tcp(endpoint).close()
        except OSError as error:
            raise _taken(endpoint, error) from None


def _taken(endpoint: TcpEndpoint, error: OSError) -> ServerError:
    if error.errno != errno.EADDRINUSE or not _is_server(endpoint):
        return cannot_listen(endpoint, error)
    neighbour = endpoint.port + 1 if endpoint.port < _MAX_PORT else endpoint.port - 1
    other = endpoint.at(endpoint.host, neighbour)
    return ServerError(
        f"the port of {endpoint} is in use by another rgpu server (`rgpu devices --server "
        f"{_here(endpoint)}` shows what it serves): use that one, end it, or name another port: "
        f"--listen {other}"
    )


def _is_server(endpoint: TcpEndpoint) -> bool:
    if type(endpoint) is not TcpEndpoint:
        return False  # a client needs what is not known here: certificates, or a proxy
    try:
        with Line(f"tcp:{_here(endpoint)}", _ASK_SECONDS):
            return True
    except RgpuError:
        return False


def _here(endpoint: TcpEndpoint) -> TcpEndpoint:
    """Where it can be reached from this machine."""
    return endpoint.at(_UNSPECIFIED.get(endpoint.host, endpoint.host), endpoint.port)
