"""An independent reference runner for compiled kernels: the contract of kernel_abi.h in plain Python.

It loads an object with llvmlite's linker, keeps a small arena, and schedules coroutines one resume at a time.  It is
slow and has no fault guard: it exists so that every instruction can be compared with NumPy without the device.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import mmap
import os
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import numpy.typing as npt

from rgpu_emu.lower import abi
from rgpu_emu.lower.codegen import host
from rgpu_emu.lower.entry import Lowered, lower_entry
from rgpu_emu.ptx.declare import layout
from rgpu_emu.ptx.link import Program, link

ARENA_BYTES = 64 << 20
GUARD_BYTES = 1 << 16
SHARED_AT = 1 << 20
LOCAL_AT = 8 << 20
HEAP_AT = 32 << 20
OP_NAMES = {number: name for name, number in abi.OP.items()}
HEADER = ".version 8.0\n.target sm_80\n.address_size 64\n"


class DeadlockError(AssertionError):
    """No thread of the block can go on."""


@dataclass
class Trap(Exception):
    """The kernel ended the launch."""

    result: int


@dataclass
class Arena:
    """Device memory at a real address."""

    memory: mmap.mmap = field(default_factory=lambda: mmap.mmap(-1, ARENA_BYTES + GUARD_BYTES))

    def __post_init__(self) -> None:
        self.view = np.frombuffer(self.memory, dtype=np.uint8)
        self.base = self.view.ctypes.data
        self.top = HEAP_AT

    def put(self, array: npt.NDArray[np.generic], *, align: int = 256) -> int:
        """Copies an array in; its device address."""
        raw = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
        self.top = (self.top + align - 1) // align * align
        at = self.top
        self.top += raw.size
        assert self.top < ARENA_BYTES
        self.view[at : at + raw.size] = raw
        return self.base + at

    def get(self, address: int, like: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        at = address - self.base
        return self.view[at : at + like.nbytes].view(like.dtype).reshape(like.shape).copy()


def entry_names(source: str) -> list[str]:
    return list(link([source]).entries)


class Kernel:
    """A lowered entry, loaded into this process."""

    def __init__(self, source: str | Sequence[str], name: str = "") -> None:
        self.program: Program = link([source] if isinstance(source, str) else list(source))
        self.name = name or next(iter(self.program.entries))
        self.lowered: Lowered = lower_entry(self.program, self.name)
        for library in ("libm.so.6", "libgcc_s.so.1"):
            llvm.load_library_permanently(library)
        machine = llvm.Target.from_triple(host().triple).create_target_machine()
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(self.lowered.image))
        self._engine.finalize_object()
        self.arena = Arena()
        self.globals = [self._place_global(v) for v in self.program.globals]
        self._relocate()
        self.output: list[tuple[int, int]] = []

    def symbol(self, name: str) -> int:
        return int(
            self._engine.get_function_address(name) or self._engine.get_global_value_address(name)
        )

    def _place_global(self, variable: object) -> int:
        data = np.zeros(max(variable.bytes, 1), np.uint8)  # type: ignore[attr-defined]
        initial = np.frombuffer(variable.initial, np.uint8)  # type: ignore[attr-defined]
        data[: initial.size] = initial
        return self.arena.put(data)

    def _relocate(self) -> None:
        module = self.program.modules[0]
        for variable, address in zip(self.program.globals, self.globals, strict=True):
            for offset, symbol, addend in variable.relocations:
                target = self.program.variable(symbol, module)
                if target is not None:
                    value = self.globals[self.program.ordinal(target)] + addend
                else:
                    function = self.program.function(symbol, module)
                    assert function is not None
                    value = abi.FUNCTION_TOKEN | self.program.token(function)
                at = address + offset - self.arena.base
                self.arena.view[at : at + 8] = np.frombuffer(struct.pack("<Q", value), np.uint8)

    def pack(self, arguments: Sequence[object]) -> bytes:
        """Parameter bytes from NumPy scalars, ints (8 bytes) or raw bytes."""
        params = self.program.entry(self.name).prototype.params
        places, total = layout(params)
        assert len(arguments) == len(params), f"{len(params)} parameters"
        out = bytearray(total + abi.PARAM_PADDING)
        for (at, size), value in zip(places, arguments, strict=True):
            raw = value if isinstance(value, bytes) else np.asarray(value).tobytes()
            assert len(raw) == size, f"{size} bytes wanted, {len(raw)} given"
            out[at : at + size] = raw
        return bytes(out)

    def launch(
        self,
        grid: Sequence[int],
        block: Sequence[int],
        *arguments: object,
        dynamic: int = 0,
        stop: int = 0,
    ) -> None:
        """Runs all blocks, one after another."""
        Launch(
            self, (*grid, 1, 1)[:3], (*block, 1, 1)[:3], self.pack(arguments), dynamic, stop
        ).run()

    def launch_in_child(
        self, grid: Sequence[int], block: Sequence[int], *arguments: object, stop: int = 0
    ) -> int:
        """Runs in a forked process, because a trap does not come back; the CUresult, 0 when it ended well."""
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                Launch.trap_pipe = writer
                self.launch(grid, block, *arguments, stop=stop)
                os.write(writer, struct.pack("<I", 0))
            finally:
                os._exit(0)
        os.close(writer)
        answer = os.read(reader, 4)
        os.close(reader)
        _, status = os.waitpid(pid, 0)
        assert answer, f"the kernel died with status {status}"
        return int(struct.unpack("<I", answer)[0])


class Launch:
    """One launch: the structures that the kernel reads."""

    trap_pipe = -1

    def __init__(
        self,
        kernel: Kernel,
        grid: Sequence[int],
        block: Sequence[int],
        params: bytes,
        dynamic: int,
        stop: int,
    ) -> None:
        self.kernel, self.grid, self.block, self.dynamic = kernel, grid, block, dynamic
        self.count = block[0] * block[1] * block[2]
        arena = kernel.arena
        self._keep: list[object] = []
        runtime = self._runtime()
        globals_ = self._words(kernel.globals)
        functions = self._words([kernel.symbol(f"rgpu_fn_{n}") for n in kernel.lowered.functions])
        self.functions = functions
        stop_word = ctypes.c_uint32(stop)
        self.params = ctypes.create_string_buffer(params, len(params))
        self._keep += [stop_word, self.params]
        self.info = ctypes.create_string_buffer(
            struct.pack(
                "<QQQQQQQ3I3IIIII",
                arena.base,
                ARENA_BYTES,
                globals_,
                ctypes.addressof(self.params),
                runtime,
                ctypes.addressof(stop_word),
                functions,
                *grid,
                *block,
                dynamic,
                7,
                1,
                0,
            )
        )
        self.threads = ctypes.create_string_buffer(abi.THREAD_BYTES * self.count)

    def _words(self, values: Sequence[int]) -> int:
        array = (ctypes.c_uint64 * max(len(values), 1))(*values)
        self._keep.append(array)
        return ctypes.addressof(array)

    def _runtime(self) -> int:
        u32, u64, ptr = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_void_p
        calls: list[tuple[Callable[..., object], object, list[object]]] = [
            (self._trap, None, [ptr, u32]),
            (lambda *_: self._trap(0, 710), None, [ptr, u64, u64, u32, u64, u64]),
            (self._vprintf, ctypes.c_int32, [ptr, u64, u64]),
            (lambda _, n: self.kernel.arena.put(np.zeros(n, np.uint8)), u64, [ptr, u64]),
            (lambda *_: None, None, [ptr, u64]),
            (lambda: 123456789, u64, []),
            (self._function, u64, [ptr, u64]),
        ]
        made = [
            ctypes.CFUNCTYPE(result, *arguments)(function) for function, result, arguments in calls
        ]  # type: ignore[arg-type]
        self._keep += made
        return self._words([ctypes.cast(f, ptr).value or 0 for f in made])

    def _trap(self, _block: int, result: int) -> None:
        if self.trap_pipe < 0:
            os.write(2, f"kernel trapped with {result} outside launch_in_child\n".encode())
        else:
            os.write(self.trap_pipe, struct.pack("<I", result))
        os._exit(0)

    def _vprintf(self, _block: int, fmt: int, arguments: int) -> int:
        self.kernel.output.append((fmt, arguments))
        return 1

    def _function(self, _block: int, token: int) -> int:
        ordinal = token ^ abi.FUNCTION_TOKEN
        if not 0 <= ordinal < len(self.kernel.lowered.functions):
            self._trap(0, 700)
        return ctypes.c_uint64.from_address(self.functions + 8 * ordinal).value

    def run(self) -> None:
        for z in range(self.grid[2]):
            for y in range(self.grid[1]):
                for x in range(self.grid[0]):
                    self._block((x, y, z))

    def _block(self, ctaid: tuple[int, int, int]) -> None:
        lowered, arena = self.kernel.lowered, self.kernel.arena
        info = ctypes.create_string_buffer(
            struct.pack(
                "<QQIIQQ3IIII",
                ctypes.addressof(self.info),
                arena.base + SHARED_AT,
                lowered.static_shared + self.dynamic,
                lowered.local_bytes,
                arena.base + LOCAL_AT,
                ctypes.addressof(self.threads),
                *ctaid,
                self.count,
                0,
                0,
            )
        )
        assert lowered.local_bytes * self.count <= HEAP_AT - LOCAL_AT
        if lowered.kind == abi.KIND_LOOP:
            ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.kernel.symbol("rgpu_block"))(
                ctypes.addressof(info)
            )
        else:
            Block(self, info).run()


class Block:
    """The coroutines of one block and their scheduler."""

    def __init__(self, launch: Launch, info: ctypes.Array[ctypes.c_char]) -> None:
        self.launch, self.count = launch, launch.count
        self.arrived: dict[int, int] = {}
        kernel = launch.kernel
        size = ctypes.c_uint64.from_address(kernel.symbol("rgpu_frame_bytes")).value
        start = ctypes.CFUNCTYPE(
            ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p
        )(kernel.symbol("rgpu_thread"))
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
        return struct.unpack_from("<IIIIQ", self.launch.threads, thread * abi.THREAD_BYTES)  # type: ignore[return-value]

    def answer(self, thread: int, value: int) -> None:
        struct.pack_into(
            "<Q", self.launch.threads, thread * abi.THREAD_BYTES + 24, value & (1 << 64) - 1
        )

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
        bars: dict[int, list[int]] = {}
        warps: dict[int, list[int]] = {}
        for t in waiting:
            name = OP_NAMES[self.state(t)[0]]
            if name == "yield":
                ready.append(t)
            elif name.startswith("bar."):
                bars.setdefault(self.state(t)[2], []).append(t)
            else:
                warps.setdefault(t // 32, []).append(t)
        for threads in bars.values():
            ready += self._barrier(threads, len(waiting))
        for threads in warps.values():
            ready += self._warp(threads)
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
            for t in here:
                self.answer(t, sum(1 << u % 32 for u in here))
            ready += here
        return ready

    def _resolve(
        self, name: str, lanes: dict[int, tuple[int, int, int, int, int]], group: list[int]
    ) -> None:
        for t in group:
            self.answer(
                t, resolve(name, t % 32, {lane: s[4] for lane, s in lanes.items()}, lanes[t % 32])
            )


def resolve(
    name: str, lane: int, values: dict[int, int], state: tuple[int, int, int, int, int]
) -> int:
    """The result of a warp operation for one lane, from the manual's pseudo code."""
    family, _, mode = name.partition(".")
    if family == "shfl":
        return _shuffle(mode, lane, values, state[2], state[3])
    if family == "vote":
        bits = {n: v & 1 for n, v in values.items()}
        return {
            "all": int(all(bits.values())),
            "any": int(any(bits.values())),
            "uni": int(len(set(bits.values())) == 1),
            "ballot": sum(b << n for n, b in bits.items()),
        }[mode]
    if family == "match":
        if mode == "any":
            return sum(1 << n for n, v in values.items() if v == values[lane])
        same = len(set(values.values())) == 1
        return (sum(1 << n for n in values) | 1 << 32) if same else 0
    if family == "redux":
        return _redux(mode, [v & 0xFFFFFFFF for v in values.values()])
    return 0


def _shuffle(mode: str, lane: int, values: dict[int, int], b: int, c: int) -> int:
    segment, clamp = c >> 8 & 31, c & 31
    b &= 31
    top = lane & segment | clamp & ~segment & 31
    low = lane & segment
    if mode == "up":
        source, ok = lane - b, lane - b >= top
    elif mode == "down":
        source, ok = lane + b, lane + b <= top
    elif mode == "bfly":
        source, ok = lane ^ b, lane ^ b <= top
    else:
        source = low | b & ~segment & 31
        ok = source <= top
    value = values.get(source if ok else lane, 0) & 0xFFFFFFFF
    return value | int(ok) << 32


def _redux(mode: str, values: list[int]) -> int:
    signed = [v - (1 << 32) if v >> 31 else v for v in values]
    total = {
        "add": sum(values),
        "min.s": min(signed),
        "max.s": max(signed),
        "min.u": min(values),
        "max.u": max(values),
    }
    if mode in total:
        return total[mode] & 0xFFFFFFFF
    out = values[0]
    for v in values[1:]:
        out = {"and": out & v, "or": out | v, "xor": out ^ v}[mode]
    return out


def ptx_file(name: str) -> str:
    return (Path(__file__).parent / "kernels" / name).read_text()
