"""Builds one LLVM function as text. Registers are stack slots, which LLVM's SROA pass turns into
values.

Every register starts as zero, because reading a register that was never written must not be
undefined behaviour of the host.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from rgpu_emu.lower import abi
from rgpu_emu.lower.frame import Frame
from rgpu_emu.lower.places import Places
from rgpu_emu.ptx.errors import CUDA_ERROR_LAUNCH_TIMEOUT, PtxError
from rgpu_emu.ptx.lex import pack, unpack
from rgpu_emu.ptx.operands import Imm, Instr, Not, Operand, Pair, Reg, Sink, Special, Sym

if TYPE_CHECKING:
    from rgpu_emu.lower.unit import Unit
    from rgpu_emu.ptx.module import Function
    from rgpu_emu.ptx.types import Type

WIDTH: Final = {
    "i1": 1,
    "i8": 8,
    "i16": 16,
    "i32": 32,
    "i64": 64,
    "i128": 128,
    "half": 16,
    "float": 32,
    "double": 64,
}
FLOATS: Final = frozenset(("half", "float", "double"))
FRAME_SIZE: Final = "$FRAME$"  # finish() replaces it by the final size of the local frame
MAX_STACK_BYTES: Final = 1 << 20  # registers and call parameters of a function, not optimised
ZERO: Final = {"half": "0xH0000", "float": "0.0", "double": "0.0", "ptr": "null"}


def float_constant(value: Imm, llvm: str) -> str:
    """Returns the IR literal for a PTX literal that is used as a floating-point number."""
    if value.float_bits == 0:
        number = float(value.value) if llvm == "double" or abs(value.value) < 1 << 24 else 0.0
        bits = WIDTH[llvm]
        if number != value.value or value.value > 1 << 24:  # a bit pattern written in hex
            number = unpack(value.value & ((1 << bits) - 1), bits)
    else:
        number = unpack(value.value, value.float_bits)
    if llvm == "half":
        return f"0xH{int.from_bytes(pack(number, 16), 'little'):04X}"
    if llvm == "float":
        number = unpack(int.from_bytes(pack(number, 32), "little"), 32)
    return f"0x{int.from_bytes(struct.pack('<d', number), 'little'):016X}"


def _misfit(reg: Reg, llvm: str) -> str:
    return (
        f"the register {reg.name} (.{reg.type.name}) does not fit the instruction's type of "
        f"{WIDTH[llvm]} bits: use a register of that width, or convert with cvt"
    )


class FunctionEmitter:
    """Builds one function. `frame` is the PTX function whose body is emitted now: the function
    itself or an inlined callee.
    """

    def __init__(self, unit: Unit, *, coroutine: bool = False, hoist: bool = False) -> None:
        self.unit = unit
        self.coroutine = coroutine
        self.hoist = hoist  # values that all threads of a block share are computed once, outside
        self.outside: list[str] = []
        self.outside_types: dict[str, str] = {}
        self.entry: list[str] = []
        self.lines: list[str] = []
        self.frame: Frame
        self.position = 0
        self.depth = 0
        self.thread_exit = ""
        self.local_top = 0
        self._frames = 0
        self._meetings = 0
        self._stack_bytes = 0
        self._next = 0
        self._env: dict[str, str] = {}
        self._shared_slots: dict[str, str] = {}
        self._traps: dict[int, str] = {}

    # --- text -------------------------------------------------------------------------------------
    def temp(self) -> str:
        self._next += 1
        return f"%t{self._next}"

    def op(self, text: str) -> str:
        """Emits `%tN = text` and returns `%tN`."""
        self._next += 1
        name = f"%t{self._next}"
        self.lines.append(f"{name} = {text}")
        return name

    def line(self, text: str) -> None:
        self.lines.append(text)

    def block_name(self, what: str) -> str:
        self._next += 1
        return f"{what}.{self._next}"

    def start(self, block: str) -> None:
        self.lines.append(f"{block}:")

    def alloca(self, kind: str, *, align: int = 0, zero: bool = False) -> str:
        """Returns a new stack slot in the entry block."""
        words = kind[1:].split(" ", 1)
        self._stack_bytes += int(words[0]) if kind[0] == "[" else 8
        if self._stack_bytes > MAX_STACK_BYTES:
            raise PtxError("the function has too many registers and call parameters")
        self._next += 1
        name = f"%a{self._next}"
        self.entry.append(f"{name} = alloca {kind}" + (f", align {align}" if align else ""))
        if zero and kind[0] == "[":
            self.entry.append(self._cleared(name, int(words[0])))
        elif zero:
            self.entry.append(f"store {kind} {ZERO.get(kind, '0')}, ptr {name}")
        return name

    def shared_slot(self, name: str, size: int, align: int) -> str:
        """Returns the one slot of this name, which all instructions of the function use in turn."""
        found = self._shared_slots.get(name)
        if found is None:
            found = self._shared_slots[name] = self.alloca(f"[{size} x i8]", align=align, zero=True)
        return found

    def _cleared(self, name: str, size: int) -> str:
        self.unit.declare("void", "llvm.memset.p0.i64", ["ptr", "i8", "i64", "i1"])
        return f"call void @llvm.memset.p0.i64(ptr {name}, i8 0, i64 {size}, i1 false)"

    def clear(self, name: str, size: int) -> None:
        """Fills a slot with zero."""
        self.line(self._cleared(name, size))

    def library(self, name: str) -> str:
        """Returns the name of a helper function of fplib, and adds the helper to the unit."""
        return self.unit.library(name)

    def intrinsic(self, result: str, name: str, *arguments: str) -> str:
        """Calls an LLVM intrinsic. Each argument is 'type value'."""
        self.unit.declare(result, name, [a.split(" ", 1)[0] for a in arguments])
        return self.op(f"call {result} @{name}({', '.join(arguments)})")

    def dead(self) -> None:
        """Starts an unreachable block after a terminator."""
        self.start(self.block_name("dead"))

    def copy(self, target: str, origin: str, size: int) -> None:
        self.unit.declare("void", "llvm.memcpy.p0.p0.i64", ["ptr", "ptr", "i64", "i1"])
        self.line(
            f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {origin}, i64 {size}, i1 false)"
        )

    def new_frame(self, function: Function, choice: int = -1) -> Frame:
        """Returns a frame for a body that is emitted into this function.

        choice: tells it from other bodies that are emitted for the same call; -1: there is none.
        """
        self._frames += 1
        frame = Frame(self, function, self._frames)
        if function in self.unit.reach.meets:
            caller = self.frame.places if self._frames > 1 else None
            outer = caller.words(self.position) if caller is not None else []
            if choice >= 0:
                outer = [*outer, (choice, "")]
            frame.places = Places(self, frame.body, outer)
        return frame

    def next_meeting(self) -> int:
        """Returns a new number for a place where threads meet."""
        self._meetings += 1
        return self._meetings

    def reserve_local(self, size: int, align: int) -> int:
        """Reserves part of this function's local frame and returns its offset."""
        at = (self.local_top + align - 1) // align * align
        self.local_top = at + size
        return at

    def frame_bytes(self) -> int:
        """Returns the size of the local frame so far."""
        return (self.local_top + 15) // 16 * 16

    # --- environment: values loaded once in the entry block ---------------------------------------
    def env(self, name: str) -> str:
        """Returns a value of LaunchInfo or BlockInfo, or one derived from them, as an SSA name in
        the entry block.
        """
        value = self._env.get(name)
        if value is None:
            value = self._env[name] = self._make_env(name)
        return value

    def _entry_op(self, text: str) -> str:
        """Emits an operation in the entry block of the thread."""
        name = self.temp()
        self.entry.append(f"{name} = {text}")
        return name

    def _block_op(self, text: str) -> str:
        """Emits an operation whose result is the same for all threads of the block."""
        name = self.temp()
        self.outside.append(f"{name} = {text}")
        words = text.split()
        is_cast = words[0] in ("inttoptr", "zext")
        kind = (
            "ptr" if words[0] == "getelementptr" else words[-1] if is_cast else words[1].rstrip(",")
        )
        self.outside_types[name] = kind
        return name

    def _field(self, base: str, offset: int, kind: str) -> str:
        place = self._block_op(f"getelementptr i8, ptr {base}, i64 {offset}")
        return self._block_op(f"load {kind}, ptr {place}, align 1, !invariant.load !0")

    def param(self, kind: str, offset: int) -> str:
        """Returns a value at a fixed offset in the launch's parameters."""
        name = f"param.{kind}.{offset}"
        value = self._env.get(name)
        if value is None:
            value = self._env[name] = self._field(self.env("params"), offset, kind)
        return value

    def places_in(self, space: str, size: int) -> str:
        """Returns at how many offsets of a window an access of `size` bytes fits."""
        name = f"{space}.places.{size}"
        value = self._env.get(name)
        if value is None:
            self.unit.declare("i64", "llvm.usub.sat.i64", ["i64", "i64"])
            value = self._env[name] = self._block_op(
                f"call i64 @llvm.usub.sat.i64(i64 {self.env(f'{space}.bytes')}, i64 {size - 1})"
            )
        return value

    def _make_env(self, name: str) -> str:
        if name in abi.LAUNCH:
            return self._field(self.env("launch"), *abi.LAUNCH[name])
        if name in abi.BLOCK:
            return self._field("%bi", *abi.BLOCK[name])
        if name.startswith("runtime."):
            return self._field(self.env("runtime"), abi.RUNTIME[name[8:]], "ptr")
        if name in ("linear", "thread", "local.base", "local.offset"):
            return self._thread_env(name)
        op = self._block_op
        if name == "arena":
            return op(f"inttoptr i64 {self.env('band_base')} to ptr")
        if name == "shared.offset":  # from the arena's start
            return op(f"sub i64 {self.env('shared_base')}, {self.env('band_base')}")
        if name in ("local.bytes", "shared.bytes"):
            return op(f"zext i32 {self.env(name.replace('.', '_'))} to i64")
        raise AssertionError(name)

    def _thread_env(self, name: str) -> str:
        op = self._entry_op
        if name == "linear":
            row = op(f"mul i32 {self.env('block.y')}, %tz")
            row = op(f"add i32 {row}, %ty")
            row = op(f"mul i32 {row}, {self.env('block.x')}")
            return op(f"add i32 {row}, %tx")
        if name == "local.offset":  # from the arena's start
            return op(f"sub i64 {self.env('local.base')}, {self.env('band_base')}")
        wide = op(f"zext i32 {self.env('linear')} to i64")
        if name == "thread":
            return op(
                f"getelementptr [{abi.THREAD_BYTES} x i8], ptr {self.env('threads')}, i64 {wide}"
            )
        depot = op(
            f"mul i64 {wide}, {self.env('local.bytes')}"
        )  # generic address of this thread's depot
        return op(f"add i64 {self.env('local_base')}, {depot}")

    # --- operands ---------------------------------------------------------------------------------
    def read(self, operand: Operand, llvm: str, *, relaxed: bool = False) -> str:
        """Returns the operand as an IR value of type `llvm`. With `relaxed`, a register of another
        width is cut or zero-extended.
        """
        if isinstance(operand, Reg):
            if operand.type.bits == WIDTH[llvm]:
                return self.op(f"load {llvm}, ptr {self.frame.slot(operand)}")
            if not relaxed:
                raise PtxError(_misfit(operand, llvm))
            return self._resize(operand, llvm)
        if isinstance(operand, Imm):
            if llvm in FLOATS:
                return float_constant(operand, llvm)
            if operand.float_bits not in (0, WIDTH[llvm]):
                raise PtxError("a floating-point literal does not fit the instruction's type")
            if llvm == "i1":
                return "true" if operand.value & 1 else "false"
            return str(operand.value & ((1 << WIDTH[llvm]) - 1))
        if isinstance(operand, Special):
            return self.cast_int(*self.unit.special(self, operand.name), llvm)
        if isinstance(operand, Sym):
            return self.cast_int(self.unit.address_of(self, operand), "i64", llvm)
        if isinstance(operand, Not):
            if llvm != "i1":
                raise PtxError(_misfit(operand.reg, llvm))
            return self.op(f"xor i1 {self.read(operand.reg, 'i1')}, true")
        raise PtxError("this operand cannot be read as a value")

    def _resize(self, reg: Reg, llvm: str) -> str:
        natural = f"i{reg.type.bits}"
        value = self.op(f"load {natural}, ptr {self.frame.slot(reg)}")
        value = self.cast_int(value, natural, f"i{WIDTH[llvm]}")
        return self.op(f"bitcast i{WIDTH[llvm]} {value} to {llvm}") if llvm in FLOATS else value

    def cast_int(self, value: str, have: str, want: str, *, signed: bool = False) -> str:
        """Truncates or extends between integer types, or to the bits of a float type."""
        if want in FLOATS:
            bits = self.cast_int(value, have, f"i{WIDTH[want]}")
            return self.op(f"bitcast i{WIDTH[want]} {bits} to {want}")
        if WIDTH[have] == WIDTH[want]:
            return value
        if WIDTH[have] > WIDTH[want]:
            return self.op(f"trunc {have} {value} to {want}")
        return self.op(f"{'sext' if signed else 'zext'} {have} {value} to {want}")

    def write(
        self,
        operand: Operand,
        value: str,
        llvm: str,
        *,
        relaxed: bool = False,
        signed: bool = False,
    ) -> None:
        """Stores an IR value into a destination. With `relaxed` the value is extended or cut to the
        register's width.
        """
        if isinstance(operand, Sink):
            return
        if isinstance(operand, Pair):
            raise PtxError("two destinations where one is expected")
        if not isinstance(operand, Reg):
            raise PtxError("the destination is not a register")
        if operand.type.bits != WIDTH[llvm]:
            if not relaxed:
                raise PtxError(_misfit(operand, llvm))
            if llvm in FLOATS:
                value = self.op(f"bitcast {llvm} {value} to i{WIDTH[llvm]}")
            natural = f"i{operand.type.bits}"
            value = self.cast_int(value, f"i{WIDTH[llvm]}", natural, signed=signed)
            llvm = natural
        self.lines.append(f"store {llvm} {value}, ptr {self.frame.slot(operand)}")

    def source(self, instr: Instr, index: int, kind: Type | None = None) -> str:
        """Returns source operand `index` in the instruction's type, or in `kind`."""
        return self.read(instr.operands[index], (kind or instr.form.type).llvm)

    def result(self, instr: Instr, value: str, llvm: str = "") -> None:
        """Writes the first operand."""
        self.write(instr.operands[0], value, llvm or instr.form.type.llvm)

    # --- leaving ----------------------------------------------------------------------------------
    def trap_block(self, result: int) -> str:
        """Returns the block that ends the launch with a CUresult."""
        name = self._traps.get(result)
        if name is None:
            name = self._traps[result] = f"trap.{result}"
            self.env("runtime.trap")
        return name

    def trap_if(self, condition: str, result: int) -> None:
        after = self.block_name("ok")
        self.line(f"br i1 {condition}, label %{self.trap_block(result)}, label %{after}, !prof !1")
        self.start(after)

    def poll(self) -> None:
        """Checks whether the launch must stop. Every loop does this once in each round."""
        value = self.op(f"load atomic i32, ptr {self.env('stop')} monotonic, align 4")
        self.trap_if(self.op(f"icmp ne i32 {value}, 0"), CUDA_ERROR_LAUNCH_TIMEOUT)

    def finish(self) -> str:
        """Returns the function's body as text."""
        for result, name in self._traps.items():
            self.lines.append(f"{name}:")
            self.lines.append(f"call void {self.env('runtime.trap')}(ptr %bi, i32 {result})")
            self.lines.append("unreachable")
        outside = [] if self.hoist else self.outside
        text = "\n".join([*outside, *self.entry, "br label %body", "body:", *self.lines])
        return text.replace(FRAME_SIZE, str(self.frame_bytes()))
