"""Who is at the other end of a connection, as far as the connection itself tells."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from typing import TYPE_CHECKING
from urllib.parse import unquote

from msgspec import Struct

from rgpu_server.core.failures import network_of

if TYPE_CHECKING:
    from rgpu_common.wire.preface import Preface

LOCAL = "local"
_CREDENTIALS = struct.Struct("3i")


class Caller(Struct, frozen=True):
    """transport: "unix", "tcp", or what a gateway names. peer: an IP address, or "local" for this
    machine. uid: of a process that connected over the server's Unix socket. tenant: the tenant that
    a gateway vouches for, or ""; authenticated: the gateway vouches for the connection.
    """

    transport: str
    peer: str
    uid: int | None = None
    tenant: str = ""
    authenticated: bool = False

    @property
    def origin(self) -> str:
        """Returns the user or network that counts as one origin where places are limited."""
        return network_of(self.peer) if self.uid is None else f"user {self.uid}"


def caller_of(connection: socket.socket, address: object) -> Caller:
    """Returns the caller on one of the server's own sockets; `address` is the result of accept."""
    if connection.family == socket.AF_UNIX:
        return Caller("unix", LOCAL, uid=peer_uid(connection))
    host = "unknown"
    with contextlib.suppress(TypeError, IndexError):
        host = str(address[0])  # type: ignore[index]
    return Caller("tcp", _name(host))


def carried_by(preface: Preface) -> Caller:
    """Returns the caller that a gateway names in its PREFACE."""
    host = preface.peer.rpartition(":")[0].strip("[]") or preface.peer or "unknown"
    # HTTP/2 connections from this machine may come from a proxy, whose client may be anywhere. For
    # ucx: only the first message shows the peer's address. So neither counts as local.
    return Caller(
        preface.transport,
        host if preface.transport in ("grpc", "ucx") else _name(host),
        tenant=preface.tenant,
        authenticated=preface.authenticated,
    )


def host_of(peer: str) -> str:
    """Returns the address in gRPC's name of a peer: "ipv4:10.0.0.1:4711", "ipv6:%5B::1%5D:4711"."""
    kind, _, where = unquote(peer).partition(":")
    return _name(where.rpartition(":")[0].strip("[]")) if kind in ("ipv4", "ipv6") else "unknown"


def peer_uid(connection: socket.socket) -> int:
    """Returns the uid of the peer when it connected to the Unix socket; -1: unknown."""
    try:
        data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    except OSError:
        return -1
    return int(_CREDENTIALS.unpack(data)[1])


def is_own_uid(uid: int) -> bool:
    """Returns True for this process's user and root, who may do whatever this process may."""
    return uid in (0, os.geteuid())


def _name(host: str) -> str:
    host = host.removeprefix("::ffff:")
    return LOCAL if host.startswith("127.") or host == "::1" else host
