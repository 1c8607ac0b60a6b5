"""ATTACH and ATTACHED: the second connection of a session.

Python twin of `native/wire/attach.h`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rgpu_common.wire.fields import get_exactly, get_magic
from rgpu_common.wire.frame import MAGIC, Kind, encode_frame
from rgpu_common.wire.handshake import SECRET_BYTES, Handshake
from rgpu_common.wire.scalars import Reader, Writer


@dataclass(frozen=True, slots=True)
class Attach:
    """Makes a connection the control lane of `session`."""

    session: int = 0
    secret: bytes = field(default=bytes(SECRET_BYTES), repr=False)


def put_attach(m: Attach) -> bytes:
    """The head of an ATTACH."""
    w = Writer()
    w.put("u32", MAGIC)
    w.put("u64", m.session)
    w.put_bytes(m.secret)
    return w.take()


def decode_attach(head: bytes) -> Attach:
    """Reads the head of an ATTACH. Compare the secret with `hmac.compare_digest`.

    Raises:
        WireError: it is none.
    """
    r = Reader(head)
    get_magic(r)
    attach = Attach(r.integer("u64"), get_exactly(r, SECRET_BYTES, "secret"))
    r.end()
    return attach


def encode_attach(m: Attach) -> bytes:
    """An ATTACH frame."""
    return encode_frame(Kind.HANDSHAKE, Handshake.ATTACH, put_attach(m))


def encode_attached() -> bytes:
    """The answer to an ATTACH that was accepted."""
    return encode_frame(Kind.HANDSHAKE, Handshake.ATTACHED)
