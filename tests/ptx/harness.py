"""An independent reference runner for compiled kernels: the contract of kernel_abi.h in plain Python.

It loads an object with llvmlite's linker and keeps a small arena; threads that wait for each other are coroutines
(`block.py`), resumed one at a time.  It is slow and has no fault guard: it exists so that every instruction can be
compared with NumPy without the device.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import mmap
import os
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import llvmlite.binding as llvm
import numpy as np
import numpy.typing as npt
from ptx.block import Block

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
HEADER = ".version 8.0\n.target sm_80\n.address_size 64\n"


@dataclass
class Arena:
    """Device memory at a real address."""

    memory: mmap.mmap = field(default_factory=lambda: mmap.mmap(-1, ARENA_BYTES + GUARD_BYTES))

    def __post_init__(self) -> None:
        self.view = np.frombuffer(self.memory, dtype=np.uint8)
        self.base = self.view.ctypes.data
        self.top = HEAP_AT

    def put(self, array: npt.NDArray[np.generic], *, align: int = 256) -> int:
        """Copies an array into the arena; returns its device address."""
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
        cooperative: bool = False,
    ) -> None:
        """Runs all blocks one after another, so no block of a cooperative grid may wait."""
        Launch(
            self,
            (*grid, 1, 1)[:3],
            (*block, 1, 1)[:3],
            self.pack(arguments),
            dynamic,
            stop,
            cooperative=cooperative,
        ).run()

    def launch_in_child(
        self, grid: Sequence[int], block: Sequence[int], *arguments: object, stop: int = 0
    ) -> int:
        """Runs in a forked process, because a trap does not return. Returns the CUresult; 0 without
        a trap.
        """
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
        return int(struct.unpack("<I", answer)[0]) & 0xFFFF  # above: the reason of a trap


class Launch:
    """One launch, with the structures that the kernel reads."""

    trap_pipe = -1

    def __init__(
        self,
        kernel: Kernel,
        grid: Sequence[int],
        block: Sequence[int],
        params: bytes,
        dynamic: int,
        stop: int,
        *,
        cooperative: bool = False,
    ) -> None:
        self.kernel, self.grid, self.block, self.dynamic = kernel, grid, block, dynamic
        self.count = block[0] * block[1] * block[2]
        arena = kernel.arena
        workspace = arena.put(np.zeros(2, np.uint32)) if cooperative else 0
        self._keep: list[object] = []
        runtime = self._runtime()
        globals_ = self._words(kernel.globals)
        places = [0] * (max(kernel.lowered.functions, default=-1) + 1)
        for n in kernel.lowered.functions:
            places[n] = kernel.symbol(f"rgpu_fn_{n}")
        functions = self._words(places)
        self.functions = functions
        stop_word = ctypes.c_uint32(stop)
        self.params = ctypes.create_string_buffer(params, len(params))
        self._keep += [stop_word, self.params]
        self.info = ctypes.create_string_buffer(
            struct.pack(
                "<QQQQQQQ3I3IIIIIQ",
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
                workspace,
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
            (self._texture, None, [ptr, ptr]),
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

    def _texture(self, _block: int, call: int) -> None:
        from ptx.texture import run_call

        if result := run_call(call):
            self._trap(0, result)

    def _function(self, _block: int, token: int) -> int:
        ordinal = token ^ abi.FUNCTION_TOKEN
        if ordinal not in self.kernel.lowered.functions:
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
            Block(self.kernel.symbol, info, self.threads, self.count).run()
