"""The line of the array seam: messages of a head and a body over any transport of the C++ parts."""

from __future__ import annotations

import ctypes
import functools
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rgpu_common.parts import native_library
from rgpu_common.wire.frame import MAX_HEAD_BYTES, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Progress = Callable[[int], None]

# Python handles signals between two waits.
_SLICE_MS = 200
_TEXT_BYTES = 1024
_NOTICE_SECONDS = 1.0
_DONE = 1
_UNKNOWN = "the other end closed the connection"


class LineError(ConnectionError):
    """The line is lost, or the other end has broken the format."""


class Woken(Exception):
    """The wait was ended by `wake`, or its time has passed."""


class _Fields(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_uint32),
        ("opcode", ctypes.c_uint32),
        ("status", ctypes.c_int32),
        ("head_bytes", ctypes.c_uint32),
    )


class _Part(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("bytes", ctypes.c_uint64))


@dataclass(frozen=True, slots=True)
class Message:
    """What has arrived. The `body_bytes` of its body are still on the line."""

    kind: Kind
    opcode: int
    status: int
    head: bytes = field(repr=False)
    body_bytes: int


class Line:
    """One end of a session's line. One thread may send while another receives."""

    def __init__(self, handle: int) -> None:
        self._native = _native()
        self._handle: int | None = handle
        self._fields = _Fields()
        # Of the message that is being sent, under the lock `_sending`.
        self._sent = _Fields()
        self._head = ctypes.create_string_buffer(MAX_HEAD_BYTES)
        self._bytes = ctypes.c_uint64()
        self._sending = threading.Lock()

    @classmethod
    def connect(cls, uri: str, seconds: float) -> Line:
        """Connects to a server's address.

        Raises:
            LineError: it cannot be reached; the sentence says why.
        """
        why = ctypes.create_string_buffer(_TEXT_BYTES)
        handle = _native().rgpu_line_open(uri.encode(), round(seconds * 1000), why, len(why))
        if handle is None:
            raise LineError(why.value.decode(errors="replace"))
        return cls(handle)

    @classmethod
    def adopted(cls, descriptor: int) -> Line:
        """Takes over a connected stream socket.

        Raises:
            LineError: the descriptor is none.
        """
        handle = _native().rgpu_line_adopt(descriptor)
        if handle is None:
            raise LineError("the descriptor given is not a connected socket")
        return cls(handle)

    @property
    def transport(self) -> str:
        """The transport's name, as `tcp`."""
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        self._native.rgpu_line_kind(self._open(), text, len(text))
        return text.value.decode()

    def send(
        self,
        kind: int,
        opcode: int,
        head: bytes,
        body: Sequence[memoryview] = (),
        status: int = 0,
        progress: Progress | None = None,
    ) -> None:
        """Sends a message. The memory of `body` is read before this returns. Any thread may send.

        progress: called with the bytes that are left, a few times a second.

        Raises:
            LineError: the line is lost.
        """
        with self._sending:
            self._send(kind, opcode, head, body, status, progress)

    def notice(self, opcode: int, head: bytes, status: int = 0) -> None:
        """Sends a notice, unless another thread's message is not taken by the other end.

        Raises:
            LineError: the line is lost.
        """
        if self._sending.acquire(timeout=_NOTICE_SECONDS):
            try:
                self._send(Kind.NOTICE, opcode, head, (), status)
            finally:
                self._sending.release()

    def _send(
        self,
        kind: int,
        opcode: int,
        head: bytes,
        body: Sequence[memoryview],
        status: int,
        progress: Progress | None = None,
    ) -> None:
        handle, native, fields = self._open(), self._native, self._sent
        fields.kind, fields.opcode, fields.status = kind, opcode, status
        fields.head_bytes = len(head)
        # `kept` holds the memory that the parts point to until all of it is sent.
        parts, kept = _parts(body) if body else (None, ())
        state = native.rgpu_line_send(handle, ctypes.byref(fields), head, parts, len(kept))
        if state == _DONE:
            while (state := native.rgpu_line_push(handle, _SLICE_MS)) == 0:
                if progress is not None:
                    progress(native.rgpu_line_left(handle))
        if state != _DONE:
            raise self._lost()

    def next(self, timeout_ms: int | None = None) -> Message:
        """Waits for the next message; the body of the one before must have been read.

        Raises:
            LineError: the line is lost, or the other end has broken the format.
            Woken: the time has passed, or `wake` was called (with a time only).
        """
        handle, fields = self._open(), self._fields
        slice_ms = _SLICE_MS if timeout_ms is None else timeout_ms
        state = 0
        while state == 0:
            state = self._native.rgpu_line_next(
                handle, slice_ms, ctypes.byref(fields), self._head, ctypes.byref(self._bytes)
            )
            if state == 0 and timeout_ms is not None:
                raise Woken
        if state != _DONE:
            raise self._lost()
        head = ctypes.string_at(self._head, fields.head_bytes)
        return Message(Kind(fields.kind), fields.opcode, fields.status, head, self._bytes.value)

    def read_into(self, to: memoryview, progress: Progress | None = None) -> None:
        """Reads the next bytes of the body straight into a contiguous, writable buffer.

        progress: called with the bytes that are left, a few times a second.

        Raises:
            LineError: the line is lost, or the body is shorter.
        """
        size = to.nbytes
        if size == 0:
            return
        flat = (ctypes.c_char * size).from_buffer(to.cast("B") if to.ndim != 1 else to)
        self._read(ctypes.addressof(flat), size, progress)

    def skip(self, size: int) -> None:
        """Drops the next bytes of the body."""
        self._read(None, size)

    def wake(self) -> None:
        """Ends a wait of another thread."""
        self._native.rgpu_line_wake(self._open())

    def check(self) -> None:
        """Looks whether the other end is there, without reading.

        Raises:
            LineError: it has closed the line.
        """
        if self._native.rgpu_line_gone(self._open()):
            raise LineError(_UNKNOWN)

    def shutdown(self) -> None:
        """Ends both directions: whoever waits gets LineError."""
        if self._handle is not None:
            self._native.rgpu_line_shutdown(self._handle)

    def abandon(self) -> None:
        """In a forked child: gives up the line without a word to the other end."""
        if self._handle is not None:
            self._native.rgpu_line_abandon(self._handle)
            self._handle = None

    def close(self) -> None:
        """Ends the line and frees it. No other thread may be using it."""
        handle, self._handle = self._handle, None
        if handle is not None:
            self._native.rgpu_line_close(handle)

    def _read(self, address: int | None, size: int, progress: Progress | None = None) -> None:
        handle, done = self._open(), ctypes.c_uint64()
        while size > 0:
            done.value = size
            state = self._native.rgpu_line_read(handle, address, ctypes.byref(done), _SLICE_MS)
            if state not in (0, _DONE):
                raise self._lost()
            size -= done.value
            if progress is not None and size:
                progress(size)
            if address is not None:
                address += done.value

    def _open(self) -> int:
        if self._handle is None:
            raise LineError("the session is closed")
        return self._handle

    def _lost(self) -> LineError:
        why = ctypes.create_string_buffer(_TEXT_BYTES)
        self._native.rgpu_line_error(self._open(), why, len(why))
        return LineError(why.value.decode(errors="replace") or _UNKNOWN)


def _parts(body: Sequence[memoryview]) -> tuple[Any, list[Any]]:
    """Returns the parts of a body, and what keeps their memory. Empty ones are left out."""
    kept = [_address(one) for one in body if one.nbytes]
    parts = (_Part * max(1, len(kept)))()
    for at, (address, size, _) in enumerate(kept):
        parts[at] = _Part(address, size)
    return parts, kept


def _address(view: memoryview) -> tuple[int, int, Any]:
    """Returns where a contiguous buffer lies; what is read-only too."""
    buffer = _PyBuffer()
    get = ctypes.pythonapi.PyObject_GetBuffer
    if get(ctypes.py_object(view), ctypes.byref(buffer), 0) != 0:
        raise BufferError("the buffer is not contiguous")
    # The memoryview, which the caller keeps, holds the memory.
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(buffer))
    return int(buffer.buf or 0), view.nbytes, view


class _PyBuffer(ctypes.Structure):
    """CPython's Py_buffer, with fields that its stable ABI has since 3.11."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_void_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


def warm_up() -> None:
    """Loads the compiled part, for a process that gives up its rights to read files later."""
    _native()


@functools.cache
def _native() -> Any:
    library: Any = ctypes.CDLL(str(native_library()))
    pointer, text, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
    number, unsigned, long = ctypes.c_int, ctypes.c_uint32, ctypes.POINTER(ctypes.c_uint64)
    fields = ctypes.POINTER(_Fields)
    declared: dict[str, tuple[Any, Sequence[Any]]] = {
        "open": (pointer, (text, number, pointer, size)),
        "adopt": (pointer, (number,)),
        "send": (number, (pointer, fields, text, ctypes.POINTER(_Part), unsigned)),
        "push": (number, (pointer, number)),
        "left": (ctypes.c_uint64, (pointer,)),
        "next": (number, (pointer, number, fields, pointer, long)),
        "read": (number, (pointer, pointer, long, number)),
        "wake": (None, (pointer,)),
        "gone": (number, (pointer,)),
        "shutdown": (None, (pointer,)),
        "abandon": (None, (pointer,)),
        "error": (None, (pointer, pointer, size)),
        "kind": (None, (pointer, pointer, size)),
        "close": (None, (pointer,)),
    }
    for name, (returns, takes) in declared.items():
        function: Callable[..., Any] = getattr(library, f"rgpu_line_{name}")
        function.restype, function.argtypes = returns, list(takes)  # type: ignore[attr-defined]
    return library
