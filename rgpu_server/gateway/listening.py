"""Sockets that listen where endpoints say."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from rgpu_common.endpoints import GrpcEndpoint
from rgpu_common.errors import ServerError

if TYPE_CHECKING:
    from collections.abc import Sequence

_ALL = ("0.0.0.0", "::")
_BACKLOG = 1024


def listen(
    endpoint: GrpcEndpoint, bound: Sequence[GrpcEndpoint]
) -> tuple[list[socket.socket], GrpcEndpoint]:
    """Returns listening sockets, and the endpoint with its real port; ServerError.

    bound: what is listened at already.  All addresses of one family are those of both, so the
    second of two such endpoints has no socket of its own.
    """
    everywhere = endpoint.host in _ALL
    twins = (one for one in bound if everywhere and one.host in _ALL)
    if any((one.port, one.secure) == (endpoint.port, endpoint.secure) for one in twins):
        return [], endpoint
    try:
        listeners = [_everywhere(endpoint.port)] if everywhere else _at(endpoint)
    except OSError:
        raise ServerError(
            f"cannot listen on {endpoint}: the address is in use, or not ours; end what listens "
            "there, or name another address with --listen"
        ) from None
    return listeners, GrpcEndpoint(endpoint.host, listeners[0].getsockname()[1], endpoint.secure)


def _everywhere(port: int) -> socket.socket:
    """On all addresses of both families; of IPv4 where there is no IPv6."""
    try:
        return _bound(socket.AF_INET6, ("::", port))
    except OSError as error:
        try:
            probe = socket.socket(socket.AF_INET6)
        except OSError:
            return _bound(socket.AF_INET, ("0.0.0.0", port))
        probe.close()
        raise error from None


def _at(endpoint: GrpcEndpoint) -> list[socket.socket]:
    """On every address that the host has."""
    found = socket.getaddrinfo(
        endpoint.host, endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    listeners: list[socket.socket] = []
    try:
        for family, _, _, _, address in dict.fromkeys(found):
            # Port 0 is the same free one everywhere.
            port = listeners[0].getsockname()[1] if listeners else address[1]
            listeners.append(_bound(family, (address[0], port, *address[2:])))
    except OSError:
        for listener in listeners:
            listener.close()
        raise
    return listeners


def _bound(family: socket.AddressFamily, address: tuple[object, ...]) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        # A port whose last connections are just ending is free; one that is listened at is not.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            only = address[0] != "::"
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, only)
        listener.setblocking(False)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener
