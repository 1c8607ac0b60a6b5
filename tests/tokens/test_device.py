"""One device's token on real pages, with a clock that the test moves."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from rgpu_server.core.model import PPM, Quota
from rgpu_server.core.tokens.share import Share
from rgpu_server.tokens.device import DeviceTokens
from rgpu_server.tokens.page import Demand, Phase, TokenView, native
from rgpu_server.tokens.seats import Seat, WorkerSeat
from rgpu_server.workers.pages import LeasePage

MS = 1_000_000


class Clock:
    """Starts late enough that no page's zero lies in a slice."""

    now = 1_000 * MS

    def __call__(self) -> int:
        return self.now


def speak(
    seat: Seat, clock: Clock, active: int = 0, spent: int = 0, drained: int = 0, near: bool = False
) -> None:
    """Writes the words of a lease's only worker, which always wants more."""
    words = (ctypes.c_uint64 * 9)(active, active * near, spent, 1, 2_000, 0, clock.now, 0, drained)
    native().rgpu_token_write_slot(ctypes.c_void_p(seat.page.address), 0, words)


def join(device: DeviceTokens, clock: Clock, lease: str, request_ppm: int = PPM // 3) -> Seat:
    """A lease with endless work."""
    page = LeasePage(Quota(1 << 30))
    page.take(0, 1)
    token = TokenView(page.address)
    token.write(Phase.NONE, 0)
    seat = Seat(lease, "", 0, Share(request_ppm), False, "", page, token)
    seat.workers[1] = WorkerSeat(1, 0, 0, -1, -1, -1, "")
    speak(seat, clock)
    device.add(seat)
    return seat


def turn(device: DeviceTokens, clock: Clock, hand_over_ns: int) -> tuple[Seat, int]:
    """Lets the holder use the device to the end of its slice; returns the holder and the slice in
    ns.
    """
    while True:
        holder = device.holder
        assert holder is not None
        if holder.phase is Phase.SLICE:
            break
        clock.now += 5 * MS
        device.act(clock.now)
    slice_ns = holder.token.read().slice_ns
    speak(holder, clock, active=holder.generation)
    device.look(holder)
    clock.now += slice_ns
    speak(holder, clock, spent=holder.generation, drained=clock.now)
    clock.now += hand_over_ns
    device.look(holder)
    device.tick(clock.now)
    return holder, slice_ns


def first_slice(hand_over_ns: int) -> int:
    """The slice of a lease that comes after many hand-overs that took so long, in ns."""
    clock = Clock()
    device = DeviceTokens(60_000 * MS, lambda session, sentence: None, clock=clock)
    device.start()
    seats = [join(device, clock, lease) for lease in ("a", "b")]
    for _ in range(60):
        turn(device, clock, hand_over_ns)
    seats.append(join(device, clock, "new"))
    slices = [turn(device, clock, hand_over_ns) for _ in range(10)]
    for seat in seats:
        seat.page.close()
    return next(slice_ns for seat, slice_ns in slices if seat.lease == "new")


def test_slices_follow_the_measured_hand_over() -> None:
    # The next holder also needs 100 us until its first kernel runs.
    assert first_slice(0) == 10 * MS
    assert 19 * MS <= first_slice(100_000) <= 20 * MS
    assert first_slice(2 * MS) == 25 * MS


class Counting:
    """A page's token, with device time that the test counts."""

    def __init__(self, token: TokenView) -> None:
        self.token, self.busy_ns = token, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.token, name)

    def demand(self, generation: int, slots: int) -> Demand:
        return self.token.demand(generation, slots)._replace(busy_ns=self.busy_ns)


@pytest.mark.parametrize("kernel_ms", [50, 150, 500, 1_500])
def test_the_time_of_long_kernels_of_a_lease_that_is_alone_is_not_lost(kernel_ms: int) -> None:
    """Its worker counts a kernel when it is over."""
    clock = Clock()
    device = DeviceTokens(60_000 * MS, lambda session, sentence: None, clock=clock)
    device.start()
    seat = join(device, clock, "alone", PPM)
    counting = Counting(seat.token)
    seat.token = counting  # type: ignore[assignment]
    assert device.holder is seat
    for _ in range(4):
        speak(seat, clock, active=seat.generation)
        for _ in range(kernel_ms // 10):
            clock.now += 10 * MS
            if clock.now % (100 * MS) == 0:
                device.tick(clock.now)
        counting.busy_ns += kernel_ms * MS
        speak(seat, clock, drained=clock.now)
        for _ in range(30):
            clock.now += 10 * MS
            if clock.now % (100 * MS) == 0:
                device.tick(clock.now)
    usage = device.scheduler.usage("alone")
    seat.page.close()
    assert usage is not None
    assert usage.device_ns == 4 * kernel_ms * MS


def test_a_pause_of_the_device_is_no_hand_over() -> None:
    assert first_slice(20 * MS) == 10 * MS


def test_a_worker_that_says_it_had_drained_long_ago_pays_for_its_turn() -> None:
    """The worker holds the device for a whole slice and claims that its work was complete at the
    start.
    """
    clock = Clock()
    device = DeviceTokens(60_000 * MS, lambda session, sentence: None, clock=clock)
    device.start()
    liar, honest = (
        join(device, clock, "liar", PPM // 10),
        join(device, clock, "honest", PPM * 9 // 10),
    )
    used = {"liar": 0, "honest": 0}
    for _ in range(2_000):
        holder = device.holder
        assert holder is not None
        if holder.phase is not Phase.SLICE:
            clock.now += 5 * MS
            device.act(clock.now)
            continue
        begin, slice_ns = clock.now, holder.token.read().slice_ns
        speak(holder, clock, active=holder.generation)
        device.look(holder)
        clock.now += slice_ns
        drained = begin if holder is liar else clock.now
        speak(holder, clock, spent=holder.generation, drained=drained)
        device.look(holder)
        used[holder.lease] += slice_ns
    share = used["liar"] / sum(used.values())
    # An eighth of each turn may be for nothing.
    assert 0.09 <= share <= 0.1 * 8 / 7 + 0.005
    for seat in (liar, honest):
        seat.page.close()


def test_a_longer_slice_is_the_same_grant() -> None:
    clock = Clock()
    device = DeviceTokens(60_000 * MS, lambda session, sentence: None, clock=clock)
    device.start()
    seats = [join(device, clock, "a", PPM * 9 // 10), join(device, clock, "b", PPM // 10)]
    while device.holder is not seats[0] or seats[0].phase is not Phase.SLICE:
        turn(device, clock, 0)
    holder, before = seats[0], seats[0].token.read()
    speak(holder, clock, active=holder.generation)
    clock.now += before.slice_ns - 3 * MS
    speak(holder, clock, active=holder.generation, near=True)
    device.look(holder)
    after = holder.token.read()
    assert after[:3] == before[:3]
    assert after.slice_ns > before.slice_ns
    # It goes on, and is then looked at as ever.
    assert device.holder is holder
    clock.now = before.start_ns + after.slice_ns
    speak(holder, clock, spent=holder.generation, drained=clock.now)
    device.look(holder)
    for seat in seats:
        seat.page.close()
