"""The memory that a session is charged for in its lease's page."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from rgpu_common.parts import native_library


class Ledger:
    """One session's slot of a lease's page. Callable in any thread; sizes are bytes.

    Another session of the lease may have freed memory and then told this one. So a refusal waits
    for what is on its way (`PatienceWithOthers` of native/lease/page.h). A question for room does
    so without the lease's turn. An operation has the turn, and the lease pays for the wait; the
    client asks before it, but for what it has freed itself.
    """

    def __init__(self, address: int, slot: int) -> None:
        """Charges the slot of the page that is mapped at an address, which stays mapped."""
        self._native = native()
        self._page, self._slot = address, slot

    def charge(self, size: int) -> bool:
        """Charges so much as soon as the lease has room for it. False: nothing is charged."""
        own = self._page, self._slot, size
        # The second one counts the refusal.
        charge = self._native.rgpu_lease_charge
        return size == 0 or bool(self._native.rgpu_lease_await_charge(*own) or charge(*own))

    def charge_before(self, size: int) -> bool:
        """As `charge`, before the device is asked: a peak counts the bytes from `raise_peak` on.
        Who is refused then, or only asked whether there is room, releases them.
        """
        return size == 0 or bool(
            self._native.rgpu_lease_charge_before(self._page, self._slot, size)
        )

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
        ("await_charge", ctypes.c_int, [page, u32, u64]),
        ("charge_before", ctypes.c_int, [page, u32, u64]),
        ("raise_peak", None, [page, u32]),
        ("await_room", ctypes.c_int, [page, u32, u64]),
        ("count", None, [page, u32, u64]),
        ("release", None, [page, u32, u64]),
        ("used", u64, [page]),
        ("slot_charged", u64, [page, u32]),
        ("limit", u64, [page]),
    ):
        function = getattr(library, f"rgpu_lease_{name}")
        function.restype, function.argtypes = result, arguments
    return library
