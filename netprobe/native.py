"""The measuring end of a probe: C++ moves the bytes, called by ctypes."""

from __future__ import annotations

import ctypes
import functools
import ipaddress
from typing import TYPE_CHECKING, Final, NamedTuple

from rgpu_common.closing import Closing
from rgpu_common.errors import ProtocolError, ServerError
from rgpu_common.parts import native_library
from rgpu_common.wire.frame import MAGIC, WireError
from rgpu_common.wire.scalars import Reader, Writer

if TYPE_CHECKING:
    from netprobe.estimate import Train

VERSION: Final = 1
ID_BYTES: Final = 16
HOST_BYTES: Final = 32
_NO_ID: Final = bytes(ID_BYTES)
_NO_HOST: Final = bytes(HOST_BYTES)
MAX_ENDPOINTS: Final = 64
MAX_URI_BYTES: Final = 256
_MAX_OFFER_BYTES: Final = 64 << 10
_TEXT_BYTES: Final = 1024
_MAX_VALUES: Final = 256
_MIN_PIECE: Final = 4 << 10
_MAX_PIECE: Final = 256 << 10
_NS: Final = 1e-9
LIFE_SECONDS: Final = 20.0
# Extra time for the name service, besides the time for connecting.
_NAME_SECONDS: Final = 0.5


class Offer(NamedTuple):
    """What a responder says about its server.

    server: the same on every path to it. host: identifies its machine to processes there
    (identity.py). bytes, seconds: what this probe may use. endpoints: URIs of the server.
    """

    server: bytes = _NO_ID
    nonce: bytes = _NO_ID
    host: bytes = _NO_HOST
    bytes: int = 0
    seconds: float = 0.0
    endpoints: tuple[str, ...] = ()
    grants: int = 0
    version: int = VERSION


def put_offer(offer: Offer) -> bytes:
    """Returns the head of a responder's answer."""
    writer = Writer()
    writer.put("u32", MAGIC)
    writer.put("u16", offer.version)
    writer.put("u16", offer.grants)
    for text in (offer.server, offer.nonce, offer.host):
        writer.put_bytes(text)
    writer.put("u64", offer.bytes)
    writer.put("u32", round(offer.seconds * 1000))
    writer.put("u32", len(offer.endpoints))
    for uri in offer.endpoints:
        writer.put_text(uri)
    return writer.take()


def get_offer(head: bytes) -> Offer:
    """Decodes the offer in a head.

    Raises:
        WireError: the head is not a valid offer.
    """
    reader = Reader(head)
    if reader.integer("u32") != MAGIC:
        raise WireError("the offer does not begin with the magic number")
    version, grants = reader.integer("u16"), reader.integer("u16")
    server, nonce, host = (reader.sized(HOST_BYTES) for _ in range(3))
    if (len(server), len(nonce), len(host)) != (ID_BYTES, ID_BYTES, HOST_BYTES):
        raise WireError("the offer's identity has a wrong length")
    count_bytes, count_ms = reader.integer("u64"), reader.integer("u32")
    count = reader.integer("u32")
    if count > MAX_ENDPOINTS:
        raise WireError(f"the offer has {count} endpoints; at most {MAX_ENDPOINTS} are allowed")
    endpoints = tuple(reader.text(MAX_URI_BYTES) for _ in range(count))
    reader.end()
    if not all(uri.isprintable() for uri in endpoints):
        raise WireError("an endpoint contains unprintable characters")
    return Offer(server, nonce, host, count_bytes, count_ms / 1000, endpoints, grants,
                 version)  # fmt: skip


@functools.lru_cache(maxsize=1)
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(native_library()))
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    u32, u64, i64, size = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int64, ctypes.c_size_t
    values = ctypes.POINTER(u64)
    open_arguments = (text, number, number, values, pointer, ctypes.POINTER(size), text, size)
    for name, result, arguments in (
        ("rgpu_probe_schemes", None, (text, size)),
        ("rgpu_probe_open", pointer, open_arguments),
        ("rgpu_probe_limit", None, (pointer, number)),
        ("rgpu_probe_close", None, (pointer,)),
        ("rgpu_probe_error", None, (pointer, text, size)),
        ("rgpu_probe_kind", None, (pointer, text, size)),
        ("rgpu_probe_ping", i64, (pointer, u32, number, values)),
        ("rgpu_probe_train", i64, (pointer, number, u64, u32, number, values, size)),
        ("rgpu_probe_count", i64, (pointer, u32, u32, values, size)),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, list(arguments)
    return library


def schemes() -> tuple[str, ...]:
    """Returns the URI schemes that this release connects to."""
    text = ctypes.create_string_buffer(_TEXT_BYTES)
    _library().rgpu_probe_schemes(text, len(text))
    return tuple(text.value.decode().split())


class _Opened(NamedTuple):
    """The result of rgpu_probe_open. line: None if nothing answers; then `why` is the reason."""

    line: int | None
    seconds: tuple[float, float]
    offer: bytes
    why: str


def _open(uri: str, timeout: float, life: float) -> _Opened:
    times = (ctypes.c_uint64 * 2)()
    offer = ctypes.create_string_buffer(_MAX_OFFER_BYTES)
    offer_bytes = ctypes.c_size_t(len(offer))
    why = ctypes.create_string_buffer(_TEXT_BYTES)
    line: int | None = _library().rgpu_probe_open(
        uri.encode(), _milliseconds(timeout), _milliseconds(life), times, offer,
        ctypes.byref(offer_bytes), why, len(why),
    )  # fmt: skip
    seconds = times[0] * _NS, times[1] * _NS
    return _Opened(line, seconds, offer.raw[: offer_bytes.value], _shown(why.value))


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def _shown(sentence: bytes) -> str:
    """Returns text that a peer may have sent, without characters that control a terminal."""
    text = sentence.decode(errors="replace")
    return "".join(c if c.isprintable() else "?" for c in text)


def _is_numeric(uri: str) -> bool:
    """Returns True if opening the URI asks no name service."""
    scheme, _, rest = uri.partition(":")
    if scheme in ("unix", "shm"):
        return True
    host = rest.rpartition(":")[0].strip("[]").partition("%")[0]
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _open_in_time(uri: str, timeout: float, life: float) -> _Opened:
    """Like `_open`, but bounds the time that a name service takes. Nothing can interrupt such a
    lookup, so it is left to a thread of its own. Raises ServerError.
    """
    if _is_numeric(uri):
        return _open(uri, timeout, life)
    import queue
    import threading

    found: queue.SimpleQueue[_Opened] = queue.SimpleQueue()
    lock, given_up = threading.Lock(), [False]

    def work() -> None:
        opened = _open(uri, timeout, life)
        with lock:
            found.put(opened)
            if given_up[0] and opened.line is not None:
                _library().rgpu_probe_close(opened.line)

    threading.Thread(target=work, name="netprobe-open", daemon=True).start()
    try:
        return found.get(timeout=2 * timeout + _NAME_SECONDS)
    except queue.Empty:
        with lock:
            given_up[0] = True
            if not found.empty():
                return found.get()
    raise ServerError(
        f"{uri} did not answer in time, or its name is unknown: check the address, and that the "
        "name service answers"
    )


class Line(Closing):
    """The connection of one probe. Every method blocks; C++ takes the times.

    connect_seconds: until the transport was connected. open_seconds: until the offer arrived.
    """

    def __init__(
        self,
        uri: str,
        timeout_seconds: float = 2.0,
        life_seconds: float = LIFE_SECONDS,
        through: str = "",
    ) -> None:
        """Opens the connection.

        timeout_seconds: for each step of opening it. life_seconds: for everything after that,
        unless `limit` changes it. through: the address to connect to if a process of this machine
        carries the path.

        Raises:
            ServerError: nothing answers a probe at that address; the sentence says why.
        """
        self.uri = uri
        opened = _open_in_time(through or uri, timeout_seconds, life_seconds)
        self._line = opened.line
        if self._line is None:
            raise ServerError(opened.why.replace(through, uri) if through else opened.why)
        self.connect_seconds, self.open_seconds = opened.seconds
        try:
            self.offer = get_offer(opened.offer)
        except WireError as error:
            self.close()
            raise ProtocolError(f"{uri} sent an invalid answer to a probe: {error}")\
                from None  # fmt: skip

    def close(self) -> None:
        """Closes the connection."""
        if self._line is not None:
            _library().rgpu_probe_close(self._line)
            self._line = None

    def limit(self, seconds: float) -> None:
        """Bounds the time for everything from now on; after that the connection breaks."""
        _library().rgpu_probe_limit(self._line, _milliseconds(seconds))

    @property
    def kind(self) -> str:
        """The transport's own name."""
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        _library().rgpu_probe_kind(self._line, text, len(text))
        return text.value.decode()

    def ping(self, count: int, seconds: float) -> list[float]:
        """Returns up to `count` round trips of 64 bytes (at least one), in seconds."""
        times = (ctypes.c_uint64 * count)()
        done = _library().rgpu_probe_ping(self._line, count, round(seconds * 1000), times)
        self._check(done)
        return [times[i] * _NS for i in range(done)]

    def train(self, size: int, *, down: bool, seconds: float) -> Train:
        """Moves at most `size` bytes one way; starts no new piece after `seconds`."""
        piece = min(max(size // 16, _MIN_PIECE), _MAX_PIECE)
        values = (ctypes.c_uint64 * _MAX_VALUES)()
        limit = _milliseconds(seconds)
        count = _library().rgpu_probe_train(
            self._line, int(down), size, piece, limit, values, _MAX_VALUES
        )
        self._check(count)
        from netprobe.estimate import Arrival, Train

        arrivals = tuple(Arrival(values[i], values[i + 1] * _NS) for i in range(2, count, 2))
        return Train(values[1], values[0] * _NS, arrivals, down)

    def count(self, messages: int, batch: int) -> float:
        """Sends messages of 64 bytes, `batch` per write; returns the seconds until the answer."""
        values = (ctypes.c_uint64 * _MAX_VALUES)()
        self._check(_library().rgpu_probe_count(self._line, messages, batch, values, _MAX_VALUES))
        return float(values[0] * _NS)

    def _check(self, result: int) -> None:
        if result < 0:
            why = ctypes.create_string_buffer(_TEXT_BYTES)
            _library().rgpu_probe_error(self._line, why, len(why))
            raise ServerError(f"{self.uri}: {_shown(why.value)}")
