"""Header blocks of HTTP/2 (RFC 7541), for a peer that was told not to keep a dynamic table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rgpu_common.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable

Headers = list[tuple[str, str]]

MAX_BLOCK_BYTES: Final = 64 << 10
_MAX_FIELDS = 200

# RFC 7541, appendix A: name and value, "name" for an empty value.
_STATIC: Final = tuple(
    (name, value)
    for name, _, value in (
        text.partition("=")
        for text in (
            ":authority", ":method=GET", ":method=POST", ":path=/", ":path=/index.html",
            ":scheme=http", ":scheme=https", ":status=200", ":status=204", ":status=206",
            ":status=304", ":status=400", ":status=404", ":status=500", "accept-charset",
            "accept-encoding=gzip, deflate", "accept-language", "accept-ranges", "accept",
            "access-control-allow-origin", "age", "allow", "authorization", "cache-control",
            "content-disposition", "content-encoding", "content-language", "content-length",
            "content-location", "content-range", "content-type", "cookie", "date", "etag",
            "expect", "expires", "from", "host", "if-match", "if-modified-since",
            "if-none-match", "if-range", "if-unmodified-since", "last-modified", "link",
            "location", "max-forwards", "proxy-authenticate", "proxy-authorization", "range",
            "referer", "refresh", "retry-after", "server", "set-cookie",
            "strict-transport-security", "transfer-encoding", "user-agent", "vary", "via",
            "www-authenticate",
        )
    )
)  # fmt: skip

# RFC 7541, appendix B.  The code is canonical, so its lengths say everything: bits -> octets.
_HUFFMAN: Final = {
    5: b"012aceiost",
    6: b" %-./3456789=A_bdfghlmnpru",
    7: b":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz",
    8: b"&*,;XZ",
    10: b'!"()?',
    11: b"'+|",
    12: b"#>",
    13: b"\x00$@[]~",
    14: b"^}",
    15: b"<`{",
    19: b"\\\xc3\xd0",
    20: bytes.fromhex("808283a2b8c2e0e2"),
    21: bytes.fromhex("99a1a7acb0b1b3d1d8d9e3e5e6"),
    22: bytes.fromhex("8184858688929a9ca0a3a4a9aaadb2b5b9babbbdbec4c6e4e8e9"),
    23: bytes.fromhex("0187898a8b8c8d8f93959697989b9d9ea5a6a8aeafb4b6b7bcbfc5e7ef"),
    24: bytes.fromhex("098e9091949fabced7e1eced"),
    25: bytes.fromhex("c7cfeaeb"),
    26: bytes.fromhex("c0c1c8c9cacdd2d5dadbeef0f2f3ff"),
    27: bytes.fromhex("cbccd3d4d6dddedff1f4f5f6f7f8fafbfcfdfe"),
    28: bytes.fromhex("020304050607080b0c0e0f1011121314151718191a1b1c1d1e1f7fdcf9"),
    30: b"\n\r\x16",
}


def _codes() -> dict[tuple[int, int], int]:
    """(bits, code) -> octet."""
    found, code, length = {}, 0, 0
    for bits, octets in _HUFFMAN.items():
        for octet in octets:
            code <<= bits - length
            length = bits
            found[length, code] = octet
            code += 1
    return found


_CODES: Final = _codes()
_LONGEST: Final = 30


def encode(headers: Iterable[tuple[str, str]]) -> bytes:
    """Returns a block of literals that no proxy on the way may keep either."""
    block = bytearray()
    for name, value in headers:
        block.append(0x10)
        for text in (name, value):
            octets = text.encode()
            block += _integer(len(octets), 7) + octets
    return bytes(block)


def decode(block: bytes) -> Headers:
    """Returns the fields of a block.

    Raises:
        ProtocolError: it is none.
    """
    reader, headers = _Reader(block), []
    while reader.at < len(block):
        first = block[reader.at]
        if first & 0x80:
            headers.append(_static(reader.integer(7)))
        elif first & 0xE0 == 0x20:
            reader.integer(5)  # the size of a table that is not there
        else:
            index = reader.integer(6 if first & 0x40 else 4)
            name = _static(index)[0] if index else reader.text()
            headers.append((name, reader.text()))
        if len(headers) > _MAX_FIELDS:
            raise ProtocolError("the server sent too many headers")
    return headers


def _integer(value: int, bits: int) -> bytes:
    most = (1 << bits) - 1
    if value < most:
        return bytes((value,))
    out = bytearray((most,))
    value -= most
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _static(index: int) -> tuple[str, str]:
    if not 1 <= index <= len(_STATIC):
        raise ProtocolError(f"the server sent the header index {index}, which was not agreed")
    return _STATIC[index - 1]


class _Reader:
    def __init__(self, block: bytes) -> None:
        self._block = block
        self.at = 0

    def integer(self, bits: int) -> int:
        most = (1 << bits) - 1
        value = self._octet() & most
        if value < most:
            return value
        for shift in range(0, 28, 7):
            octet = self._octet()
            value += (octet & 0x7F) << shift
            if octet < 0x80:
                return value
        raise ProtocolError("the server sent a header length that is none")

    def text(self) -> str:
        if self.at >= len(self._block):
            raise ProtocolError("the server's headers end too early")
        packed = self._block[self.at] & 0x80
        length = self.integer(7)
        octets = self._block[self.at : self.at + length]
        if len(octets) < length:
            raise ProtocolError("the server's headers end too early")
        self.at += length
        return (_unpack(octets) if packed else octets).decode("latin-1")

    def _octet(self) -> int:
        if self.at >= len(self._block):
            raise ProtocolError("the server's headers end too early")
        self.at += 1
        return self._block[self.at - 1]


def _unpack(octets: bytes) -> bytes:
    out, code, length = bytearray(), 0, 0
    for octet in octets:
        for bit in range(7, -1, -1):
            code, length = code << 1 | octet >> bit & 1, length + 1
            found = _CODES.get((length, code))
            if found is not None:
                out.append(found)
                code = length = 0
            elif length >= _LONGEST:
                raise ProtocolError("the server sent a header text that is none")
    if length > 7 or code != (1 << length) - 1:
        raise ProtocolError("the server sent a header text that is none")
    return bytes(out)
