"""Claims: a HELLO that asks for a lease and no session, and its answers.

The server answers a HELLO with the wish CLAIM by CLAIMED or REFUSED. If the HELLO also has the wish
WAIT (milliseconds), the server first sends PLACE each time the claim's place in line changes. The
lease is held as long as the connection exists. A server of an earlier release ignores the wish and
answers WELCOME.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag

from rgpu_common.wire.fields import clean_text
from rgpu_common.wire.frame import Kind, encode_frame
from rgpu_common.wire.handshake import MAX_NAME_BYTES, MAX_SENTENCE_BYTES, Handshake
from rgpu_common.wire.scalars import Reader, Writer


class Claim(IntFlag):
    """The bits of the wish's value. OWN: the lease is for this run alone and ends with it."""

    WANTED = 1
    OWN = 2


@dataclass(frozen=True, slots=True)
class Claimed:
    """The claim has its lease: the device and the limits. Shares are in millionths."""

    release: str = ""
    lease_id: str = ""
    key: str = ""
    tenant: str = ""
    device: int = 0
    device_name: str = ""
    device_bytes: int = 0
    memory_bytes: int = 0
    share_request_ppm: int = 0
    share_limit_ppm: int = 0


@dataclass(frozen=True, slots=True)
class Place:
    """The claim waits: it is number `place` of `waiting` in its line.

    sentence: what the claim waits for.
    """

    place: int = 0
    waiting: int = 0
    sentence: str = ""


def encode_claimed(m: Claimed) -> bytes:
    """Returns a CLAIMED frame."""
    w = Writer()
    for text in (m.release, m.lease_id, m.key, m.tenant, m.device_name):
        w.put_text(clean_text(text, MAX_NAME_BYTES))
    w.put("u32", m.device)
    w.put("u64", m.device_bytes)
    w.put("u64", m.memory_bytes)
    w.put("u32", m.share_request_ppm)
    w.put("u32", m.share_limit_ppm)
    return encode_frame(Kind.HANDSHAKE, Handshake.CLAIMED, w.take())


def decode_claimed(head: bytes) -> Claimed:
    """Reads the head of a CLAIMED. WireError: the bytes are not a CLAIMED."""
    r = Reader(head)
    release, lease_id, key, tenant, name = (r.text(MAX_NAME_BYTES) for _ in range(5))
    claimed = Claimed(
        release=release,
        lease_id=lease_id,
        key=key,
        tenant=tenant,
        device_name=name,
        device=r.integer("u32"),
        device_bytes=r.integer("u64"),
        memory_bytes=r.integer("u64"),
        share_request_ppm=r.integer("u32"),
        share_limit_ppm=r.integer("u32"),
    )
    r.end()
    return claimed


def encode_place(m: Place) -> bytes:
    """Returns a PLACE frame."""
    w = Writer()
    w.put("u32", m.place)
    w.put("u32", m.waiting)
    w.put_text(clean_text(m.sentence, MAX_SENTENCE_BYTES))
    return encode_frame(Kind.HANDSHAKE, Handshake.PLACE, w.take())


def decode_place(head: bytes) -> Place:
    """Reads the head of a PLACE. WireError: the bytes are not a PLACE."""
    r = Reader(head)
    place = Place(r.integer("u32"), r.integer("u32"), r.text(MAX_SENTENCE_BYTES))
    r.end()
    return place
