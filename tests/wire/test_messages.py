"""Notices, control messages, and the trace printer."""

from __future__ import annotations

import contextlib

import pytest
from helpers.corrupt import corrupted_words, prefixes
from hypothesis import given, settings
from hypothesis import strategies as st

from rgpu_common.wire import resume as rs
from rgpu_common.wire.attach import Attach, encode_attach, encode_attached
from rgpu_common.wire.codec import encode_command, encode_piece, encode_reply
from rgpu_common.wire.frame import HEADER_BYTES, Kind, WireError, decode_frames, encode_frame
from rgpu_common.wire.handshake import Handshake
from rgpu_common.wire.hello import Hello, OpcodeHash, encode_hello
from rgpu_common.wire.messages import Control, Notice, decode_message, encode_message
from rgpu_common.wire.refused import encode_refused
from rgpu_common.wire.shm import Shm, put_shm
from rgpu_common.wire.trace import lines, main
from rgpu_common.wire.welcome import DeviceInfo, Welcome, encode_welcome

QUICK = settings(max_examples=50, deadline=None, database=None)
U64 = st.integers(0, (1 << 64) - 1)
U32 = st.integers(0, (1 << 32) - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
# Pairs, because notices and control messages share numbers: as keys they would be the same.
FIELDS = [
    (Notice.CREDIT, {"stream": U64, "completed": U64}),
    (Notice.COMPLETED, {"object": U64, "version": U64, "time_ns": U64}),
    (Notice.STICKY, {"context": U32, "sentence": TEXT}),
    (Notice.PULL, {"pull": U64, "offset": U64, "bytes": U64}),
    (Notice.CALLBACK, {"callback": U64}),
    (Notice.LOG, {"level": U32, "text": TEXT}),
    (Notice.ACK, {}),
    (Notice.COMPILED, {"ns": U64, "name": TEXT}),
    (Notice.MEMORY_CREDIT, {"granted": U64, "freed": U64, "wanted": st.integers(0, 255)}),
    (Notice.GRAPH_CALLBACK, {"callback": U64, "node": U32}),
    (Control.BYE, {}),
    (Control.CANCEL, {"seq": U64}),
    (Control.PULL_DATA, {"pull": U64, "offset": U64}),
    (Control.CALLBACK_DONE, {"callback": U64}),
    (Control.KEEP_ALIVE, {}),
    (Control.COPY_DONE, {"ticket": U64}),
    (Control.CREDIT_RETURN, {"returned": U64}),
]


def test_every_message_is_here() -> None:
    assert [str(m) for m, _ in FIELDS] == [str(m) for m in (*Notice, *Control)]
    assert [type(m) for m, _ in FIELDS] == [Notice] * len(Notice) + [Control] * len(Control)


@pytest.mark.parametrize(("message", "fields"), FIELDS, ids=[m.name for m, _ in FIELDS])
@QUICK
@given(data=st.data())
def test_round_trip(
    message: Notice | Control, fields: dict[str, st.SearchStrategy[int | str]], data: st.DataObject
) -> None:
    values = data.draw(st.fixed_dictionaries(fields))
    sent = encode_message(message, values, bulk=b"bulk", status=1, seq=2, watermark=3)
    (frame,) = decode_frames(sent)
    assert decode_message(frame) == (message, values)
    assert (frame.header.status, frame.header.seq, frame.header.watermark) == (1, 2, 3)
    kind = frame.header.kind
    for head in prefixes(frame.head):
        with pytest.raises(WireError):
            decode_message(next(decode_frames(encode_frame(kind, message, head))))
    for head in corrupted_words(frame.head, 0x80FF01FF):
        (damaged,) = decode_frames(encode_frame(kind, message, head))
        with contextlib.suppress(WireError):
            decode_message(damaged)


def test_what_is_no_message() -> None:
    for kind, opcode in ((Kind.NOTICE, 0), (Kind.NOTICE, 8), (Kind.CONTROL, 6), (Kind.COMMAND, 1)):
        (frame,) = decode_frames(encode_frame(kind, opcode))
        with pytest.raises(WireError):
            decode_message(frame)
    with pytest.raises(WireError, match="no field"):
        encode_message(Notice.ACK, {"seq": 1})


def test_trace(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def] # noqa: ANN001
    stream = b"".join((
        encode_hello(Hello(release="0.1", program="python", opcodes=(OpcodeHash(1, 2),))),
        encode_welcome(Welcome(session=5, devices=(DeviceInfo(name="emulated"),))),
        encode_attach(Attach(session=5)),
        encode_attached(),
        encode_frame(Kind.HANDSHAKE, Handshake.SHM, put_shm(Shm(0, "no memory"))),
        encode_refused(46, "no such device"),
        rs.encode_resume(rs.Resume(session=5, lane=rs.Lane.CONTROL, epoch=2, received=9)),
        encode_frame(Kind.HANDSHAKE, Handshake.RESUMED, rs.put_resumed(rs.Resumed(7))),
        encode_command("rgpuMemAlloc", {"bytes": 4096}, seq=1, context=1),
        encode_reply("rgpuMemAlloc", {"dptr": 1 << 45}, seq=1, watermark=2),
        encode_reply("rgpuMemAlloc", {}, seq=1, status=2),
        encode_piece(Kind.DELIVERY, "rgpuCopyDtoHLater", 64, b"abc", seq=2, last=True),
        encode_message(Notice.LOG, {"level": 1, "text": "a\nb"}),
        encode_message(Control.BYE),
        encode_frame(Kind.COMMAND, 0x0301, b"short", seq=3),
        encode_frame(Kind.HANDSHAKE, 77),
    ))  # fmt: skip
    expected = [
        "- HANDSHAKE HELLO wire=1.2 release=0.1 pid=0 program=python memory=0 opcodes=1",
        "- HANDSHAKE WELCOME session=5 release= band=0x0+0x0 missing=0 devices=['emulated']",
        "- HANDSHAKE ATTACH session=5",
        "- HANDSHAKE ATTACHED",
        "- HANDSHAKE SHM accepted=0 'no memory'",
        "- HANDSHAKE REFUSED 'no such device' status=46",
        "- HANDSHAKE RESUME session=5 lane=CONTROL link=0 epoch=2 received=9",
        "- HANDSHAKE RESUMED received=7",
        "#1 COMMAND rgpuMemAlloc(bytes=4096) thread=1 context=1",
        "#1 REPLY rgpuMemAlloc(dptr=0x200000000000) thread=1 watermark=2",
        "#1 REPLY rgpuMemAlloc() thread=1 status=2",
        "#2 DELIVERY rgpuCopyDtoHLater offset=64 LAST +3 bytes",
        "- NOTICE LOG(level=1, text='a\\nb')",
        "- CONTROL BYE()",
        "#3 COMMAND opcode 0x0301 MALFORMED: rgpuMemAlloc: the flag WANTS_REPLY does not fit the command's row",
        "- HANDSHAKE opcode 0x004d MALFORMED: unknown handshake message 77",
    ]
    assert list(lines(stream)) == expected
    cut = list(lines(stream[:-HEADER_BYTES] + b"x"))
    assert cut[-1] == "- MALFORMED: a header has 40 bytes, but only 1 are left"
    recorded = tmp_path / "stream"
    recorded.write_bytes(stream)
    assert main([str(recorded)]) == 0
    assert capsys.readouterr().out.splitlines() == expected
    assert main([]) == 2
