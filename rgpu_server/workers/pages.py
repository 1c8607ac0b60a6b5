"""Lease pages: shared memory in which a lease's limit and the use of its workers stand.

The layout and its rules are `rgpu_common/native/lease/page.h`; Python calls its C functions.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
from dataclasses import dataclass
from functools import cache

from rgpu_common.errors import WorkerError
from rgpu_common.parts import native_library
from rgpu_server.core.model import PageState, Quota

_SLOT_WORDS = 7


@dataclass(frozen=True, slots=True)
class Counters:
    """What one or several sessions hold and did."""

    used_bytes: int = 0
    peak_bytes: int = 0
    launches: int = 0
    copied_bytes: int = 0
    busy_ns: int = 0
    refused: int = 0

    def __add__(self, other: Counters) -> Counters:
        return Counters(
            self.used_bytes + other.used_bytes,
            self.peak_bytes + other.peak_bytes,
            self.launches + other.launches,
            self.copied_bytes + other.copied_bytes,
            self.busy_ns + other.busy_ns,
            self.refused + other.refused,
        )


@cache
def _native() -> ctypes.CDLL:
    library = ctypes.CDLL(str(native_library()))
    page, u32, u64 = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64
    for name, result, arguments in (
        ("page_bytes", u32, []),
        ("slots", u32, []),
        ("page_init", None, [page, u64]),
        ("used", u64, [page]),
        ("claim_slot", ctypes.c_int, [page, u64]),
        ("clear_slot", None, [page, u32]),
        ("set_limit", None, [page, u64]),
        ("limit", u64, [page]),
        ("set_shares", None, [page, u32, u32]),
        ("set_state", None, [page, u32]),
        ("read_slot", ctypes.c_int, [page, u32, ctypes.POINTER(u64)]),
    ):
        function = getattr(library, f"rgpu_lease_{name}")
        function.restype, function.argtypes = result, arguments
    return library


def slots() -> int:
    """Returns how many sessions fit in one page."""
    return int(_native().rgpu_lease_slots())


def warm_up() -> None:
    """Loads the library and makes a page, so that the first session does not wait for it."""
    LeasePage(Quota(1)).close()


class LeasePage:
    """One page, mapped here and passed to workers by its descriptor."""

    def __init__(self, quota: Quota) -> None:
        native = _native()
        size = int(native.rgpu_lease_page_bytes())
        self.fd = os.memfd_create("rgpu-lease", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, size)
        fcntl.fcntl(
            self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        )
        self._map = mmap.mmap(self.fd, size)
        self._view = (ctypes.c_char * size).from_buffer(self._map)
        self._page = ctypes.addressof(self._view)
        native.rgpu_lease_page_init(self._page, quota.memory_bytes)
        self._ended = Counters()
        self.update(quota, PageState.ACTIVE)

    def update(self, quota: Quota, state: PageState) -> None:
        """Writes limits and state; workers see them with their next charge."""
        native = _native()
        native.rgpu_lease_set_limit(self._page, quota.memory_bytes)
        native.rgpu_lease_set_shares(self._page, quota.share_request_ppm, quota.share_limit_ppm)
        native.rgpu_lease_set_state(self._page, state.value)

    def take(self, slot: int, session: int) -> None:
        """Marks a slot; WorkerError if it is not the lowest free one, as the book of leases
        says.
        """
        claimed = int(_native().rgpu_lease_claim_slot(self._page, session))
        if claimed != slot:
            raise WorkerError(f"the lease page has slot {claimed} free and not {slot}")

    def clear(self, slot: int) -> None:
        """The worker of this slot is gone: keeps its counters, and frees what it held."""
        gone = self.read(slot)
        peak = max(self._ended.peak_bytes, gone.peak_bytes)
        self._ended += Counters(
            launches=gone.launches,
            copied_bytes=gone.copied_bytes,
            busy_ns=gone.busy_ns,
            refused=gone.refused,
        )
        self._ended += Counters(peak_bytes=peak - self._ended.peak_bytes)
        _native().rgpu_lease_clear_slot(self._page, slot)

    def read(self, slot: int) -> Counters:
        """Returns what the session in `slot` holds and did."""
        words = (ctypes.c_uint64 * _SLOT_WORDS)()
        _native().rgpu_lease_read_slot(self._page, slot, words)
        _session, used, peak, launches, copied, busy, refused = words
        return Counters(used, peak, launches, copied, busy, refused)

    def total(self, live: list[int]) -> Counters:
        """Returns the lease's counters: the slots in `live` and all sessions that have ended.

        The peak is an upper bound where several sessions run: the sum of their own peaks.
        """
        running = Counters()
        for slot in live:
            running += self.read(slot)
        peak = max(running.peak_bytes, self._ended.peak_bytes)
        total = running + self._ended
        return total + Counters(peak_bytes=peak - total.peak_bytes)

    def close(self) -> None:
        """Unmaps the page; workers keep their own mapping."""
        del self._view
        self._map.close()
        os.close(self.fd)
