"""The memory that a session is charged for in its lease's page."""

from __future__ import annotations

import ctypes
import functools
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from rgpu_common.parts import native_library

if TYPE_CHECKING:
    from rgpu_server.arrays.turns import Turns


class Ledger:
    """One session's slot of a lease's page. Callable in any thread; sizes are bytes.

    Another session of the lease may have freed memory and then told this one. So a refusal waits
    for what is on its way (`PatienceWithOthers` of native/lease/page.h), and the lease has no turn
    meanwhile: it would hold the device and compute nothing.
    """

    def __init__(self, address: int, slot: int, gate: Turns | None = None) -> None:
        """Charges the slot of the page that is mapped at an address, which stays mapped.

        gate: the session's; given back while an operation waits for memory.
        """
        self._native = native()
        self._page, self._slot, self._gate = address, slot, gate

    def charge(self, size: int) -> bool:
        """Charges so much as soon as the lease has room for it. False: nothing is charged."""
        charged = self.charge_before(size)
        if charged:
            self.raise_peak()
        return charged

    def charge_before(self, size: int) -> bool:
        """As `charge`, before the device is asked: a peak counts the bytes from `raise_peak` on.
        Who is refused then, or only asked whether there is room, releases them.
        """
        with self._waiting(size):
            return size == 0 or bool(
                self._native.rgpu_lease_charge_before(self._page, self._slot, size)
            )

    def _waiting(self, size: int) -> AbstractContextManager[None]:
        """Gives the turn back for the time of a charge that has to wait for room."""
        free = self.limit - int(self._native.rgpu_lease_charged(self._page))
        return nullcontext() if self._gate is None or size <= free else self._gate.away()

    def raise_peak(self) -> None:
        """What is charged is in use."""
        self._native.rgpu_lease_raise_peak(self._page, self._slot)

    def await_room(self, size: int) -> bool:
        """Returns whether the sessions of the lease may allocate so much."""
        return bool(self._native.rgpu_lease_await_room(self._page, self._slot, size))

    def count(self, size: int) -> None:
        """Charges memory that exists already, also above the limit."""
        self._native.rgpu_lease_count(self._page, self._slot, size)

    def release(self, size: int) -> None:
        """Takes a charge back, at most what is charged to the session."""
        self._native.rgpu_lease_release(self._page, self._slot, size)

    @property
    def used(self) -> int:
        """What all sessions of the lease have allocated."""
        return int(self._native.rgpu_lease_used(self._page))

    @property
    def room(self) -> int:
        """What the sessions of the lease may still allocate."""
        return max(0, self.limit - self.used)

    @property
    def own(self) -> int:
        """What is charged to this session, with what its pools keep."""
        return int(self._native.rgpu_lease_slot_charged(self._page, self._slot))

    @property
    def limit(self) -> int:
        """What the sessions of the lease may hold together. It can change at any time."""
        return int(self._native.rgpu_lease_limit(self._page))


@functools.cache
def native() -> Any:
    """Returns the C functions. They are loaded once, because a confined worker opens no files."""
    library: Any = ctypes.CDLL(str(native_library()))
    page, u32, u64 = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64
    for name, result, arguments in (
        ("charge", ctypes.c_int, [page, u32, u64]),
        ("charge_before", ctypes.c_int, [page, u32, u64]),
        ("raise_peak", None, [page, u32]),
        ("await_room", ctypes.c_int, [page, u32, u64]),
        ("count", None, [page, u32, u64]),
        ("release", None, [page, u32, u64]),
        ("used", u64, [page]),
        ("charged", u64, [page]),
        ("slot_charged", u64, [page, u32]),
        ("limit", u64, [page]),
    ):
        function = getattr(library, f"rgpu_lease_{name}")
        function.restype, function.argtypes = result, arguments
    return library
