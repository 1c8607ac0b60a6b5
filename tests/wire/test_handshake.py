"""The messages that open a session: Python against C++, and hostile ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from helpers.corrupt import corrupted_words, hostile_words, prefixes
from helpers.native_abi import REFUSED, UNKNOWN, handshake_roundtrip
from hypothesis import given, settings
from hypothesis import strategies as st

from rgpu_common.wire import preface as pf
from rgpu_common.wire import resume as rs
from rgpu_common.wire.attach import (
    Attach,
    decode_attach,
    encode_attach,
    encode_attached,
    put_attach,
)
from rgpu_common.wire.fields import MAX_BANDS, Band, Wish, clean_text
from rgpu_common.wire.frame import HEADER_BYTES, Kind, WireError, parse_header
from rgpu_common.wire.handshake import (
    MAX_ACCESS_TOKEN_BYTES,
    MAX_NAME_BYTES,
    MAX_OPCODES,
    MAX_SENTENCE_BYTES,
    Handshake,
)
from rgpu_common.wire.hello import (
    WISHES_MINOR,
    Hello,
    OpcodeHash,
    decode_hello,
    encode_hello,
    put_hello,
)
from rgpu_common.wire.refused import Refused, decode_refused, encode_refused, put_refused
from rgpu_common.wire.shm import Shm, decode_shm, put_shm
from rgpu_common.wire.status import CUDA_ERROR_DEVICE_UNAVAILABLE
from rgpu_common.wire.welcome import (
    MAX_ATTRIBUTES,
    MAX_DEVICES,
    Attribute,
    DeviceInfo,
    Welcome,
    decode_welcome,
    encode_welcome,
    put_welcome,
)

if TYPE_CHECKING:
    from collections.abc import Callable

QUICK = settings(max_examples=30, deadline=None, database=None)

TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc", "Cf", "Cn", "Zl", "Zp"]), max_size=40)
U16, U32, U64 = (st.integers(0, (1 << bits) - 1) for bits in (16, 32, 64))
I32 = st.integers(-(1 << 31), (1 << 31) - 1)
BAND = st.builds(Band, st.integers(0, 1 << 47), st.integers(0, 1 << 47))
BANDS = st.lists(BAND, max_size=3).map(tuple)
SECRET = st.binary(min_size=32, max_size=32)

HELLO = st.builds(
    Hello, major=st.just(1), minor=st.sampled_from([0, 1, 2, 65535]), release=TEXT, access_token=TEXT, lease_key=TEXT, tenant=TEXT,
    container=TEXT, program=TEXT, pid=U32, device=I32, memory_bytes=U64, share_request_ppm=U32,
    share_limit_ppm=U32, resume_session=U64, resume_seq=U64, device_bands=BANDS,
    pinned_bands=BANDS, opcodes=st.lists(st.builds(OpcodeHash, U16, U32), max_size=3).map(tuple),
    wishes=st.lists(st.builds(Wish, U16, U64), max_size=3).map(tuple),
).map(lambda m: m if m.minor >= WISHES_MINOR else m._replace(wishes=()))  # fmt: skip
DEVICE = st.builds(
    DeviceInfo, name=TEXT, uuid=st.binary(min_size=16, max_size=16), total_bytes=U64,
    pci_bus_id=TEXT, attributes=st.lists(st.builds(Attribute, I32, I32), max_size=3).map(tuple),
    default_pool=U64, least_priority=I32, greatest_priority=I32,
)  # fmt: skip
WELCOME = st.builds(
    Welcome, session=U64, secret=SECRET, release=TEXT, band=BAND, pinned=BAND,
    stream_credits=U32, stream_credit_bytes=U64, memory_limit_bytes=U64, driver_version=I32,
    missing=st.lists(U16, max_size=3).map(tuple), devices=st.lists(DEVICE, max_size=2).map(tuple),
    note=TEXT, grants=st.lists(st.builds(Wish, U16, U64), max_size=3).map(tuple),
)  # fmt: skip

PREFACE = st.builds(
    pf.Preface, transport=st.sampled_from(["tls", "ucx", "grpc"]), peer=TEXT, tenant=TEXT,
    authenticated=st.booleans(),
).map(lambda m: m if m.authenticated else m._replace(tenant=""))  # fmt: skip

RESUME = st.builds(
    rs.Resume, session=U64, secret=SECRET, lane=st.sampled_from(rs.Lane), link=st.integers(0, 15),
    epoch=st.integers(1, (1 << 32) - 1), received=U64,
)  # fmt: skip

MESSAGES = {
    Handshake.HELLO: (HELLO, put_hello, decode_hello),
    Handshake.WELCOME: (WELCOME, put_welcome, decode_welcome),
    Handshake.REFUSED: (st.builds(Refused, TEXT), put_refused, decode_refused),
    Handshake.ATTACH: (st.builds(Attach, U64, SECRET), put_attach, decode_attach),
    Handshake.PREFACE: (PREFACE, pf.put_preface, pf.decode_preface),
    Handshake.RESUME: (RESUME, rs.put_resume, rs.decode_resume),
    Handshake.RESUMED: (st.builds(rs.Resumed, U64), rs.put_resumed, rs.decode_resumed),
    Handshake.SHM: (st.builds(Shm, st.integers(0, 1), TEXT), put_shm, decode_shm),
}
ALL = [pytest.param(opcode, *row, id=opcode.name) for opcode, row in MESSAGES.items()]


def _accepts(decode: Callable[[bytes], object], head: bytes) -> bool:
    try:
        decode(head)
    except WireError:
        return False
    return True


@pytest.mark.parametrize(("opcode", "strategy", "put", "decode"), ALL)
@QUICK
@given(data=st.data())
def test_round_trip(opcode, strategy, put, decode, data: st.DataObject) -> None:  # type: ignore[no-untyped-def] # noqa: ANN001
    message = data.draw(strategy)
    head = put(message)
    assert decode(head) == message
    assert handshake_roundtrip(opcode, head) == head
    # A WELCOME that ends where grants might begin is one of an earlier minor.
    whole = put(message._replace(grants=())) if opcode is Handshake.WELCOME else b""
    for damaged in (*prefixes(head), head + b"\0"):
        if damaged == whole:
            continue
        assert handshake_roundtrip(opcode, damaged) == REFUSED
        assert not _accepts(decode, damaged)


@pytest.mark.parametrize(("opcode", "strategy", "put", "decode"), ALL)
@settings(QUICK, max_examples=10)
@given(data=st.data(), mask=st.integers(1, 0xFFFFFFFF))
def test_every_word_corrupted(opcode, strategy, put, decode, data, mask) -> None:  # type: ignore[no-untyped-def] # noqa: ANN001
    head = put(data.draw(strategy))
    for damaged in (*corrupted_words(head, mask), *hostile_words(head)):
        result = handshake_roundtrip(opcode, damaged)
        assert _accepts(decode, damaged) == (result != REFUSED)
        if result != REFUSED and not (opcode is Handshake.HELLO and decode(damaged).major != 1):
            assert result == damaged


@QUICK
@given(noise=st.binary(max_size=200))
def test_noise(noise: bytes) -> None:
    for opcode, (_, _, decode) in MESSAGES.items():
        assert _accepts(decode, noise) == (handshake_roundtrip(opcode, noise) != REFUSED)
    assert handshake_roundtrip(99, noise) == UNKNOWN


def _hello(**fields: object) -> bytes:
    return put_hello(Hello(**fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "head",
    [
        _hello(access_token="x" * (MAX_ACCESS_TOKEN_BYTES + 1)),
        _hello(tenant="x" * (MAX_NAME_BYTES + 1)),
        _hello(tenant="a\nb"),
        _hello(tenant="a\x7fb"),
        _hello(tenant="a\x9bb"),
        _hello(tenant="a\u202eb"),
        _hello(lease_key="a\u200bb"),
        _hello(device_bands=((0, 1),) * (MAX_BANDS + 1)),
        _hello(device_bands=(((1 << 64) - 1, 1),)),
        _hello(opcodes=((1, 1),) * (MAX_OPCODES + 1)),
        _hello()[1:],
        _hello(tenant="xx").replace(b"xx", b"\xc3\x28"),
        _hello(tenant="xxx").replace(b"xxx", b"\xed\xa0\x80"),
        _hello(tenant="xx").replace(b"xx", b"\xc0\xaf"),
    ],
)
def test_a_hostile_hello_is_refused_by_both(head: bytes) -> None:
    assert handshake_roundtrip(Handshake.HELLO, head) == REFUSED
    with pytest.raises(WireError):
        decode_hello(head)


def test_the_longest_of_everything_is_accepted() -> None:
    head = _hello(
        access_token="x" * MAX_ACCESS_TOKEN_BYTES,
        program="x" * MAX_SENTENCE_BYTES,
        opcodes=((1, 1),) * MAX_OPCODES,
        device_bands=((1, 1),) * MAX_BANDS,
    )
    assert handshake_roundtrip(Handshake.HELLO, head) == head
    attributes = ((1, 1),) * MAX_ATTRIBUTES
    head = put_welcome(
        Welcome(devices=(DeviceInfo(attributes=attributes),) * MAX_DEVICES)  # type: ignore[arg-type]
    )
    assert len(head) < 64 << 10
    assert handshake_roundtrip(Handshake.WELCOME, head) == head


def test_another_major_is_told_apart() -> None:
    assert decode_hello(_hello(major=2, tenant="later")) == Hello(major=2)


@pytest.mark.parametrize(
    "preface",
    [
        pf.Preface(""),
        pf.Preface("tls", tenant="alice"),
        pf.Preface("t" * (pf.MAX_TRANSPORT_BYTES + 1)),
        pf.Preface("tls", "1.2.3.4\n"),
    ],
)
def test_a_preface_that_makes_no_sense_is_refused_by_both(preface: pf.Preface) -> None:
    head = pf.put_preface(preface)
    assert handshake_roundtrip(Handshake.PREFACE, head) == REFUSED
    with pytest.raises(WireError):
        pf.decode_preface(head)


def test_frames() -> None:
    refused = encode_refused(CUDA_ERROR_DEVICE_UNAVAILABLE, "no\nlease")
    header = parse_header(refused)
    assert (header.kind, header.opcode, header.status) == (Kind.HANDSHAKE, Handshake.REFUSED, 46)
    assert decode_refused(refused[HEADER_BYTES:]).sentence == "no?lease"
    assert parse_header(encode_attached()).payload_bytes == 0
    for frame, opcode in (
        (encode_hello(Hello()), Handshake.HELLO),
        (encode_welcome(Welcome()), Handshake.WELCOME),
        (encode_attach(Attach()), Handshake.ATTACH),
        (pf.encode_preface(pf.Preface("tls")), Handshake.PREFACE),
    ):
        assert parse_header(frame).opcode == opcode


def test_clean_text() -> None:
    assert clean_text("a\x00b\x7f", 10) == "a?b?"
    assert clean_text("\x9b2J\xa0", 10) == "?2J\xa0"
    assert clean_text("ab€", 4) == "ab"
    assert clean_text("\ud800", 4) == "?"
