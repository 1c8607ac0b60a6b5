"""Who is at the other end of a connection, as far as the connection itself says."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rgpu_server.core.failures import network_of

if TYPE_CHECKING:
    from rgpu_common.wire.preface import Preface

LOCAL = "local"
_CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True, slots=True)
class Caller:
    """transport: "unix", "tcp", or what a gateway says.  peer: an IP address, or "local" for this
    machine.  uid: of a process that came over a Unix socket of the server's.  tenant: whom a
    gateway vouches for, "" for nobody; authenticated: it vouches for the connection.
    """

    transport: str
    peer: str
    uid: int | None = None
    tenant: str = ""
    authenticated: bool = False

    @property
    def origin(self) -> str:
        """Returns what counts as one where places are few: a user, or a network."""
        return network_of(self.peer) if self.uid is None else f"user {self.uid}"


def caller_of(connection: socket.socket, address: object) -> Caller:
    """Returns who came over one of the server's own sockets; `address` is accept's."""
    if connection.family == socket.AF_UNIX:
        return Caller("unix", LOCAL, uid=peer_uid(connection))
    host = "unknown"
    with contextlib.suppress(TypeError, IndexError):
        host = str(address[0])  # type: ignore[index]
    return Caller("tcp", _name(host))


def carried_by(preface: Preface) -> Caller:
    """Returns for whom a gateway speaks."""
    host = preface.peer.rpartition(":")[0].strip("[]") or preface.peer or "unknown"
    # What comes over HTTP/2 from this machine may be a proxy's, for a client from anywhere, and of
    # ucx: only the first words come from the peer's address.
    return Caller(
        preface.transport,
        host if preface.transport in ("grpc", "ucx") else _name(host),
        tenant=preface.tenant,
        authenticated=preface.authenticated,
    )


def peer_uid(connection: socket.socket) -> int:
    """Returns the user at the other end of a Unix socket, as it was at connect; -1: unknown."""
    try:
        data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    except OSError:
        return -1
    return int(_CREDENTIALS.unpack(data)[1])


def is_own(connection: socket.socket) -> bool:
    """True if the process at the other end of a Unix socket may do whatever this one may."""
    return is_own_uid(peer_uid(connection))


def is_own_uid(uid: int) -> bool:
    """True for this process's user and root."""
    return uid in (0, os.geteuid())


def _name(host: str) -> str:
    host = host.removeprefix("::ffff:")
    return LOCAL if host.startswith("127.") or host == "::1" else host
