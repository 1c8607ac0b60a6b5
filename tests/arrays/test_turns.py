"""The gate of an array worker on a page whose token the test writes."""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from helpers.waiting import wait_until
from worker.token_page import HOUR_NS, LONG_NS, OPEN, RECALLED, SLICE, TokenPage
from worker.warm import LIMIT

from rgpu_server.arrays.ledger import Ledger
from rgpu_server.arrays.memory import ArrayMemory
from rgpu_server.arrays.turns import Clock, TurnEndedError, Turns, WallClock

MS = 1_000_000
MIB = 1 << 20
OFF = 0


@pytest.fixture
def page() -> TokenPage:
    return TokenPage()


@contextmanager
def turns(
    page: TokenPage, clock: Clock | None = None, held: Callable[[], None] | None = None
) -> Iterator[Turns]:
    address = page.address.value
    assert address is not None
    made = Turns(address, 0, page.signal_fd, clock, held)
    try:
        yield made
    finally:
        made.close()


@contextmanager
def entering(gate: Turns) -> Iterator[threading.Thread]:
    """A thread that waits until it may begin an operation."""

    def enter() -> None:
        with contextlib.suppress(TurnEndedError):
            gate.enter()

    thread = threading.Thread(target=enter)
    thread.start()
    try:
        yield thread
    finally:
        gate.end()
        thread.join(60)
        assert not thread.is_alive()


def compute(ns: int) -> None:
    """An operation that takes so long."""
    until = time.monotonic_ns() + ns
    while time.monotonic_ns() < until:
        pass


def test_an_unscheduled_device_asks_nobody(page: TokenPage) -> None:
    page.say(OFF)
    with turns(page) as gate:
        for _ in range(3):
            gate.enter()
            compute(MS)
        gate.leave()
        said = page.demand()
        assert (said["active"], said["wanting"], said["busy_ns"]) == (0, 0, 0)
    assert not page.signalled(0)


def test_an_open_grant_is_used_and_left_without_a_word(page: TokenPage) -> None:
    page.grant(OPEN)
    with turns(page) as gate:
        for batch in range(1, 4):
            gate.enter()
            compute(MS)
            gate.enter()
            compute(MS)
            assert page.demand()["active"] == 1
            gate.leave()
            said = page.demand()
            assert (said["active"], said["in_flight_ns"]) == (0, 0)
            assert said["busy_ns"] >= 2 * batch * MS
            assert said["drained_ns"] > 0
    assert not page.signalled(0)


def test_an_operation_waits_for_the_token(page: TokenPage) -> None:
    with turns(page) as gate, entering(gate) as thread:
        assert page.signalled(60)
        assert page.demand()["wanting"] == 1
        page.grant(OPEN)
        thread.join(60)
        assert not thread.is_alive()
        said = page.demand()
        assert (said["active"], said["wanting"]) == (1, 0)
        assert said["held_back_ns"] > 0


def test_a_slice_is_used_up_and_given_back(page: TokenPage) -> None:
    page.grant(SLICE, HOUR_NS)
    with turns(page) as gate:
        for _ in range(15):
            gate.enter()
            compute(MS)
        page.drain()
        page.end_slice()
        with entering(gate) as thread:
            page.turn_over()
            said = page.demand()
            assert (said["near_end"], said["spent"], said["wanting"]) == (1, 1, 1)
            assert said["busy_ns"] >= 15 * MS
            assert said["kernel_us"] >= 1000
            page.grant(SLICE, HOUR_NS)
            thread.join(60)
            assert not thread.is_alive()
            assert page.demand()["active"] == 1


def test_a_slice_that_is_made_longer_goes_on(page: TokenPage) -> None:
    page.grant(SLICE, HOUR_NS)
    with turns(page) as gate:
        gate.enter()
        compute(2 * MS)
        page.end_slice()
        with entering(gate) as thread:
            page.turn_over()
            page.say(SLICE, HOUR_NS)
            # What the gate reports after that is of another test: it gives back what nobody uses.
            thread.join(60)
            assert not thread.is_alive()


def test_an_unused_slice_goes_back_after_a_moment(page: TokenPage) -> None:
    page.grant(SLICE, HOUR_NS)
    with turns(page) as gate:
        gate.enter()
        page.drain()
        gate.leave()
        assert page.signalled(60)
        said = page.demand()
        assert (said["active"], said["wanting"], said["spent"]) == (0, 0, 0)


def test_a_recalled_token_goes_back_after_the_operation(page: TokenPage) -> None:
    page.grant(OPEN)
    with turns(page) as gate:
        gate.enter()
        page.say(RECALLED)
        assert page.demand()["active"] == 1
        assert not page.signalled(0)
        with entering(gate):
            assert page.signalled(60)
            said = page.demand()
            assert (said["active"], said["wanting"]) == (0, 1)


def test_a_recalled_token_goes_back_when_nothing_is_left(page: TokenPage) -> None:
    page.grant(OPEN)
    with turns(page) as gate:
        gate.enter()
        page.say(RECALLED)
        gate.leave()
        assert page.signalled(60)
        said = page.demand()
        assert (said["active"], said["wanting"]) == (0, 0)


def test_a_long_operation_is_charged_while_it_runs(page: TokenPage) -> None:
    page.grant(OPEN)
    began = time.monotonic_ns()
    with turns(page) as gate:
        gate.enter()
        wait_until(lambda: page.demand()["busy_ns"] >= 200 * MS)
        alive = page.demand()["oldest_alive_ns"]
        wait_until(lambda: page.demand()["oldest_alive_ns"] > alive)
        gate.leave()
        # Nothing counts twice.
        assert page.demand()["busy_ns"] <= time.monotonic_ns() - began


def test_without_a_token_loop_a_lease_spends_its_request(page: TokenPage) -> None:
    page.native.rgpu_lease_set_shares(page.address, 300_000, 1_000_000)
    page.heartbeat(time.monotonic_ns() - 6000 * MS)
    with turns(page) as gate:
        began = time.monotonic_ns()
        for _ in range(20):
            gate.enter()
            compute(2 * MS)
        gate.leave()
        elapsed = time.monotonic_ns() - began
        said = page.demand()
        # The last operation may begin with little credit.
        longest = said["busy_ns"] - 19 * 2 * MS
        assert 40 * MS <= said["busy_ns"] <= 0.3 * elapsed + longest
        page.heartbeat(time.monotonic_ns() + LONG_NS)
        page.grant(OPEN)
        gate.enter()
        assert page.demand()["active"] == 1


def test_the_end_of_a_session_ends_a_wait(page: TokenPage) -> None:
    with turns(page) as gate:
        threading.Timer(0, gate.end).start()
        with pytest.raises(TurnEndedError, match="the session has ended"):
            gate.enter()
        with pytest.raises(TurnEndedError):
            gate.enter()


def test_who_is_held_back_looks_after_its_client(page: TokenPage) -> None:
    def gone() -> None:
        raise ConnectionError("the client is gone")

    with turns(page, held=gone) as gate:
        with pytest.raises(ConnectionError, match="gone"):
            gate.enter()
        assert page.demand()["wanting"] == 1
        page.drain()
        gate.leave()
        assert page.demand()["wanting"] == 0
        assert page.signalled(0)


def charged(address: int, ledger: Ledger) -> bool:
    return ledger.charge(MIB)


def made(address: int, ledger: Ledger) -> bool:
    """NumPy asks for memory in the middle of an operation."""
    memory = ArrayMemory(address, 0, None, ledger.charge_before)
    try:
        with memory.installed():
            return bool(np.empty(MIB, np.uint8).size)
    except MemoryError:
        return False
    finally:
        memory.close()


@pytest.mark.parametrize("allocate", [charged, made])
def test_an_operation_that_waits_for_memory_has_no_turn_meanwhile(
    page: TokenPage, allocate: Callable[[int, Ledger], bool]
) -> None:
    address = page.address.value
    assert address is not None
    # Another session of the lease, which could give memory back, has all of it.
    Ledger(address, 1).count(LIMIT)
    page.grant(OPEN)
    recalled = threading.Event()
    found: list[bool] = []
    with turns(page) as gate:

        def operate() -> None:
            gate.enter()
            assert recalled.wait(60)
            found.append(allocate(address, Ledger(address, 0, gate)))

        thread = threading.Thread(target=operate)
        thread.start()
        wait_until(lambda: page.demand()["active"] == 1)
        page.say(RECALLED)
        recalled.set()
        # It wants to go on, and without the token it does not.
        wait_until(lambda: (page.demand()["active"], page.demand()["wanting"]) == (0, 1))
        assert not found
        page.grant(OPEN)
        thread.join(60)
        assert found == [False]
        assert page.demand()["active"] == 1


def launches(page: TokenPage) -> int:
    """Returns how many operations the page counts."""
    words = (ctypes.c_uint64 * 9)()
    assert page.native.rgpu_lease_read_slot(page.address, 0, words)
    return words[3]


class Device:
    """A device that works on while the worker goes on, by a clock of the test's."""

    def __init__(self) -> None:
        self.worked = 0
        self.waits = 0

    def mark(self) -> int:
        return self.worked

    def elapsed(self, mark: int) -> int:
        self.waits += 1
        return self.worked - mark


def test_a_device_that_works_behind_is_measured_by_its_own_clock(page: TokenPage) -> None:
    device = Device()
    page.grant(OPEN)
    with turns(page, device) as gate:
        for _ in range(8):
            gate.enter()
            device.worked += 3 * MS
        assert device.waits == 0
        gate.leave()
        gate.leave()
        wait_until(lambda: page.demand()["active"] == 0)
        assert (page.demand()["busy_ns"], device.waits) == (24 * MS, 1)
        assert not page.signalled(0)
        # An operation takes 3 ms, so that 6 fill the device for 20 ms.
        for _ in range(7):
            gate.enter()
            device.worked += 3 * MS
        assert device.waits == 2
        assert launches(page) == 14
        page.say(RECALLED)
        with entering(gate):
            wait_until(lambda: page.demand()["active"] == 0)
            assert page.demand()["wanting"] == 1
            assert page.demand()["busy_ns"] == 45 * MS


def test_the_first_operation_of_a_slice_begins_even_if_it_is_longer(page: TokenPage) -> None:
    device = Device()
    page.grant(OPEN)
    with turns(page, device) as gate:
        gate.enter()
        device.worked += 3600 * 1000 * MS
        gate.leave()
        wait_until(lambda: page.demand()["active"] == 0)
        page.grant(SLICE, 10_000 * MS)
        gate.enter()
        assert page.demand()["active"] == 1
        with entering(gate):
            page.turn_over()
            assert page.demand()["spent"] == 1


def test_a_wall_clock_measures_what_passes() -> None:
    clock = WallClock()
    mark = clock.mark()
    compute(MS)
    assert clock.elapsed(mark) >= MS


def test_a_slot_that_there_is_not_is_refused(page: TokenPage) -> None:
    address = page.address.value
    assert address is not None
    with pytest.raises(ValueError, match="no gate for slot 56"):
        Turns(address, 56, page.signal_fd)
