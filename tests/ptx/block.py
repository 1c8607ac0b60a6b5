"""The threads of a block as coroutines, and their waits for each other at barriers and in warps."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable

from ptx.warp import resolve

from rgpu_emu.lower import abi

OP_NAMES = {number: name for name, number in abi.OP.items()}


class DeadlockError(AssertionError):
    """No thread of the block can go on."""


class Block:
    """The coroutines of one block and their scheduler.

    symbol: returns the address of a function or variable of the kernel. info: the block's
    structure. threads: the memory in which the kernel writes what each of the `count` threads waits
    for.
    """

    def __init__(
        self,
        symbol: Callable[[str], int],
        info: ctypes.Array[ctypes.c_char],
        threads: ctypes.Array[ctypes.c_char],
        count: int,
    ) -> None:
        self.threads, self.count = threads, count
        self.arrived: dict[int, int] = {}
        size = ctypes.c_uint64.from_address(symbol("rgpu_frame_bytes")).value
        start = ctypes.CFUNCTYPE(
            ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p
        )(symbol("rgpu_thread"))
        self.frames = ctypes.create_string_buffer(size * self.count + 64)
        base = (ctypes.addressof(self.frames) + 63) // 64 * 64
        self.handles = [
            start(ctypes.addressof(info), t, base + t * size) for t in range(self.count)
        ]

    def alive(self, thread: int) -> bool:
        return bool(ctypes.c_uint64.from_address(self.handles[thread]).value)

    def resume(self, thread: int) -> None:
        function = ctypes.c_uint64.from_address(self.handles[thread]).value
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function)(self.handles[thread])

    def state(self, thread: int) -> tuple[int, int, int, int, int]:
        return struct.unpack_from("<IIIIQ", self.threads, thread * abi.THREAD_BYTES)  # type: ignore[return-value]

    def place(self, thread: int) -> tuple[int, ...]:
        """Where a thread is that waits at an activemask, and the number of the instruction."""
        at = thread * abi.THREAD_BYTES + abi.THREAD["place"]
        return (*struct.unpack_from("<4Q", self.threads, at), self.state(thread)[2])

    def answer(self, thread: int, value: int) -> None:
        struct.pack_into("<Q", self.threads, thread * abi.THREAD_BYTES + 24, value & (1 << 64) - 1)

    def run(self) -> None:
        while True:
            waiting = [t for t in range(self.count) if self.alive(t)]
            if not waiting:
                return
            ready = self._ready(waiting)
            if not ready:
                raise DeadlockError(
                    f"{len(waiting)} threads wait: {[OP_NAMES[self.state(t)[0]] for t in waiting][:8]}"
                )
            for thread in ready:
                self.resume(thread)

    def _ready(self, waiting: list[int]) -> list[int]:
        ready: list[int] = []
        spinning: list[int] = []
        together: list[int] = []
        bars: dict[int, list[int]] = {}
        warps: dict[int, list[int]] = {}
        for t in waiting:
            name = OP_NAMES[self.state(t)[0]]
            if name == "yield":
                spinning.append(t)
            elif name == "together":
                together.append(t)
            elif name.startswith("bar."):
                bars.setdefault(self.state(t)[2], []).append(t)
            else:
                warps.setdefault(t // 32, []).append(t)
        for threads in bars.values():
            ready += self._barrier(threads, len(waiting))
        for threads in warps.values():
            ready += self._warp(threads)
        busy = {t // 32 for t in ready}
        ready += [t for t in together if t // 32 not in busy]
        ready += spinning
        return ready or self._active_masks(warps)

    def _barrier(self, threads: list[int], live: int) -> list[int]:
        want = self.state(threads[0])[3] or live
        arrived = self.arrived.get(self.state(threads[0])[2], 0)
        if len(threads) + arrived < want:
            early = [t for t in threads if OP_NAMES[self.state(t)[0]] == "bar.arrive"]
            if early:
                self.arrived[self.state(threads[0])[2]] = arrived + len(early)
            return early
        self.arrived.pop(self.state(threads[0])[2], None)
        values = [self.state(t)[4] & 1 for t in threads]
        for t in threads:
            op = OP_NAMES[self.state(t)[0]]
            self.answer(
                t,
                {
                    "bar.red.popc": sum(values),
                    "bar.red.and": int(all(values)),
                    "bar.red.or": int(any(values)),
                }.get(op, 0),
            )
        return threads

    def _warp(self, threads: list[int]) -> list[int]:
        ready: list[int] = []
        groups: dict[tuple[int, int], list[int]] = {}
        for t in threads:
            op, mask, *_ = self.state(t)
            groups.setdefault((op, mask), []).append(t)
        for (op, mask), group in groups.items():
            name = OP_NAMES[op]
            if name == "activemask":
                continue
            live = sum(
                1 << t % 32
                for t in range(group[0] // 32 * 32, min(group[0] // 32 * 32 + 32, self.count))
                if self.alive(t)
            )
            if sum(1 << t % 32 for t in group) == mask & live:
                self._resolve(name, {t % 32: self.state(t) for t in group}, group)
                ready += group
        return ready

    def _active_masks(self, warps: dict[int, list[int]]) -> list[int]:
        ready: list[int] = []
        for threads in warps.values():
            here = [t for t in threads if OP_NAMES[self.state(t)[0]] == "activemask"]
            if not here:
                continue
            lowest = min(self.place(t) for t in here)
            together = [t for t in here if self.place(t) == lowest]
            for t in together:
                self.answer(t, sum(1 << u % 32 for u in together))
            ready += together
        return ready

    def _resolve(
        self, name: str, lanes: dict[int, tuple[int, int, int, int, int]], group: list[int]
    ) -> None:
        for t in group:
            self.answer(
                t, resolve(name, t % 32, {lane: s[4] for lane, s in lanes.items()}, lanes[t % 32])
            )
