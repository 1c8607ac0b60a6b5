"""SHM: the client's answer to shared-memory rings. `native/wire/shm.h` is the same in C++."""

from __future__ import annotations

from dataclasses import dataclass

from rgpu_common.wire.fields import clean_text
from rgpu_common.wire.frame import WireError
from rgpu_common.wire.handshake import MAX_SENTENCE_BYTES
from rgpu_common.wire.scalars import Reader, Writer


@dataclass(frozen=True, slots=True)
class Shm:
    """The client's answer to rings that came with WELCOME. `reason` says why it did not accept."""

    accepted: int = 0
    reason: str = ""


def put_shm(m: Shm) -> bytes:
    """Returns the head of a SHM frame."""
    w = Writer()
    w.put("u8", m.accepted)
    w.put_text(clean_text(m.reason, MAX_SENTENCE_BYTES))
    return w.take()


def decode_shm(head: bytes) -> Shm:
    """Reads the head of a SHM frame.

    Raises:
        WireError: the bytes are not a SHM.
    """
    r = Reader(head)
    shm = Shm(r.integer("u8"), r.text(MAX_SENTENCE_BYTES))
    if shm.accepted > 1:
        raise WireError(f"the field accepted is {shm.accepted}, but must be 0 or 1")
    r.end()
    return shm
