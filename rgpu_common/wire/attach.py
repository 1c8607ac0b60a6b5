"""ATTACH and ATTACHED: they make a connection the control lane of a session.

`native/wire/attach.h` is the same in C++.
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
    """Returns the head of an ATTACH."""
    w = Writer()
    w.put("u32", MAGIC)
    w.put("u64", m.session)
    w.put_bytes(m.secret)
    return w.take()


def decode_attach(head: bytes) -> Attach:
    """Reads the head of an ATTACH. Compare the secret with `hmac.compare_digest`.

    Raises:
        WireError: the bytes are not an ATTACH.
    """
    r = Reader(head)
    get_magic(r)
    attach = Attach(r.integer("u64"), get_exactly(r, SECRET_BYTES, "secret"))
    r.end()
    return attach


def encode_attach(m: Attach) -> bytes:
    """Returns an ATTACH frame."""
    return encode_frame(Kind.HANDSHAKE, Handshake.ATTACH, put_attach(m))


def encode_attached() -> bytes:
    """Returns an ATTACHED frame, the answer to an accepted ATTACH."""
    return encode_frame(Kind.HANDSHAKE, Handshake.ATTACHED)
