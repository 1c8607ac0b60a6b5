"""Lease pages: shared memory with a lease's limits, which its workers can only read, and with the
workers' usage.

The layout and its rules are in `rgpu_common/native/lease/page.h`; Python calls its C functions.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from rgpu_common.errors import WorkerError
from rgpu_common.parts import native_library
from rgpu_server.core.model import PageState, Quota

if TYPE_CHECKING:
    from collections.abc import Sequence

_SLOT_WORDS = 9
# Caps a worker's counters, so that sums fit 64 bits in files and messages.
_MAX_COUNT = (1 << 63) - 1


class Counters(Struct, frozen=True):
    """What one or more sessions hold and did; each sum stays below 2^63."""

    used_bytes: int = 0
    peak_bytes: int = 0
    launches: int = 0
    copied_bytes: int = 0
    busy_ns: int = 0
    refused: int = 0
    copies: int = 0
    held_back_ns: int = 0

    def numbers(self) -> tuple[int, ...]:
        """Returns all counters, in the order of the fields."""
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
    library = ctypes.CDLL(str(native_library()), use_errno=True)
    page, u32, u64 = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64
    for name, result, arguments in (
        ("page_bytes", u32, []),
        ("grant_bytes", u32, []),
        ("map", page, [ctypes.c_int, ctypes.c_int, ctypes.c_int]),
        ("unmap", None, [page]),
        ("slots", u32, []),
        ("page_init", None, [page, u64]),
        ("page_valid", ctypes.c_int, [page]),
        ("used", u64, [page]),
        ("count", None, [page, u32, u64]),
        ("release", None, [page, u32, u64]),
        ("charged", u64, [page]),
        ("slot_charged", u64, [page, u32]),
        ("claim_slot", ctypes.c_int, [page, u64]),
        ("clear_slot", None, [page, u32]),
        ("set_limit", None, [page, u64]),
        ("limit", u64, [page]),
        ("set_shares", None, [page, u32, u32]),
        ("set_state", None, [page, u32]),
        ("compiling", ctypes.c_int, [page, u32]),
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


def close_all(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)


def _sizes() -> tuple[int, int]:
    """Returns the sizes of a page's two files: grants, usage."""
    grants = int(_native().rgpu_lease_grant_bytes())
    return grants, int(_native().rgpu_lease_page_bytes()) - grants


def map_page(grants_fd: int, usage_fd: int, write_grants: bool = True) -> int:
    """Maps a page and returns its address for the C functions; raises OSError if that fails."""
    address = _native().rgpu_lease_map(grants_fd, usage_fd, write_grants)
    if not address:
        error = ctypes.get_errno()
        raise OSError(error, f"cannot map a lease page: {os.strerror(error)}")
    return int(address)


class LeasePage:
    """One page, mapped here and passed to workers by its descriptors.

    grants_fd, usage_fd: its two files. Workers get the first through `opened_to_read`, so that they
    cannot write what is granted. Its mode lets no user open it for writing; even the owner would
    have to change the mode first.
    signal_fd: the lease's eventfd, by which workers tell the token loop to look at the page.
    address: where the page is mapped, for the C functions.
    ended: the counters of the sessions that have ended.
    most_bytes: the highest limit of memory that this process has written.
    """

    most_bytes = 0

    def __init__(self, quota: Quota) -> None:
        made: list[int] = []
        try:
            for size in _sizes():
                fd = os.memfd_create("rgpu-lease", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
                made.append(fd)
                os.ftruncate(fd, size)
                seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
                fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
            os.fchmod(made[0], 0o400)
            made.append(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))
        except OSError:
            close_all(made)
            raise
        self._attach(made, Counters())
        _native().rgpu_lease_page_init(self.address, quota.memory_bytes)
        self.update(quota, PageState.ACTIVE)

    @classmethod
    def existing(cls, fds: Sequence[int], ended: Counters) -> LeasePage:
        """Takes over a page that another process made, by its `descriptors`.

        ended: the counters of its sessions that have ended.

        Raises:
            WorkerError: the files are not a lease page.
            OSError: the page cannot be mapped. In both cases the descriptors are closed.
        """
        page = cls.__new__(cls)
        if len(fds) != 3 or any(
            os.fstat(fd).st_size != size for fd, size in zip(fds, _sizes(), strict=False)
        ):
            close_all(fds)
            raise WorkerError("the descriptors handed over are not a lease page")
        page._attach(fds, ended)
        if not _native().rgpu_lease_page_valid(page.address):
            page.close()
            raise WorkerError("the descriptors handed over are not a lease page")
        return page

    def _attach(self, fds: Sequence[int], ended: Counters) -> None:
        self.grants_fd, self.usage_fd, self.signal_fd = fds
        self.ended = ended
        try:
            self.address = map_page(self.grants_fd, self.usage_fd)
        except OSError:
            close_all(fds)
            raise

    @property
    def descriptors(self) -> list[int]:
        """The descriptors for the daemon and the token loop, which write the whole page."""
        return [self.grants_fd, self.usage_fd, self.signal_fd]

    def opened_to_read(self) -> int:
        """Returns a new read-only descriptor of the grants, for a worker.

        Raises:
            OSError: /proc is not mounted.
        """
        return os.open(f"/proc/self/fd/{self.grants_fd}", os.O_RDONLY | os.O_CLOEXEC)

    def update(self, quota: Quota, state: PageState) -> None:
        """Writes limits and state; workers see them when they charge the next time."""
        native = _native()
        self.most_bytes = max(self.most_bytes, quota.memory_bytes)
        native.rgpu_lease_set_limit(self.address, quota.memory_bytes)
        native.rgpu_lease_set_shares(self.address, quota.share_request_ppm, quota.share_limit_ppm)
        native.rgpu_lease_set_state(self.address, state.value)

    def take(self, slot: int, session: int) -> None:
        """Marks a slot as taken; WorkerError if it is not the lowest free slot of the page."""
        claimed = int(_native().rgpu_lease_claim_slot(self.address, session))
        if claimed != slot:
            raise WorkerError(f"the lowest free slot of the lease page is {claimed}, not {slot}")

    def clear(self, slot: int) -> None:
        """Frees what the worker of this slot held, and keeps its counters; the worker is gone."""
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

    def count(self, slot: int, charged: int) -> None:
        """Charges a slot for memory that exists, also above the limit."""
        _native().rgpu_lease_count(self.address, slot, charged)

    def release(self, slot: int, charged: int) -> None:
        """Takes a charge off a slot, at most what is charged to it."""
        _native().rgpu_lease_release(self.address, slot, charged)

    def read(self, slot: int) -> Counters:
        """Returns what the session in `slot` holds and did."""
        words = (ctypes.c_uint64 * _SLOT_WORDS)()
        _native().rgpu_lease_read_slot(self.address, slot, words)
        _session, *counters = words
        return Counters(*(min(count, _MAX_COUNT) for count in counters))

    def charged(self, slot: int | None = None) -> int:
        """Returns what is charged to a slot, or to the lease.

        That is what its sessions hold and the credit of those that allocate often.
        """
        if slot is None:
            charged = int(_native().rgpu_lease_charged(self.address))
        else:
            charged = int(_native().rgpu_lease_slot_charged(self.address, slot))
        return min(charged, _MAX_COUNT)

    def compiling(self, slot: int) -> bool:
        """Returns True if the worker in `slot` says that its driver loads or compiles code."""
        return bool(_native().rgpu_lease_compiling(self.address, slot))

    def total(self, live: list[int]) -> Counters:
        """Returns the lease's counters: the slots in `live` and all sessions that have ended.

        The peak is an upper bound where several sessions run: the sum of their own peaks, but no
        more than the lease may hold, or holds.
        """
        each = [self.read(slot) for slot in live]
        running = sum(each, Counters())
        total = running + self.ended
        # Read anew: in the sum above, bytes that moved between two sessions could count twice.
        used = min(int(_native().rgpu_lease_used(self.address)), _MAX_COUNT)
        least = max([used, self.ended.peak_bytes, *(one.peak_bytes for one in each)])
        peak = max(min(running.peak_bytes, self.most_bytes), least)
        return replace(total, peak_bytes=peak, used_bytes=used)

    def close(self) -> None:
        """Unmaps the page; workers keep their own mapping."""
        _native().rgpu_lease_unmap(self.address)
        close_all(self.descriptors)
