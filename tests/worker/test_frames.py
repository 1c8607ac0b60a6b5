"""Bytes that break the rules end their own session, with a sentence and without effect."""

import struct
from collections.abc import Callable

import pytest

from rgpu_common.wire.codec import encode_command
from rgpu_common.wire.frame import Flags, Kind, encode_frame
from rgpu_common.wire.messages import Control, Notice, encode_message
from worker.client import Client, session

PING = 0x0109


def frame(client: Client, **changes: object) -> bytes:
    """A PING with something changed."""
    values = {
        "kind": Kind.COMMAND,
        "opcode": PING,
        "head": struct.pack("<Q", 7),
        "bulk": b"",
        "flags": Flags.WANTS_REPLY,
        "seq": client.seq + 1,
        "thread": 1,
        **changes,
    }
    return encode_frame(**values)  # type: ignore[arg-type]


BROKEN: dict[str, Callable[[Client], bytes]] = {
    "garbage": lambda c: b"\xff" * 4096,
    "a head that is too long": lambda c: struct.pack(
        "<IIHBBiQQII", 1 << 20, 0, PING, 1, 1, 0, 2, 0, 1, 0
    ),
    "bulk above the limit": lambda c: struct.pack(
        "<IIHBBiQQII", 2 << 20, 2 << 20, PING, 1, 1, 0, 2, 0, 1, 0
    ),
    "more bulk than payload": lambda c: struct.pack(
        "<IIHBBiQQII", 8, 16, PING, 1, 1, 0, 2, 0, 1, 0
    ),
    "an unknown kind": lambda c: struct.pack("<IIHBBiQQII", 0, 0, PING, 9, 1, 0, 2, 0, 1, 0),
    "a reply from the client": lambda c: frame(c, kind=Kind.REPLY),
    "an unknown opcode": lambda c: frame(c, opcode=0x7777),
    "a gap in seq": lambda c: frame(c, seq=c.seq + 2),
    "a repeated seq": lambda c: frame(c, seq=c.seq),
    "a short head": lambda c: frame(c, head=b"\0" * 7),
    "a head with bytes left over": lambda c: frame(c, head=b"\0" * 9),
    "a call that wants no reply": lambda c: frame(c, flags=Flags.NONE),
    "thread 0": lambda c: frame(c, thread=0),
    "bulk where none belongs": lambda c: frame(c, bulk=b"x"),
    "a byte count past the head": lambda c: encode_frame(
        Kind.COMMAND,
        0x0206,
        struct.pack("<QI", 5, 1000) + b"name",
        flags=Flags.WANTS_REPLY,
        seq=c.seq + 1,
        thread=1,
        context=10,
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_frame_ends_the_session_with_a_sentence(what: str) -> None:
    with session() as client:
        client.send(BROKEN[what](client))
        sentence = client.sticky()
        assert len(sentence) > 20
        client.ended()
        assert client.process.returncode == 0
        assert client.replies == {}, "nothing of the broken frame was executed"


def test_a_frame_that_stops_in_the_middle_ends_the_session() -> None:
    with session() as client:
        whole = encode_command("rgpuPing", {"echo": 1}, seq=client.seq + 1)
        client.send(whole[:-3])
        client.socket.shutdown(1)  # nothing more comes
        client.ended()
        assert client.process.returncode == 0


@pytest.mark.parametrize(
    "message",
    [
        b"\xff" * 100,
        encode_frame(Kind.COMMAND, PING, struct.pack("<Q", 7)),
        encode_frame(Kind.CONTROL, 99),
        encode_message(Control.PULL_DATA, {"pull": 1, "offset": 0}, bulk=b"unasked"),
    ],
    ids=["garbage", "a command", "an unknown message", "bytes that nobody asked for"],
)
def test_a_broken_control_lane_ends_the_session(message: bytes) -> None:
    with session() as client:
        client.control.send(message)
        assert len(client.sticky()) > 20
        client.ended()


def test_keep_alive_and_cancel_are_taken() -> None:
    with session() as client:
        client.control.send(encode_message(Control.KEEP_ALIVE))
        client.control.send(encode_message(Control.CANCEL, {"seq": 3}))
        assert client.call("rgpuPing", echo=9)["echo"] == 9
        assert client.process.poll() is None


def test_posted_commands_are_acknowledged_when_the_worker_is_idle() -> None:
    with session() as client:
        client.post("rgpuStreamCreate", stream=20, flags=1, priority=0)
        last = client.post("rgpuEventCreate", event=21, flags=0)
        while client.notice(Notice.ACK)[1].header.seq < last:
            pass
