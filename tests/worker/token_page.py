"""A lease's page with a token loop's hands on it."""

import ctypes
import os
import select
import time

from worker.client import SECONDS
from worker.warm import LIMIT, LeasePage

NONE, SLICE, OPEN, RECALLED = 1, 3, 4, 5
LONG_NS = 60_000_000_000
# A slice that no test uses up, however seldom it gets a processor.
HOUR_NS = 3_600_000_000_000
FIELDS = (
    "workers",
    "active",
    "wanting",
    "near_end",
    "spent",
    "kernel_us",
    "in_flight_ns",
    "busy_ns",
    "held_back_ns",
    "oldest_alive_ns",
    "drained_ns",
)


class TokenPage(LeasePage):
    """The page with a token loop's hands on it."""

    def __init__(self) -> None:
        super().__init__(LIMIT)
        self.generation = 1
        self.native.rgpu_lease_claim_slot(self.address, ctypes.c_uint64(77))
        self.heartbeat(time.monotonic_ns() + HOUR_NS)
        self.say(NONE)

    def heartbeat(self, now_ns: int) -> None:
        self.native.rgpu_token_heartbeat(self.address, ctypes.c_uint64(now_ns))

    def say(self, phase: int, slice_ns: int = 0, start_ns: int | None = None) -> None:
        """Writes the token. The slice starts now, or at `start_ns`."""
        start_ns = time.monotonic_ns() if start_ns is None else start_ns
        self.native.rgpu_token_write(
            self.address,
            phase,
            ctypes.c_uint64(self.generation),
            ctypes.c_uint64(start_ns),
            ctypes.c_uint64(slice_ns),
        )

    def end_slice(self) -> None:
        """Makes the slice so short that it is over."""
        self.say(SLICE, 1_000_000, time.monotonic_ns() - 1_000_000)

    def grant(self, phase: int, slice_ns: int = 0) -> None:
        self.generation += 1
        self.say(phase, slice_ns)

    def demand(self) -> dict[str, int]:
        values = (ctypes.c_uint64 * len(FIELDS))()
        every, generation = ctypes.c_uint64((1 << 64) - 1), ctypes.c_uint64(self.generation)
        self.native.rgpu_token_demand(self.address, generation, every, values)
        return dict(zip(FIELDS, values, strict=True))

    def signalled(self, seconds: float) -> bool:
        """Whether a worker signals in this time; takes the signal."""
        ready, _, _ = select.select([self.signal_fd], [], [], seconds)
        if ready:
            os.eventfd_read(self.signal_fd)
        return bool(ready)

    def drain(self) -> None:
        """Takes signals of what has been looked at."""
        while self.signalled(0):
            pass

    def turn_over(self) -> None:
        """Waits until the slice is given back: work is left over, or none is."""
        deadline = time.monotonic() + SECONDS
        while True:
            said = self.demand()
            if not said["active"] and (said["spent"] or not said["wanting"]):
                return
            assert time.monotonic() < deadline, said
            self.signalled(0.2)

    def until(self, **wanted: int) -> dict[str, int]:
        """Waits, by signals like a loop, until the demand has these values; returns it."""
        deadline = time.monotonic() + SECONDS
        while True:
            said = self.demand()
            if all(said[field] == value for field, value in wanted.items()):
                return said
            assert time.monotonic() < deadline, said
            self.signalled(0.2)

    def until_nothing_moves(self) -> None:
        """Waits until the workers put nothing more on the device for a while."""
        before, same = -1, 0
        while same < 10:
            now = self.demand()["in_flight_ns"]
            before, same = now, same + 1 if now == before else 0
            self.signalled(0.05)
