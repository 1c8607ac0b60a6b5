"""Header blocks that share a table, as RFC 7541 has them, and texts in its Huffman code."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rgpu_common.errors import ProtocolError
from rgpu_common.http2 import headers, huffman
from rgpu_common.http2.headers import Decoder

FIRST = [
    (":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "www.example.com"),
]  # fmt: skip
THIRD = [
    (":method", "GET"), (":scheme", "https"), (":path", "/index.html"),
    (":authority", "www.example.com"), ("custom-key", "custom-value"),
]  # fmt: skip


@pytest.mark.parametrize(
    "blocks",
    [
        # RFC 7541, C.3 and C.4.
        (
            "828684410f7777772e6578616d706c652e636f6d",
            "828684be58086e6f2d6361636865",
            "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
        ),
        (
            "828684418cf1e3c2e5f23a6ba0ab90f4ff",
            "828684be5886a8eb10649cbf",
            "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
        ),
    ],
)
def test_requests_that_name_what_was_said_before(blocks: tuple[str, ...]) -> None:
    decoder = Decoder()
    first, second, third = (decoder.decode(bytes.fromhex(block)) for block in blocks)
    assert first == FIRST
    assert second == [*FIRST, ("cache-control", "no-cache")]
    assert third == THIRD


def test_answers_that_push_each_other_out() -> None:
    # RFC 7541, C.6, with a table of 256 bytes.
    decoder = Decoder(256)
    blocks = (
        "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863c78f0b97c8e9ae82ae43d3",
        "4883640effc1c0bf",
        "88c16196d07abe941054d444a8200595040b8166e084a62d1bffc05a839bd9ab77ad94e7821dd7f2e6c7b335dfdfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
    )
    found = [dict(decoder.decode(bytes.fromhex(block))) for block in blocks]
    assert [fields[":status"] for fields in found] == ["302", "307", "200"]
    assert {fields["location"] for fields in found[:2]} == {"https://www.example.com"}
    assert found[2]["set-cookie"] == "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"


def test_a_table_that_shrinks_forgets() -> None:
    decoder = Decoder()
    keep = b"\x40\x01a\x01b"
    assert decoder.decode(keep + b"\xbe") == [("a", "b")] * 2
    assert decoder.decode(b"\x20\x3f\xe1\x1f" + keep) == [("a", "b")]
    assert decoder.decode(b"\xbe") == [("a", "b")]
    decoder.decode(b"\x20")
    with pytest.raises(ProtocolError, match="not agreed"):
        decoder.decode(b"\xbe")


@pytest.mark.parametrize(
    ("block", "words"),
    [
        (b"\x80", "not agreed"),
        (b"\xbe", "not agreed"),
        (b"\x7f\x80\x01\x00", "not agreed"),
        (b"\x3f\xe2\x1f", "not agreed"),
        (b"\x82\x20", "not agreed"),
        (b"\x40\x01", "too early"),
        (b"\x00\x7f\xff\xff\xff\xff\x0f", "that is none"),
        (b"\x82" * 201, "too many"),
        (b"\x40\x01x\x7f\xa1\x1e" + bytes(4000) + b"\xbe" * 20, "too many"),
    ],
)
def test_what_is_no_block(block: bytes, words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        Decoder().decode(block)


@given(st.lists(st.binary(max_size=100), max_size=8))
def test_blocks_are_read_or_refused(blocks: list[bytes]) -> None:
    decoder = Decoder()
    with contextlib.suppress(ProtocolError):
        for block in blocks:
            for name, value in decoder.decode(block):
                assert isinstance(name, str)
                assert isinstance(value, str)


def coded(text: bytes) -> bytes:
    """The text in Huffman code, as RFC 7541 says to make it."""
    lengths: dict[int, tuple[int, int]] = {}
    code = length = 0
    for bits, octets in huffman._OCTETS.items():
        for octet in octets:
            code, length = code << bits - length, bits
            lengths[octet] = code, bits
            code += 1
    bits_text = "".join(f"{lengths[octet][0]:0{lengths[octet][1]}b}" for octet in text)
    bits_text += "1" * (-len(bits_text) % 8)
    return bytes(int(bits_text[at : at + 8], 2) for at in range(0, len(bits_text), 8))


@given(st.binary(max_size=200))
def test_coded_texts_are_read_back(text: bytes) -> None:
    assert huffman.decode(coded(text)) == text


def test_every_octet_has_a_code() -> None:
    assert huffman.decode(coded(bytes(range(256)))) == bytes(range(256))


@pytest.mark.parametrize("octets", [b"\xff", b"\xff\xff\xff\xff", b"\x00", b"\x1f\xff", b"\xfe"])
def test_what_is_no_coded_text(octets: bytes) -> None:
    """Padding is short and all ones; the end of the text has no place in it."""
    with pytest.raises(ProtocolError):
        huffman.decode(octets)


def test_a_client_that_wants_no_table_gets_none() -> None:
    with pytest.raises(ProtocolError, match="not agreed"):
        headers.decode(b"\x40\x01a\x01b\xbe")
