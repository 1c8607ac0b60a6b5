"""REFUSED: a server's answer that gives no session. `native/wire/refused.h` is the same in C++."""

from __future__ import annotations

from dataclasses import dataclass

from rgpu_common.wire.fields import clean_text
from rgpu_common.wire.frame import Kind, encode_frame
from rgpu_common.wire.handshake import MAX_SENTENCE_BYTES, Handshake
from rgpu_common.wire.scalars import Reader, Writer


@dataclass(frozen=True, slots=True)
class Refused:
    """The reason for which there is no session. The header's status is the CUresult."""

    sentence: str = ""


def put_refused(m: Refused) -> bytes:
    """Returns the head of a REFUSED."""
    w = Writer()
    w.put_text(clean_text(m.sentence, MAX_SENTENCE_BYTES))
    return w.take()


def decode_refused(head: bytes) -> Refused:
    """Reads the head of a REFUSED."""
    r = Reader(head)
    refused = Refused(r.text(MAX_SENTENCE_BYTES))
    r.end()
    return refused


def encode_refused(status: int, sentence: str) -> bytes:
    """Returns a REFUSED frame. `status` is a CUresult; `sentence` names the remedy."""
    return encode_frame(
        Kind.HANDSHAKE, Handshake.REFUSED, put_refused(Refused(sentence)), status=status
    )
