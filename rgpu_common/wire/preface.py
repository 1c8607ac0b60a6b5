"""PREFACE: what a gateway tells the daemon about a client's connection, before the client's bytes.

`native/wire/preface.h` is the same in C++.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rgpu_common.wire.frame import MAGIC, Kind, WireError, encode_frame
from rgpu_common.wire.handshake import MAX_NAME_BYTES, Handshake
from rgpu_common.wire.scalars import Reader, Writer

MAX_TRANSPORT_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Preface:
    """Facts about a client's connection.

    transport: "tls", "ucx" or "grpc". peer: "1.2.3.4:5". tenant: the tenant that the client's
    certificate or token names, "" for none. authenticated: the gateway has checked it; needed for a
    tenant.
    """

    transport: str = ""
    peer: str = ""
    tenant: str = ""
    authenticated: bool = False


def put_preface(m: Preface) -> bytes:
    """Returns the head of a PREFACE."""
    w = Writer()
    w.put("u32", MAGIC)
    for text in (m.transport, m.peer, m.tenant):
        w.put_text(text)
    w.put("u8", int(m.authenticated))
    return w.take()


def decode_preface(head: bytes) -> Preface:
    """Reads the head of a PREFACE.

    Raises:
        WireError: the bytes are not a PREFACE.
    """
    r = Reader(head)
    if r.integer("u32") != MAGIC:
        raise WireError("the magic number is missing: the gateway does not speak rgpu")
    transport = r.text(MAX_TRANSPORT_BYTES)
    peer, tenant = r.text(MAX_NAME_BYTES), r.text(MAX_NAME_BYTES)
    authenticated = r.integer("u8")
    r.end()
    if not transport or authenticated > 1 or (tenant and not authenticated):
        raise WireError("a PREFACE contradicts itself")
    return Preface(transport, peer, tenant, bool(authenticated))


def encode_preface(m: Preface) -> bytes:
    """Returns a PREFACE frame."""
    return encode_frame(Kind.HANDSHAKE, Handshake.PREFACE, put_preface(m))
