"""Addresses of servers: `HOST:PORT`, `tcp:HOST:PORT`, `[V6]:PORT`, `unix:/PATH`."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from rgpu_common.errors import EndpointError

DEFAULT_PORT = 7700
ACCEPTED = "HOST:PORT, tcp:HOST:PORT, [IPV6]:PORT or unix:/PATH"
# What a Unix socket address holds (sun_path), less its final zero.
MAX_UNIX_PATH_BYTES = 107

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
    """A Unix stream socket in the file system."""

    path: str

    def __str__(self) -> str:
        return f"unix:{self.path}"

    @property
    def loopback(self) -> bool:
        return True

    @property
    def grpc_target(self) -> str:
        return f"unix:{self.path}"


Endpoint = TcpEndpoint | UnixEndpoint


def parse_endpoint(text: str) -> Endpoint:
    """Returns the endpoint that `text` names; a port that is left out is 7700.

    Raises:
        EndpointError: with the text and what is accepted.
    """
    if text.startswith("unix:"):
        return _parse_unix(text)
    match = _TCP.fullmatch(text.removeprefix("tcp:"))
    if match is None:
        raise EndpointError(f"{text!r} is not an address: write {ACCEPTED}")
    port = DEFAULT_PORT if match[3] is None else int(match[3])
    if port > 65535:
        raise EndpointError(f"{text!r} has the port {port}: ports go from 0 to 65535")
    return TcpEndpoint(match[1] or match[2], port)


def _parse_unix(text: str) -> UnixEndpoint:
    path = text.removeprefix("unix:")
    if not path.startswith("/") or "\0" in path:
        raise EndpointError(f"{text!r} is not an address: a Unix socket is written unix:/PATH")
    if len(path.encode()) > MAX_UNIX_PATH_BYTES:
        raise EndpointError(
            f"{text!r} is too long: the path of a Unix socket has at most "
            f"{MAX_UNIX_PATH_BYTES} bytes"
        )
    return UnixEndpoint(path)
