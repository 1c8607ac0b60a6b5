"""The lease page through the C functions that the daemon calls."""

from __future__ import annotations

import ctypes
import mmap
import os

import pytest
from helpers.native_abi import library


class SharedPage:
    """A page in anonymous shared memory."""

    def __init__(self, limit: int) -> None:
        self.map = mmap.mmap(-1, library().rgpu_lease_page_bytes(), mmap.MAP_SHARED)
        self._view = ctypes.c_char.from_buffer(self.map)
        self.at = ctypes.addressof(self._view)
        library().rgpu_lease_page_init(self.at, limit)

    def close(self) -> None:
        del self._view
        self.map.close()

    def slot(self, index: int) -> list[int]:
        values = (ctypes.c_uint64 * 9)()
        assert library().rgpu_lease_read_slot(self.at, index, values)
        return list(values)


@pytest.fixture
def page():  # type: ignore[no-untyped-def] # noqa: ANN201
    shared = SharedPage(1000)
    yield shared
    shared.close()


def test_daemon_and_worker_share_it(page: SharedPage) -> None:
    lib = library()
    assert lib.rgpu_lease_page_valid(page.at)
    slot = lib.rgpu_lease_claim_slot(page.at, 77)
    worker = os.fork()
    if worker == 0:
        charged = lib.rgpu_lease_charge(page.at, slot, 800)
        refused = lib.rgpu_lease_charge(page.at, slot, 300)
        lib.rgpu_lease_release(page.at, slot, 100)
        os._exit(0 if charged and not refused else 1)
    assert os.waitpid(worker, 0)[1] == 0
    assert page.slot(slot) == [77, 700, 800, 0, 0, 0, 1, 0, 0]
    assert lib.rgpu_lease_used(page.at) == 700
    lib.rgpu_lease_clear_slot(page.at, slot)
    assert lib.rgpu_lease_used(page.at) == 0
    assert page.slot(slot) == [0] * 9


def test_limits_and_bounds(page: SharedPage) -> None:
    lib = library()
    slots = lib.rgpu_lease_slots()
    assert lib.rgpu_lease_limit(page.at) == 1000
    lib.rgpu_lease_set_limit(page.at, 10)
    assert not lib.rgpu_lease_charge(page.at, 0, 11)
    assert lib.rgpu_lease_charge(page.at, 0, 10)
    assert not lib.rgpu_lease_charge(page.at, slots, 1)
    assert not lib.rgpu_lease_read_slot(page.at, slots, (ctypes.c_uint64 * 9)())
    lib.rgpu_lease_clear_slot(page.at, slots)
    lib.rgpu_lease_release(page.at, slots, 1)
    lib.rgpu_lease_set_shares(page.at, 400000, 700000)
    lib.rgpu_lease_set_state(page.at, 2)
    assert page.map[16:28] == b"".join(n.to_bytes(4, "little") for n in (400000, 700000, 2))
    assert [lib.rgpu_lease_claim_slot(page.at, 1 + n) for n in range(slots + 1)] == [
        *range(slots),
        -1,
    ]


def test_a_slot_that_compiles_is_known_by_its_bit(page: SharedPage) -> None:
    """A worker sets its bit of the word after `freeing_bytes`."""
    lib = library()
    word = lib.rgpu_lease_grant_bytes() + 512 + 8 * lib.rgpu_lease_slots()
    assert not lib.rgpu_lease_compiling(page.at, 5)
    page.map[word : word + 8] = (1 << 5 | 1 << 7).to_bytes(8, "little")
    assert lib.rgpu_lease_compiling(page.at, 5)
    assert not lib.rgpu_lease_compiling(page.at, 6)
    lib.rgpu_lease_clear_slot(page.at, 5)
    assert not lib.rgpu_lease_compiling(page.at, 5)
    assert lib.rgpu_lease_compiling(page.at, 7)
    assert not lib.rgpu_lease_compiling(page.at, lib.rgpu_lease_slots())


def test_a_page_that_is_none() -> None:
    assert not library().rgpu_lease_page_valid(bytes(library().rgpu_lease_page_bytes()))
