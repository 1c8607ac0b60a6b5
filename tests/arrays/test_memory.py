"""The memory of arrays is charged before NumPy gets it, and released when it is freed."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from random import Random

import numpy as np
import pytest
from helpers.waiting import wait_until
from worker.warm import LeasePage

from rgpu_server.arrays.ledger import Ledger
from rgpu_server.arrays.memory import ArrayMemory, Figures

KIB, MIB = 1 << 10, 1 << 20
LIMIT = 64 * MIB
SIZES = [
    0, 1, 63, 64, 65, 511, 512, 513, 640, 641, 1023, 1024, 1025, 5000, 12_288, 40_000, 65_535, 65_536,
    65_537, 100_000, 1 << 20, (1 << 20) + 1, 7_654_321,
]  # fmt: skip


@pytest.fixture
def page() -> LeasePage:
    return LeasePage(LIMIT)


@pytest.fixture
def ledger(page: LeasePage) -> Ledger:
    assert page.address.value is not None
    return Ledger(page.address.value, 0)


@pytest.fixture
def memory(page: LeasePage) -> Iterator[ArrayMemory]:
    assert page.address.value is not None
    made = ArrayMemory(page.address.value, 0)
    with made.installed():
        yield made
    gc.collect()
    made.close()
    assert page.charged() == 0


def test_the_ledger_charges_up_to_the_limit(ledger: Ledger, page: LeasePage) -> None:
    assert (ledger.used, ledger.own, ledger.limit) == (0, 0, LIMIT)
    assert ledger.charge(LIMIT - 1)
    assert not ledger.charge(2)
    assert (ledger.used, ledger.own) == (LIMIT - 1, LIMIT - 1)
    assert page.refused(0) == 1
    ledger.count(10)
    assert ledger.used == LIMIT + 9
    ledger.release(2 * LIMIT)
    assert ledger.used == 0


def test_what_was_only_asked_for_is_in_no_peak(ledger: Ledger, page: LeasePage) -> None:
    assert ledger.charge(LIMIT // 4)
    assert ledger.charge_before(LIMIT // 2)
    ledger.release(LIMIT // 2)
    assert not ledger.charge_before(LIMIT)
    assert page.peak(0) == LIMIT // 4
    assert page.refused(0) == 1
    assert ledger.charge_before(LIMIT // 2)
    ledger.raise_peak()
    assert page.peak(0) == 3 * (LIMIT // 4)


def test_what_a_block_is_charged() -> None:
    charged = [
        ArrayMemory.charge_of(size) for size in (0, 1, 64, 65, 513, 641, 1025, 65_536, 65_537)
    ]
    assert charged == [64, 64, 64, 128, 640, 768, 1280, 65_536, 66_048]
    for size in range(1, 70_000, 7):
        assert size <= ArrayMemory.charge_of(size) <= max(size * 1.25, size + 63) + 1


@pytest.mark.full
@pytest.mark.parametrize("size", SIZES)
def test_an_array_is_charged_exactly(memory: ArrayMemory, ledger: Ledger, size: int) -> None:
    made = np.empty(size, np.uint8)
    assert ledger.used == ArrayMemory.charge_of(size)
    assert ledger.own == memory.figures().charged >= ledger.used
    made[:] = 7
    assert made.ctypes.data % 64 == 0
    del made
    assert ledger.used == 0


def test_many_arrays_are_charged_exactly(memory: ArrayMemory, ledger: Ledger) -> None:
    random = Random(5)
    held: list[np.ndarray] = []
    expected = 0
    for step in range(4000):
        size = int(2 ** random.uniform(0, 17))
        if step % 3 == 2:
            gone = held.pop(size % len(held))
            assert (gone == gone.size % 251).all()
            expected -= ArrayMemory.charge_of(gone.nbytes)
            del gone
        held.append(np.full(size, size % 251, np.uint8))
        expected += ArrayMemory.charge_of(size)
        if step % 100 == 0:
            assert ledger.used == expected
    assert ledger.used == expected
    assert all((one == one.size % 251).all() for one in held)
    held.clear()
    memory.trim()


def test_zeros_are_zero_where_memory_is_used_again(memory: ArrayMemory) -> None:
    for size in (100, 5000, MIB):
        np.empty(size, np.uint8)[:] = 255
        assert not np.zeros(size, np.uint8).any()


def test_a_view_is_not_charged(memory: ArrayMemory, ledger: Ledger) -> None:
    whole = np.zeros((100, 100))
    used = ledger.used
    views = [
        whole[::2],
        whole.T,
        whole.reshape(-1),
        whole.view(np.int64),
        np.broadcast_to(whole, (9, 100, 100)),
    ]
    assert ledger.used == used
    del whole
    assert ledger.used == used
    views.clear()
    assert ledger.used == 0


def test_an_array_that_is_made_larger_keeps_its_elements(
    memory: ArrayMemory, ledger: Ledger
) -> None:
    made = np.arange(100, dtype=np.uint8)
    for size in (120, 128, 1000, 100_000, 50):
        made.resize(size, refcheck=False)
        assert (made[:50] == np.arange(50)).all()
        assert ledger.used == ArrayMemory.charge_of(size)
    del made


def fill(arrays: list[np.ndarray]) -> None:
    """Makes arrays until one is refused."""
    while True:
        arrays.append(np.empty(1000, np.uint8))


def test_a_refusal_charges_nothing(memory: ArrayMemory, ledger: Ledger, page: LeasePage) -> None:
    held = np.empty(40 * MIB, np.uint8)
    used = ledger.used
    for _ in range(3):
        with pytest.raises(MemoryError, match=r"Unable to allocate 32\.0 MiB"):
            np.empty(32 * MIB, np.uint8)
        with pytest.raises(MemoryError):
            np.zeros((1 << 30, 1 << 20), np.uint8)
        assert ledger.used == ledger.own == used
    assert page.refused(0) == 6
    small: list[np.ndarray] = []
    with pytest.raises(MemoryError):
        fill(small)
    assert ledger.used <= LIMIT
    assert len(small) > 20_000
    small.clear()
    del held
    assert np.empty(60 * MIB, np.uint8).nbytes == 60 * MIB


def test_a_block_beyond_all_memory_is_refused(memory: ArrayMemory, ledger: Ledger) -> None:
    with pytest.raises(MemoryError, match="has no room for"):
        memory.allocate((1 << 64) - 1)
    assert ledger.own == 0


def test_what_is_kept_makes_room_for_other_sizes(memory: ArrayMemory, ledger: Ledger) -> None:
    np.empty(15 * MIB, np.uint8)
    assert memory.figures() == Figures(0, 15 * MIB, 0)
    made = np.empty(60 * MIB, np.uint8)
    assert memory.figures() == Figures(60 * MIB, 60 * MIB, 1)
    del made
    # That is more than a quarter of the lease, and not kept.
    assert memory.figures().charged == 0


def test_what_is_kept_is_given_to_other_processes_of_the_lease(
    memory: ArrayMemory, page: LeasePage
) -> None:
    assert page.address.value is not None
    other = ArrayMemory(page.address.value, 1)
    np.empty(15 * MIB, np.uint8)
    block = other.allocate(60 * MIB)
    assert memory.figures().charged == 0
    other.free(block)
    other.close()


def test_who_wants_credit_gets_it(memory: ArrayMemory, page: LeasePage, ledger: Ledger) -> None:
    np.empty(MIB, np.uint8)
    assert ledger.own == MIB
    page.set_limit(0)  # asks for credit, as the daemon does
    wait_until(lambda: ledger.own == 0)


def test_any_thread_frees(memory: ArrayMemory, ledger: Ledger) -> None:
    held = [np.full(size, 3, np.uint8) for size in (10, 5000, 100_000)]
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    assert ledger.used == 0


def test_threads_allocate_and_free_at_once(memory: ArrayMemory, ledger: Ledger) -> None:
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            memory.install()
            random, held = Random(seed), []
            for _ in range(1000):
                size = int(2 ** random.uniform(4, 17))
                held.append(np.full(size, seed, np.uint8))
                if len(held) > 20:
                    assert (held.pop(size % 20) == seed).all()
            assert all((one == seed).all() for one in held)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    gc.collect()
    assert ledger.used == 0


def test_a_thread_without_it_is_as_before(memory: ArrayMemory, ledger: Ledger) -> None:
    used: list[int] = []
    thread = threading.Thread(target=lambda: used.append(np.empty(MIB).nbytes - ledger.used))
    thread.start()
    thread.join()
    assert used == [8 * MIB]


def test_blocks_are_found_by_any_address_in_them(memory: ArrayMemory) -> None:
    for size in (64, 4096, 100_352):
        block = memory.allocate(size)
        assert memory.find(block) == memory.find(block + size - 1) == (block, size)
        memory.free(block + 1)  # no block begins there
        assert memory.find(block) is not None
        memory.free(block)
        assert memory.find(block) is None
        memory.free(block)
    assert memory.figures().blocks == 0


def test_a_pool_in_use_stays(page: LeasePage) -> None:
    assert page.address.value is not None
    memory = ArrayMemory(page.address.value, 0)
    block = memory.allocate(10)
    with pytest.raises(RuntimeError, match="1 blocks"):
        memory.close()
    memory.free(block)
    memory.close()
    with pytest.raises(ValueError, match="no memory for slot 56"):
        ArrayMemory(page.address.value, 56)
