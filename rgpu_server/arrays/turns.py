"""The gate of an array worker: it computes while its lease has the token.

The rules are in `rgpu_common/native/lease/token.h`, and what a worker does about them in `turn.h`.
"""

from __future__ import annotations

import ctypes
import functools
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from rgpu_common.parts import native_library

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Python handles signals, and looks after its client, between two waits.
_WAIT_NS = 200_000_000
_FINISH = ctypes.CFUNCTYPE(ctypes.c_uint64)


class TurnEndedError(RuntimeError):
    """`Turns.end` was called: nothing is computed any more."""


class Clock(Protocol):
    """Measures the time for which the device worked."""

    def mark(self) -> Any:
        """Returns a place behind everything that was issued."""

    def elapsed(self, mark: Any) -> int:
        """Waits until the device has done everything that was issued. Returns the time in ns for
        which it worked since the mark.
        """


class WallClock:
    """The clock of a library whose operations are complete when they return, as NumPy's."""

    def mark(self) -> int:
        """Returns the time in ns."""
        return time.monotonic_ns()

    def elapsed(self, mark: int) -> int:
        """Returns the time since the mark in ns."""
        return time.monotonic_ns() - mark


class Turns:
    """The gate of the session in one slot of a lease's page.

    One thread calls `enter` and `leave`; the others may be called in any thread.
    """

    def __init__(
        self,
        address: int,
        slot: int,
        signal_fd: int,
        clock: Clock | None = None,
        held: Callable[[], None] | None = None,
    ) -> None:
        """Joins the lease of a page.

        Args:
            address: where the page is mapped; it stays mapped until `close`.
            slot: the session's.
            signal_fd: the lease's eventfd. It is duplicated.
            clock: None, or a WallClock: operations are complete when they return.
            held: called about five times a second while an operation is held back. An exception of
                it ends the wait.

        Raises:
            ValueError: there is no such slot, the descriptor is closed, or no thread can be made.
        """
        self._native = native()
        self._held = held
        self._clock = None if isinstance(clock, WallClock) else clock
        # A place before the operations that are not measured yet.
        self._mark: Any = None
        # The function lives as long as the C part, which calls it.
        self._finish = _FINISH() if self._clock is None else _FINISH(self._finished)
        handle = self._native.rgpu_turn_open(address, slot, signal_fd, self._finish)
        if handle is None:
            raise ValueError(f"there is no gate for slot {slot} of this lease's page")
        self._handle: int | None = handle
        self._left = 0
        # The thread that has the turn; 0: it was left.
        self._within = 0
        self._ready = _word(self._native.rgpu_turn_ready(handle))
        self._word = _word(self._native.rgpu_turn_word(address))

    def enter(self) -> None:
        """Waits until the next operation may begin.

        Raises:
            TurnEndedError: `end` was called.
        """
        # This comparison is all that an operation costs while nobody else wants the device.
        if self._left and self._ready[0] == self._word[0]:
            self._left -= 1
            return
        enter, handle = self._native.rgpu_turn_enter, self._handle
        left, self._left = self._left, 0
        while (allowed := enter(handle, left, _WAIT_NS)) == 0:
            left = 0
            if self._held is not None:
                self._held()
        if allowed < 0:
            raise TurnEndedError("the session has ended")
        self._left = allowed - 1
        self._within = threading.get_ident()
        if self._clock is not None and self._mark is None:
            self._mark = self._clock.mark()

    def leave(self) -> None:
        """The last operation has returned, and none follows for now."""
        left, self._left = self._left, 0
        self._within = 0
        self._native.rgpu_turn_leave(self._handle, left)

    @contextmanager
    def away(self) -> Iterator[None]:
        """Lets other leases compute while the operation that runs waits for something else than
        the device. It goes on when the lease has its turn again. Errors as `enter`.

        In a thread that has no turn nothing happens.
        """
        if self._within != threading.get_ident():
            yield
            return
        self.leave()
        try:
            yield
        finally:
            self.enter()

    def end(self) -> None:
        """Lets `enter` raise TurnEndedError within 50 ms, also in future."""
        self._native.rgpu_turn_end(self._handle)

    def _finished(self) -> int:
        """Waits for the device. Returns how long it worked for the operations since the last call,
        in ns. Called with the gate's lock, by any thread.
        """
        mark, self._mark = self._mark, None
        return 0 if mark is None or self._clock is None else self._clock.elapsed(mark)

    def close(self) -> None:
        """Leaves the lease. No other thread is in `enter`."""
        handle, self._handle = self._handle, None
        if handle is not None:
            self._native.rgpu_turn_leave(handle, self._left)
            self._native.rgpu_turn_close(handle)


def _word(address: int) -> memoryview:
    return memoryview((ctypes.c_uint32 * 1).from_address(address)).cast("B").cast("I")


@functools.cache
def native() -> Any:
    """Returns the C functions. They are loaded once, because a confined worker opens no files."""
    library: Any = ctypes.CDLL(str(native_library()))
    pointer, u32, u64 = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64
    for name, result, arguments in (
        ("open", pointer, [pointer, u32, ctypes.c_int, _FINISH]),
        ("enter", ctypes.c_int64, [pointer, u64, u64]),
        ("leave", None, [pointer, u64]),
        ("end", None, [pointer]),
        ("ready", pointer, [pointer]),
        ("word", pointer, [pointer]),
        ("close", None, [pointer]),
    ):
        function = getattr(library, f"rgpu_turn_{name}")
        function.restype, function.argtypes = result, arguments
    return library
