"""A worker that is nothing but a gate: `worker.py PAGE_FD EVENT_FD SLOT MODE`.

It keeps the protocol of `native/lease/token.h` on a real page with a real eventfd.  A line of
output says what happened.

greedy    always has work, and uses every grant to its end
polite    as greedy, until it gets a line on its input; then it has no more work
short     has work for one millisecond, each time it gets a line
endless   once it has a grant, one kernel that never ends (its gate still looks)
"""

from __future__ import annotations

import ctypes
import os
import select
import sys
import time

from rgpu_server.tokens.page import Phase, TokenView, native
from rgpu_server.workers.pages import map_page

SLOTS_OFFSET, SLOT_BYTES, BUSY_OFFSET = 4096 + 1024, 128, 40
MS = 1_000_000
NAMES = (
    "active_gen", "near_end_gen", "spent_gen", "wants", "kernel_us", "in_flight_ns", "alive_ns",
    "held_back_ns", "drained_ns",
)  # fmt: skip


class Gate:
    def __init__(self, grants_fd: int, usage_fd: int, event_fd: int, slot: int) -> None:
        self.address = map_page(grants_fd, usage_fd, write_grants=False)
        self.token = TokenView(self.address)
        self.event_fd = event_fd
        self.slot = slot
        self.said = dict.fromkeys(NAMES, 0)
        self.busy_ns = 0

    def say(self, signal: bool = False, **values: int) -> None:
        self.said.update(values)
        self.said["alive_ns"] = time.monotonic_ns()
        words = (ctypes.c_uint64 * len(NAMES))(*(self.said[name] for name in NAMES))
        native().rgpu_token_write_slot(ctypes.c_void_p(self.address), self.slot, words)
        if signal:
            os.eventfd_write(self.event_fd, 1)

    def worked(self, ns: int) -> None:
        self.busy_ns += ns
        at = SLOTS_OFFSET + SLOT_BYTES * self.slot + BUSY_OFFSET
        # Whole: `struct` writes byte by byte, and the token loop reads meanwhile.
        ctypes.c_uint64.from_address(self.address + at).value = self.busy_ns

    def wait(self, ms: int = 50) -> None:
        address = ctypes.c_void_p(self.address)
        native().rgpu_token_wait(address, native().rgpu_token_futex(address), ms * MS)

    def running(self) -> bool:
        return self.token.read().phase in (Phase.SLICE, Phase.OPEN)

    def acquire(self) -> None:
        """Waits for a grant and begins to work under it."""
        self.say(signal=True, wants=1)
        while True:
            grant = self.token.read()
            if grant.phase in (Phase.SLICE, Phase.OPEN) and grant.generation != self.spent():
                self.say(active_gen=grant.generation)
                if self.token.read()[:2] == grant[:2]:
                    self.say(wants=0)
                    print(f"granted {grant.phase.name}", flush=True)
                    return
                self.say(active_gen=0)
            else:
                self.wait()

    def spent(self) -> int:
        return self.said["spent_gen"]

    def release(self, left_over: bool, busy_since: int) -> None:
        """Everything released has completed."""
        now = time.monotonic_ns()
        self.worked(now - busy_since)
        grant = self.token.read()
        spent = self.said["active_gen"] if left_over else self.spent()
        silent = grant.phase is Phase.OPEN and not left_over
        self.say(not silent, wants=int(left_over), active_gen=0, drained_ns=now, spent_gen=spent)
        print("released", flush=True)


def work(gate: Gate, until_ns: int | None) -> int:
    """Works under the grant until it is over; returns when the work began."""
    start = time.monotonic_ns()
    generation = gate.said["active_gen"]
    while True:
        grant = gate.token.read()
        now = time.monotonic_ns()
        gate.say()
        if grant.phase is Phase.SLICE and now >= grant.start_ns + grant.slice_ns:
            gate.say(signal=True, near_end_gen=generation)
            return start
        if not gate.running() or grant.generation != generation:
            return start
        if until_ns is not None and now >= until_ns:
            return start
        select.select([], [], [], 0.001)


def serve(gate: Gate, mode: str) -> None:
    more = mode != "short"
    while True:
        if not more and not sys.stdin.readline():
            return
        gate.acquire()
        if mode == "endless":
            while True:
                gate.say()
                select.select([], [], [], 0.02)
        begun = work(gate, time.monotonic_ns() + MS if mode == "short" else None)
        if mode == "polite" and select.select([sys.stdin], [], [], 0)[0]:
            more = bool(sys.stdin.readline()) and False
        if mode == "short":
            more = False
        gate.release(more, begun)


if __name__ == "__main__":
    serve(Gate(*map(int, sys.argv[1:5])), sys.argv[5])
