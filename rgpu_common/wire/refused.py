"""REFUSED: why there is no session.  Python twin of `native/wire/refused.h`."""

from __future__ import annotations

from dataclasses import dataclass

from rgpu_common.wire.fields import clean_text
from rgpu_common.wire.frame import Kind, encode_frame
from rgpu_common.wire.handshake import MAX_SENTENCE_BYTES, Handshake
from rgpu_common.wire.scalars import Reader, Writer


@dataclass(frozen=True, slots=True)
class Refused:
    """Why there is no session; the CUresult is the header's status."""

    sentence: str = ""


def put_refused(m: Refused) -> bytes:
    """The head of a REFUSED."""
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
    """A REFUSED frame: `status` is a CUresult, `sentence` names the remedy."""
    return encode_frame(
        Kind.HANDSHAKE, Handshake.REFUSED, put_refused(Refused(sentence)), status=status
    )
