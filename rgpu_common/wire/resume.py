"""RESUME and RESUMED: they attach a new link to a lane that was cut or that changes its path.

`native/wire/resume.h` is the same in C++.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from rgpu_common.wire.frame import MAGIC, Kind, WireError, encode_frame
from rgpu_common.wire.handshake import SECRET_BYTES, Handshake
from rgpu_common.wire.scalars import Reader, Writer

MAX_LINKS: Final = 16
# The status of a REFUSED after which another RESUME may succeed (CUDA_ERROR_NOT_READY).
TRY_AGAIN: Final = 600


class Lane(IntEnum):
    """The two lanes of a session."""

    COMMAND = 0
    CONTROL = 1


@dataclass(frozen=True, slots=True)
class Resume:
    """A request to attach a new link to a lane.

    epoch: the number of this link of the lane, from 1. received: bytes of the worker's stream that
    the client's reader has taken.
    """

    session: int = 0
    secret: bytes = field(default=bytes(SECRET_BYTES), repr=False)
    lane: Lane = Lane.COMMAND
    link: int = 0
    epoch: int = 1
    received: int = 0


@dataclass(frozen=True, slots=True)
class Resumed:
    """The answer to an accepted RESUME.

    received: bytes of the client's stream that the worker's reader has taken.
    """

    received: int = 0


def put_resume(m: Resume) -> bytes:
    """Returns the head of a RESUME."""
    w = Writer()
    w.put("u32", MAGIC)
    w.put("u64", m.session)
    w.put_bytes(m.secret)
    w.put("u8", m.lane)
    w.put("u8", m.link)
    w.put("u32", m.epoch)
    w.put("u64", m.received)
    return w.take()


def decode_resume(head: bytes) -> Resume:
    """Reads the head of a RESUME. Compare the secret with `hmac.compare_digest`.

    Raises:
        WireError: the bytes are not a RESUME.
    """
    r = Reader(head)
    if r.integer("u32") != MAGIC:
        raise WireError("the magic number is missing: the peer does not speak rgpu")
    session, secret = r.integer("u64"), r.sized(SECRET_BYTES)
    lane, link = r.integer("u8"), r.integer("u8")
    epoch, received = r.integer("u32"), r.integer("u64")
    r.end()
    if len(secret) != SECRET_BYTES:
        raise WireError(f"secret has {len(secret)} bytes instead of {SECRET_BYTES}")
    if lane not in (Lane.COMMAND, Lane.CONTROL) or link >= MAX_LINKS or epoch == 0:
        raise WireError(f"there is no link {link} of lane {lane} with epoch {epoch}")
    return Resume(session, secret, Lane(lane), link, epoch, received)


def encode_resume(m: Resume) -> bytes:
    """Returns a RESUME frame."""
    return encode_frame(Kind.HANDSHAKE, Handshake.RESUME, put_resume(m))


def put_resumed(m: Resumed) -> bytes:
    """Returns the head of a RESUMED."""
    w = Writer()
    w.put("u64", m.received)
    return w.take()


def decode_resumed(head: bytes) -> Resumed:
    """Reads the head of a RESUMED."""
    r = Reader(head)
    resumed = Resumed(r.integer("u64"))
    r.end()
    return resumed
