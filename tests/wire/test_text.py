"""Which characters of a peer's text are clean: Unicode's word, and the same in Python and C++."""

from __future__ import annotations

import struct
import sys
import unicodedata

import pytest
from helpers.native_abi import REFUSED, channel_roundtrip, handshake_roundtrip

from rgpu_common.texts import harmless, one_line
from rgpu_common.wire import worker as wk
from rgpu_common.wire.fields import clean_text
from rgpu_common.wire.frame import WireError
from rgpu_common.wire.handshake import Handshake
from rgpu_common.wire.refused import decode_refused
from rgpu_common.wire.scalars import cleaned, unclean


def blocks(text: str) -> list[str]:
    """Pieces of text that fit into a sentence and into a line, whatever their characters are."""
    return [text[at : at + 1024] for at in range(0, len(text), 1024)]


ALL = "".join(map(chr, range(sys.maxunicode + 1)))
UNCLEAN = [c for block in blocks(ALL) if unclean(block) for c in block if unclean(c)]
# Unassigned, but reserved for characters that are not shown.
RESERVED = {"\u2065", *map(chr, range(0xE0000, 0xE0080))}


def sized(data: bytes) -> bytes:
    return struct.pack("<I", len(data)) + data


def read_by_both(data: bytes) -> bool:
    """Returns whether the sentence of a REFUSED is accepted. Both readers must say the same."""
    native = handshake_roundtrip(Handshake.REFUSED, sized(data))
    try:
        ours = decode_refused(sized(data)).sentence
    except WireError:
        assert native == REFUSED
        return False
    assert native == sized(data)
    assert ours.encode() == data
    return True


def test_unclean_is_what_unicode_calls_control_format_or_a_line_end() -> None:
    for c in ALL:
        category = unicodedata.category(c)
        if category == "Cn" and c not in RESERVED:
            continue  # this Python does not know it, or nobody does
        expected = category in {"Cc", "Cf", "Zl", "Zp", "Cs"} or c in RESERVED
        assert unclean(c) == expected, f"U+{ord(c):04X} {category}"


def test_every_clean_character_is_read_by_both_and_every_other_is_refused() -> None:
    for block in blocks(cleaned(ALL).replace("?", "")):
        assert read_by_both(block.encode())
    for c in UNCLEAN:
        assert not read_by_both(b"a" + c.encode(errors="surrogatepass") + b"b"), f"U+{ord(c):04X}"


def test_both_replace_the_same_characters_of_a_line() -> None:
    for block in blocks(ALL):
        body = sized(block.encode(errors="surrogatepass"))
        read = wk.decode_ended(body)
        assert channel_roundtrip("worker", wk.MessageType.ENDED, body) == wk.put_ended(read)
        assert not unclean(read.reason)
        if not unclean(block):
            assert read.reason == block


@pytest.mark.parametrize(
    "data",
    [
        b"\xe2\x82",
        b"a\xe0\x80\x80b",
        b"\xf0\x9f\x98",
        b"\xf4\x90\x80\x80",
        b"\xc3(",
        b"\xff\xe2A\x80",
    ],
)
def test_both_replace_each_byte_that_is_no_utf_8(data: bytes) -> None:
    read = wk.decode_ended(sized(data))
    assert read.reason.encode() == bytes(b if b < 0x80 else ord("?") for b in data)
    assert channel_roundtrip("worker", wk.MessageType.ENDED, sized(data)) == wk.put_ended(read)


def test_what_we_print_has_no_unclean_character() -> None:
    """The texts for logs and terminals are held to `str.isprintable`, which leaves out more."""
    assert not any(map(str.isprintable, UNCLEAN))
    assert not any(unclean(one_line(c)) for c in UNCLEAN)
    assert {c for c in UNCLEAN if unclean(harmless(c))} == {"\n", "\t"}


@pytest.mark.parametrize(
    "text",
    ["ärmel", "Żółć", "中文", "日本語\u3000", "עברית", "العربية", "😀", "❤\ufe0f", "e\u0301"],
)
def test_letters_accents_and_emoji_pass(text: str) -> None:
    assert read_by_both(text.encode())
    assert clean_text(text, 100) == text
