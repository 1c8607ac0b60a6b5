"""The messages of channels: Python against C++, and hostile ones."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from helpers.channel_values import module_of, rows_of, values
from helpers.corrupt import corrupted_words, hostile_words, prefixes
from helpers.counts import count
from helpers.native_abi import REFUSED, UNKNOWN, channel_roundtrip
from hypothesis import given, settings
from hypothesis import strategies as st

from cudaspec.load_messages import channels
from rgpu_common.wire import compiler as pc
from rgpu_common.wire import worker as wk
from rgpu_common.wire.frame import WireError

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudaspec.message import Message

EXAMPLES = count("RGPU_WIRE_EXAMPLES", 10)
QUICK = settings(max_examples=EXAMPLES, deadline=None, database=None)
ALL = [
    pytest.param(channel, message, id=f"{channel}-{message.name}")
    for channel, rows in channels().items()
    for message in rows.own.messages
]


def codec(
    channel: str, message: Message
) -> tuple[Callable[[object], bytes], Callable[[bytes], object]]:
    """Returns the functions that write and read the body of a message."""
    module, small = module_of(channel), message.name.lower()
    return getattr(module, f"put_{small}"), getattr(module, f"decode_{small}")


def accepts(decode: Callable[[bytes], object], body: bytes) -> bool:
    try:
        decode(body)
    except WireError:
        return False
    return True


@pytest.mark.parametrize(("channel", "message"), ALL)
@QUICK
@given(data=st.data())
def test_round_trip(channel: str, message: Message, data: st.DataObject) -> None:
    put, decode = codec(channel, message)
    value = data.draw(values(channel, message))
    body = put(value)
    assert decode(body) == value
    assert channel_roundtrip(channel, message.opcode, body) == body
    for damaged in (*prefixes(body), body + b"\0"):
        assert channel_roundtrip(channel, message.opcode, damaged) == REFUSED
        assert not accepts(decode, damaged)


@pytest.mark.parametrize(("channel", "message"), ALL)
@settings(QUICK, max_examples=max(1, EXAMPLES // 3))
@given(data=st.data(), mask=st.integers(1, 0xFFFFFFFF))
def test_every_word_corrupted(
    channel: str, message: Message, data: st.DataObject, mask: int
) -> None:
    put, decode = codec(channel, message)
    body = put(data.draw(values(channel, message)))
    for damaged in (*corrupted_words(body, mask), *hostile_words(body)):
        result = channel_roundtrip(channel, message.opcode, damaged)
        assert accepts(decode, damaged) == (result != REFUSED)
        # Readers of text replace what is not text, each in its own way.
        if result != REFUSED and put(decode(damaged)) == damaged:
            assert result == damaged


@QUICK
@given(noise=st.binary(max_size=200))
def test_noise(noise: bytes) -> None:
    for channel, rows in channels().items():
        for message in rows.own.messages:
            _, decode = codec(channel, message)
            result = channel_roundtrip(channel, message.opcode, noise)
            assert accepts(decode, noise) == (result != REFUSED)
        assert channel_roundtrip(channel, 99, noise) == UNKNOWN


def sized(length: int) -> bytes:
    return struct.pack("<I", length) + b"x" * length


LIMITS = [
    ("worker", "READY", sized, wk.MAX_LINE_BYTES),
    ("worker", "ENDED", sized, wk.MAX_LINE_BYTES),
    ("worker", "REFUSED", lambda n: b"\0" * 4 + sized(n), wk.MAX_LINE_BYTES),
    ("worker", "END", lambda n: b"\0" * 4 + sized(n), wk.MAX_LINE_BYTES),
    ("worker", "RESUME", sized, wk.MAX_CLIENT_HEAD_BYTES),
    ("worker", "ASSIGN", lambda n: wk.put_assign(wk.Assign(hello=bytes(n))),
     wk.MAX_CLIENT_HEAD_BYTES),
    ("worker", "ASSIGN", lambda n: wk.put_assign(wk.Assign(environment=("x" * (n - 1),))),
     wk.MAX_ENVIRONMENT_BYTES),
    ("compiler", "LOAD", lambda n: pc.put_load(pc.Load((b"",) * n)), pc.MAX_INPUTS),
    ("compiler", "LINK", lambda n: pc.put_link(pc.Link((b"",) * n)), pc.MAX_INPUTS),
    ("compiler", "LOADED", lambda n: pc.put_loaded(pc.Loaded(entries=(pc.EntryInfo(param_bytes=n),))),
     pc.MAX_PARAM_BYTES),
    ("compiler", "LOADED", lambda n: pc.put_loaded(pc.Loaded(globals=(pc.GlobalInfo(align=n),))),
     pc.MAX_ALIGN),
]  # fmt: skip


@pytest.mark.parametrize(("channel", "name", "body", "limit"), LIMITS)
def test_a_limit_holds_in_both(
    channel: str, name: str, body: Callable[[int], bytes], limit: int
) -> None:
    message = next(m for m in rows_of(channel).own.messages if m.name == name)
    _, decode = codec(channel, message)
    assert accepts(decode, body(limit))
    assert channel_roundtrip(channel, message.opcode, body(limit)) == body(limit)
    assert not accepts(decode, body(limit + 1))
    assert channel_roundtrip(channel, message.opcode, body(limit + 1)) == REFUSED


def test_a_count_without_items_takes_no_memory() -> None:
    """A count within its limit is believed only as far as there are items behind it."""
    empty = pc.put_loaded(pc.Loaded())
    for at in range(3):
        counts = [0, 0, 0]
        counts[at] = pc.MAX_ITEMS
        body = empty[:-12] + struct.pack("<III", *counts)
        before = _resident_peak()
        assert not accepts(pc.decode_loaded, body)
        assert channel_roundtrip("compiler", pc.MessageType.LOADED, body) == REFUSED
        # MAX_ITEMS empty items are 8 MiB of a list of Python's, and more of a vector.
        assert _resident_peak(keep=True) - before < 4 << 20


def test_a_global_may_hold_more_addresses_than_a_module_has_kernels() -> None:
    """A table of a million addresses is one global."""
    one = pc.Relocation(0, pc.RelocationKind.GLOBAL_ADDRESS, 0, 0)
    table = pc.GlobalInfo(name="t", size=8, relocations=(one,) * (pc.MAX_ITEMS + 1))
    body = pc.put_loaded(pc.Loaded(globals=(table,)))
    assert pc.decode_loaded(body).globals == (table,)
    assert channel_roundtrip("compiler", pc.MessageType.LOADED, body) != REFUSED


def _resident_peak(*, keep: bool = False) -> int:
    """Returns the most memory that this process has had since the last call, in bytes.

    keep: do not begin again. proc(5): 5 in clear_refs sets VmHWM to the present size.
    """
    if not keep:
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("VmHWM:"))
    return int(line.split()[1]) << 10


@pytest.mark.parametrize(
    "sent", [b"bye\x1b[2J", b"a\nb", b"\xff\xfe", "a\u202eb".encode(), b"\xc2\x9b31m"]
)
def test_text_of_a_worker_is_printable(sent: bytes) -> None:
    body = struct.pack("<I", len(sent)) + sent
    assert wk.decode_ended(body).reason.isprintable()
    once = channel_roundtrip("worker", wk.MessageType.ENDED, body)
    assert isinstance(once, bytes)
    assert not any(byte < 0x20 for byte in once[4:])


def test_a_writer_cuts_and_cleans_a_line() -> None:
    end = wk.End(46, "a\nb" + "ä" * wk.MAX_LINE_BYTES)
    read = wk.decode_end(wk.put_end(end))
    assert read.sentence.startswith("a?bä")
    assert wk.MAX_LINE_BYTES - 1 <= len(read.sentence.encode()) <= wk.MAX_LINE_BYTES


@pytest.mark.parametrize(
    "packet", [b"", b"\x10", struct.pack("<I", 99), wk.encode_attach(wk.Attach())]
)
def test_what_no_worker_says(packet: bytes) -> None:
    with pytest.raises(WireError):
        wk.decode_from_worker(packet)


def test_each_side_reads_what_the_other_writes() -> None:
    end, ended = wk.End(46, "no lease"), wk.Ended("bye")
    assert wk.decode_from_daemon(wk.encode_end(end)) == end
    assert wk.decode_from_worker(wk.encode_ended(ended)) == ended
    with pytest.raises(WireError, match="unknown type 3"):
        wk.decode_from_worker(wk.encode_end(end))
    with pytest.raises(WireError, match="unknown type 19"):
        wk.decode_from_daemon(wk.encode_ended(ended))


@pytest.mark.parametrize(
    "head",
    [struct.pack("<IIQ", 0, 0, 1), struct.pack("<IIQ", 7, 0, 1), struct.pack("<IIQ", 1, 1, 1),
     struct.pack("<IIQ", 1, 0, pc.MAX_BODY_BYTES + 1)],
)  # fmt: skip
def test_a_wrong_head_of_a_stream_is_refused(head: bytes) -> None:
    with pytest.raises(WireError):
        pc.decode_head(head)


def test_a_stream_message_is_its_head_and_its_body() -> None:
    message = pc.encode_lower(pc.Lower(bytes(32), "kernel"))
    assert message[: pc.HEAD_BYTES] == struct.pack("<IIQ", 3, 0, 36 + 10)
    assert pc.decode_head(message[: pc.HEAD_BYTES]) == pc.Head(pc.MessageType.LOWER, 46)
    assert pc.decode_lower(message[pc.HEAD_BYTES :]).name == "kernel"
