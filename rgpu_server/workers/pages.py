"""Lease pages: shared memory in which a lease's limit and the use of its workers stand.

The layout and its rules are `rgpu_common/native/lease/page.h`; Python calls its C functions.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
from dataclasses import dataclass, replace
from functools import cache

from rgpu_common.errors import WorkerError
from rgpu_common.parts import native_library
from rgpu_server.core.model import PageState, Quota

_SLOT_WORDS = 9
# Whatever a worker writes, sums of counters fit where they go: files and messages of 64 bits.
_MAX_COUNT = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Counters:
    """What one or several sessions hold and did; sums stay below 2^63."""

    used_bytes: int = 0
    peak_bytes: int = 0
    launches: int = 0
    copied_bytes: int = 0
    busy_ns: int = 0
    refused: int = 0
    copies: int = 0
    held_back_ns: int = 0

    def numbers(self) -> tuple[int, ...]:
        """All of them, in order."""
        return (
            self.used_bytes,
            self.peak_bytes,
            self.launches,
            self.copied_bytes,
            self.busy_ns,
            self.refused,
            self.copies,
            self.held_back_ns,
        )

    def __add__(self, other: Counters) -> Counters:
        pairs = zip(self.numbers(), other.numbers(), strict=True)
        return Counters(*(min(a + b, _MAX_COUNT) for a, b in pairs))


@cache
def _native() -> ctypes.CDLL:
    library = ctypes.CDLL(str(native_library()))
    page, u32, u64 = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64
    for name, result, arguments in (
        ("page_bytes", u32, []),
        ("slots", u32, []),
        ("page_init", None, [page, u64]),
        ("page_valid", ctypes.c_int, [page]),
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
    """One page, mapped here and passed to workers by its descriptor.

    signal_fd: the lease's eventfd, by which workers tell the token loop to look at the page.
    address: where the page lies, for the C functions.
    ended: the counters of the sessions that have ended.
    """

    def __init__(self, quota: Quota) -> None:
        fd = os.memfd_create("rgpu-lease", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(fd, int(_native().rgpu_lease_page_bytes()))
            seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
            signal_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        except OSError:
            os.close(fd)
            raise
        self._attach(fd, signal_fd, Counters())
        _native().rgpu_lease_page_init(self.address, quota.memory_bytes)
        self.update(quota, PageState.ACTIVE)

    @classmethod
    def existing(cls, fd: int, signal_fd: int, ended: Counters) -> LeasePage:
        """A page that another process made; takes over its descriptors.  `ended`: the counters of
        its sessions that have ended.

        Raises:
            WorkerError: it is none.
            OSError: it cannot be mapped; the descriptors are closed either way.
        """
        page = cls.__new__(cls)
        if os.fstat(fd).st_size != int(_native().rgpu_lease_page_bytes()):
            os.close(fd)
            os.close(signal_fd)
            raise WorkerError("what was handed over is no lease page")
        page._attach(fd, signal_fd, ended)
        if not _native().rgpu_lease_page_valid(page.address):
            page.close()
            raise WorkerError("what was handed over is no lease page")
        return page

    def _attach(self, fd: int, signal_fd: int, ended: Counters) -> None:
        self.fd, self.signal_fd, self.ended = fd, signal_fd, ended
        try:
            self._map = mmap.mmap(fd, int(_native().rgpu_lease_page_bytes()))
        except OSError:
            os.close(fd)
            os.close(signal_fd)
            raise
        self._view = (ctypes.c_char * len(self._map)).from_buffer(self._map)
        self.address = ctypes.addressof(self._view)

    def update(self, quota: Quota, state: PageState) -> None:
        """Writes limits and state; workers see them with their next charge."""
        native = _native()
        native.rgpu_lease_set_limit(self.address, quota.memory_bytes)
        native.rgpu_lease_set_shares(self.address, quota.share_request_ppm, quota.share_limit_ppm)
        native.rgpu_lease_set_state(self.address, state.value)

    def take(self, slot: int, session: int) -> None:
        """Marks a slot; WorkerError if it is not the lowest free one, as the book of leases
        says.
        """
        claimed = int(_native().rgpu_lease_claim_slot(self.address, session))
        if claimed != slot:
            raise WorkerError(f"the lease page has slot {claimed} free and not {slot}")

    def clear(self, slot: int) -> None:
        """The worker of this slot is gone: keeps its counters, and frees what it held."""
        gone = self.read(slot)
        peak = max(self.ended.peak_bytes, gone.peak_bytes)
        self.ended += Counters(
            launches=gone.launches,
            copied_bytes=gone.copied_bytes,
            busy_ns=gone.busy_ns,
            refused=gone.refused,
            copies=gone.copies,
            held_back_ns=gone.held_back_ns,
        )
        self.ended += Counters(peak_bytes=peak - self.ended.peak_bytes)
        _native().rgpu_lease_clear_slot(self.address, slot)

    def read(self, slot: int) -> Counters:
        """Returns what the session in `slot` holds and did."""
        words = (ctypes.c_uint64 * _SLOT_WORDS)()
        _native().rgpu_lease_read_slot(self.address, slot, words)
        _session, *counters = words
        return Counters(*(min(count, _MAX_COUNT) for count in counters))

    def total(self, live: list[int]) -> Counters:
        """Returns the lease's counters: the slots in `live` and all sessions that have ended.

        The peak is an upper bound where several sessions run: the sum of their own peaks.
        """
        running = Counters()
        for slot in live:
            running += self.read(slot)
        peak = max(running.peak_bytes, self.ended.peak_bytes)
        total = running + self.ended
        # Not the sum of what was read above: one session may have taken what another gave back.
        used = min(int(_native().rgpu_lease_used(self.address)), _MAX_COUNT)
        return replace(total, peak_bytes=peak, used_bytes=used)

    def close(self) -> None:
        """Unmaps the page; workers keep their own mapping."""
        del self._view
        self._map.close()
        os.close(self.fd)
        os.close(self.signal_fd)
