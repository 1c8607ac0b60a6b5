"""Addresses of servers: `HOST:PORT`, `[V6]:PORT`, `tcp:`, `tls:`, `ucx:`, `unix:/PATH`,
`shm:/PATH`.
"""

from __future__ import annotations

import errno
import ipaddress
import re
from dataclasses import dataclass

from rgpu_common.errors import EndpointError, ServerError

DEFAULT_PORT = 7700
ACCEPTED = (
    "HOST:PORT, tcp:HOST:PORT, [IPV6]:PORT, tls:HOST:PORT, ucx:HOST:PORT, grpc:HOST:PORT, "
    "grpcs:HOST:PORT, unix:/PATH or shm:/PATH"
)
# What a Unix socket address holds (sun_path), less its final zero.
MAX_UNIX_PATH_BYTES = 107
_ANOTHER = "name another address with --listen"
_REMEDIES = {
    errno.EADDRINUSE: f"end what listens there, or {_ANOTHER}",
    errno.EADDRNOTAVAIL: "name an address of this machine with --listen",
    errno.ENOENT: "name a path in a folder that exists with --listen",
}

_TCP = re.compile(r"(?:\[([0-9A-Fa-f:.]+(?:%[\w.-]+)?)\]|([^\[\]:/\s]+))(?::([0-9]{1,5}))?")


@dataclass(frozen=True, slots=True)
class TcpEndpoint:
    """A TCP port; port 0 asks the system for a free one and is only good for listening."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def loopback(self) -> bool:
        """True if only this machine can reach it; names other than localhost are not resolved."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host.partition("%")[0]).is_loopback
        except ValueError:
            return False

    @property
    def grpc_target(self) -> str:
        return f"ipv6:{self}" if ":" in self.host else f"dns:///{self}"


@dataclass(frozen=True, slots=True)
class UnixEndpoint:
    """A Unix stream socket in the file system; `shared`: over it a session agrees on memory that
    both ends share (`shm:`).
    """

    path: str
    shared: bool = False

    def __str__(self) -> str:
        return f"{'shm' if self.shared else 'unix'}:{self.path}"

    @property
    def loopback(self) -> bool:
        return True

    @property
    def grpc_target(self) -> str:
        return f"unix:{self.path}"


@dataclass(frozen=True, slots=True)
class TlsEndpoint(TcpEndpoint):
    """A TCP port at which TLS 1.3 is spoken."""

    def __str__(self) -> str:
        return f"tls:{TcpEndpoint.__str__(self)}"

    @property
    def grpc_target(self) -> str:
        where = TcpEndpoint.__str__(self)
        return f"ipv6:{where}" if ":" in self.host else f"dns:///{where}"


@dataclass(frozen=True, slots=True)
class UcxEndpoint(TcpEndpoint):
    """An address at which UCX establishes connections; they carry sessions only."""

    def __str__(self) -> str:
        return f"ucx:{TcpEndpoint.__str__(self)}"

    @property
    def loopback(self) -> bool:
        """False: for its connections UCX opens ports on all interfaces that it may use."""
        return False

    @property
    def grpc_target(self) -> str:
        """Raises EndpointError: there is none."""
        raise EndpointError(
            f"{self} carries sessions, not the API: use another address of the server here"
        )


@dataclass(frozen=True, slots=True)
class GrpcEndpoint(TcpEndpoint):
    """An HTTP/2 port that carries tunnels and the API; secure: over TLS."""

    secure: bool = False

    def __str__(self) -> str:
        return f"{'grpcs' if self.secure else 'grpc'}:{TcpEndpoint.__str__(self)}"

    @property
    def loopback(self) -> bool:
        """False: a proxy on this machine brings clients from anywhere."""
        return False

    @property
    def grpc_target(self) -> str:
        where = TcpEndpoint.__str__(self)
        return f"ipv6:{where}" if ":" in self.host else f"dns:///{where}"


Endpoint = TcpEndpoint | UnixEndpoint | TlsEndpoint | UcxEndpoint | GrpcEndpoint


def speaks_tls(endpoint: Endpoint) -> bool:
    """True if everything there is inside TLS."""
    return isinstance(endpoint, TlsEndpoint) or (
        isinstance(endpoint, GrpcEndpoint) and endpoint.secure
    )


def cannot_listen(endpoint: Endpoint, error: OSError) -> ServerError:
    """Returns the error for an address at which a socket cannot listen, with what to do."""
    remedy = _REMEDIES.get(error.errno or 0, _ANOTHER)
    return ServerError(f"cannot listen on {endpoint}: {error.strerror or error}; {remedy}")


def parse_endpoint(text: str) -> Endpoint:
    """Returns the endpoint that `text` names; a port that is left out is 7700, of `grpc:` 80 and
    of `grpcs:` 443.

    Raises:
        EndpointError: with the text and what is accepted.
    """
    if not text.isprintable():  # nor is what was no UTF-8 in the environment or on a command line
        raise EndpointError(
            f"{text!r} is not an address: it holds characters that cannot be printed; write "
            f"{ACCEPTED}"
        )
    if text.startswith(("unix:", "shm:")):
        return _parse_unix(text)
    if text.startswith("tls:"):
        return TlsEndpoint(*_host_port(text, text.removeprefix("tls:"), DEFAULT_PORT))
    if text.startswith("ucx:"):
        return UcxEndpoint(*_host_port(text, text.removeprefix("ucx:"), DEFAULT_PORT))
    for scheme, secure, default in (("grpc:", False, 80), ("grpcs:", True, 443)):
        if text.startswith(scheme):
            host, port = _host_port(text, text.removeprefix(scheme), default)
            return GrpcEndpoint(host, port, secure)
    return TcpEndpoint(*_host_port(text, text.removeprefix("tcp:"), DEFAULT_PORT))


def _host_port(text: str, rest: str, default: int) -> tuple[str, int]:
    match = _TCP.fullmatch(rest)
    if match is None:
        raise EndpointError(f"{text!r} is not an address: write {ACCEPTED}")
    port = default if match[3] is None else int(match[3])
    if port > 65535:
        raise EndpointError(f"{text!r} has the port {port}: ports go from 0 to 65535")
    return match[1] or match[2], port


def parse_listener(text: str) -> Endpoint:
    """As `parse_endpoint`, for a server.

    Raises:
        EndpointError: also for `shm:`, which clients choose over a Unix socket.
    """
    endpoint = parse_endpoint(text)
    if isinstance(endpoint, UnixEndpoint) and endpoint.shared:
        raise EndpointError(
            f"a server listens on unix:{endpoint.path}, and clients choose shm:{endpoint.path} "
            "themselves"
        )
    return endpoint


def _parse_unix(text: str) -> UnixEndpoint:
    scheme, _, path = text.partition(":")
    if not path.startswith("/") or "\0" in path:
        raise EndpointError(f"{text!r} is not an address: a Unix socket is written {scheme}:/PATH")
    if len(path.encode()) > MAX_UNIX_PATH_BYTES:
        raise EndpointError(
            f"{text!r} is too long: the path of a Unix socket has at most "
            f"{MAX_UNIX_PATH_BYTES} bytes"
        )
    return UnixEndpoint(path, shared=scheme == "shm")
