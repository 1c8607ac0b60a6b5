"""Header blocks of HTTP/2 (RFC 7541)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from rgpu_common.errors import ProtocolError
from rgpu_common.http2 import huffman

if TYPE_CHECKING:
    from collections.abc import Iterable

Headers = list[tuple[str, str]]

MAX_BLOCK_BYTES: Final = 64 << 10
# Of all fields that a block stands for, which may be many times its length.
MAX_LIST_BYTES: Final = 64 << 10
TABLE_BYTES: Final = 4096
_MAX_FIELDS = 200
# What each entry counts beside its texts.
_ENTRY_BYTES = 32

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
    """Returns the fields of a block of a peer that was told to keep no table.

    Raises:
        ProtocolError: it is none.
    """
    return Decoder(0).decode(block)


class Decoder:
    """Reads the blocks of a connection, which share a table of at most `most` bytes."""

    def __init__(self, most: int = TABLE_BYTES) -> None:
        self._most = self._limit = most
        # The youngest first.
        self._table: deque[tuple[str, str]] = deque()
        self._size = 0

    def decode(self, block: bytes) -> Headers:
        """Returns the fields of the next block.

        Raises:
            ProtocolError: it is none; the blocks after it cannot be read either.
        """
        reader, headers, left = _Reader(block), Headers(), MAX_LIST_BYTES
        while reader.at < len(block):
            first = block[reader.at]
            if first & 0xE0 == 0x20:
                self._resize(reader.integer(5), not headers)
                continue
            field = self._field(reader, first)
            headers.append(field)
            left -= _size(field)
            if left < 0 or len(headers) > _MAX_FIELDS:
                raise ProtocolError("the peer sent too many headers")
        return headers

    def _field(self, reader: _Reader, first: int) -> tuple[str, str]:
        if first & 0x80:
            return self._entry(reader.integer(7))
        keep = first & 0x40
        index = reader.integer(6 if keep else 4)
        name = self._entry(index)[0] if index else reader.text()
        field = name, reader.text()
        if keep:
            self._size += _size(field)
            self._table.appendleft(field)
            self._evict()
        return field

    def _entry(self, index: int) -> tuple[str, str]:
        if 1 <= index <= len(_STATIC):
            return _STATIC[index - 1]
        if len(_STATIC) < index <= len(_STATIC) + len(self._table):
            return self._table[index - len(_STATIC) - 1]
        raise ProtocolError(f"the peer sent the header index {index}, which was not agreed")

    def _resize(self, limit: int, begins: bool) -> None:
        if limit > self._most or not begins:
            raise ProtocolError("the peer keeps a table of headers that was not agreed")
        self._limit = limit
        self._evict()

    def _evict(self) -> None:
        while self._size > self._limit:
            self._size -= _size(self._table.pop())


def _size(field: tuple[str, str]) -> int:
    return len(field[0]) + len(field[1]) + _ENTRY_BYTES


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
        raise ProtocolError("the peer sent a header length that is none")

    def text(self) -> str:
        if self.at >= len(self._block):
            raise ProtocolError("the peer's headers end too early")
        packed = self._block[self.at] & 0x80
        length = self.integer(7)
        octets = self._block[self.at : self.at + length]
        if len(octets) < length:
            raise ProtocolError("the peer's headers end too early")
        self.at += length
        return (huffman.decode(octets) if packed else octets).decode("latin-1")

    def _octet(self) -> int:
        if self.at >= len(self._block):
            raise ProtocolError("the peer's headers end too early")
        self.at += 1
        return self._block[self.at - 1]
