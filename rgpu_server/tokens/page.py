"""The token in a lease page, as the loop writes and reads it (`native/lease/token.h`)."""

from __future__ import annotations

import ctypes
from enum import IntEnum
from functools import cache
from typing import NamedTuple

from rgpu_common.parts import native_library

_DEMAND_WORDS = 11
_GATE_WORDS = 10


class Phase(IntEnum):
    """Of a lease's token."""

    OFF = 0
    NONE = 1
    PREPARE = 2
    SLICE = 3
    OPEN = 4
    RECALLED = 5


class Grant(NamedTuple):
    """What the page says.  Times in ns of the machine's monotonic clock."""

    phase: Phase
    generation: int
    start_ns: int
    slice_ns: int


class Demand(NamedTuple):
    """What workers of a lease say, together (`Demand` of token.h)."""

    workers: int
    active: int
    wanting: int
    near_end: int
    spent: int
    kernel_us: int
    in_flight_ns: int
    busy_ns: int
    held_back_ns: int
    oldest_alive_ns: int
    drained_ns: int


class Gate(NamedTuple):
    """What one worker says (`SlotGate` of page.h), behind the session that the slot belongs to."""

    session: int
    active_gen: int
    near_end_gen: int
    spent_gen: int
    wants: int
    kernel_us: int
    in_flight_ns: int
    alive_ns: int
    held_back_ns: int
    drained_ns: int


@cache
def native() -> ctypes.CDLL:
    """The C functions of tokens."""
    library = ctypes.CDLL(str(native_library()))
    page, u32, u64 = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64
    words = ctypes.POINTER(u64)
    for name, result, arguments in (
        ("write", None, [page, u32, u64, u64, u64]),
        ("read", None, [page, words]),
        ("heartbeat", None, [page, u64]),
        ("demand", None, [page, u64, u64, words]),
        ("write_slot", None, [page, u32, words]),
        ("read_slot", ctypes.c_int, [page, u32, words]),
        ("wait", None, [page, u32, u64]),
        ("futex", u32, [page]),
    ):
        function = getattr(library, f"rgpu_token_{name}")
        function.restype, function.argtypes = result, arguments
    return library


class TokenView:
    """The token of the page at `address`, which stays mapped as long as this is used."""

    __slots__ = ("_address", "_demand", "_demand_words", "_write")

    def __init__(self, address: int) -> None:
        library = native()
        self._address = ctypes.c_void_p(address)
        self._write = library.rgpu_token_write
        self._demand = library.rgpu_token_demand
        self._demand_words = (ctypes.c_uint64 * _DEMAND_WORDS)()

    def write(self, phase: Phase, generation: int, start_ns: int = 0, slice_ns: int = 0) -> None:
        """Writes the grant and wakes the lease's workers."""
        self._write(self._address, phase, generation, start_ns, slice_ns)

    def read(self) -> Grant:
        words = (ctypes.c_uint64 * 4)()
        native().rgpu_token_read(self._address, words)
        word, generation, start_ns, slice_ns = words
        # A worker that wrote where it must not is one that has to be off the device.
        phase = Phase(word) if word <= Phase.RECALLED else Phase.RECALLED
        return Grant(phase, generation, start_ns, slice_ns)

    def heartbeat(self, now_ns: int) -> None:
        """Tells the workers that the loop lives."""
        native().rgpu_token_heartbeat(self._address, now_ns)

    def demand(self, generation: int, slots: int) -> Demand:
        """slots: a bit for each that counts."""
        self._demand(self._address, generation, slots, self._demand_words)
        return Demand._make(self._demand_words)

    def gate(self, slot: int) -> Gate:
        words = (ctypes.c_uint64 * _GATE_WORDS)()
        native().rgpu_token_read_slot(self._address, slot, words)
        return Gate._make(words)
