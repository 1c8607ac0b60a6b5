"""Atomic operations and fences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rgpu_emu.lower.half import from_float, join_pair, split_pair, to_float
from rgpu_emu.lower.memory import pointer, space_of
from rgpu_emu.lower.registry import lowers
from rgpu_emu.ptx.errors import CUDA_ERROR_MISALIGNED_ADDRESS
from rgpu_emu.ptx.operands import Sink
from rgpu_emu.ptx.types import TYPES, Type

if TYPE_CHECKING:
    from rgpu_emu.lower.emit import FunctionEmitter
    from rgpu_emu.ptx.operands import Instr

_ORDER: Final = {
    "": "monotonic",
    "relaxed": "monotonic",
    "acquire": "acquire",
    "release": "release",
    "acq_rel": "acq_rel",
}
_RMW: Final = {
    "and": "and",
    "or": "or",
    "xor": "xor",
    "exch": "xchg",
    "add": "add",
    "inc": "uinc_wrap",
    "dec": "udec_wrap",
}


@lowers("atomic")
def atomic(e: FunctionEmitter, i: Instr) -> None:
    """Emits `atom`, which has a destination, and `red`, which has none."""
    kind, op = i.form.type, i.form.get("op")
    returns = i.form.row.op == "atom"
    address, *sources = i.operands[1:] if returns else i.operands
    place = pointer(e, address, space_of(i.form.get("space")), kind.bytes)
    low = e.op(f"and i64 {e.op(f'ptrtoint ptr {place} to i64')}, {kind.bytes - 1}")
    e.trap_if(e.op(f"icmp ne i64 {low}, 0"), CUDA_ERROR_MISALIGNED_ADDRESS)
    order = _ORDER[i.form.get("sem")]
    if op == "cas":
        expected, new = (e.read(s, kind.llvm) for s in sources[:2])
        old = _compare_exchange(e, place, expected, new, kind, order)
    elif kind.kind in "xh" or kind.name == "f16":
        old = _add_halves(e, place, e.read(sources[0], kind.llvm), kind, order)
    else:
        name = _operation(op, kind)
        old = e.op(
            f"atomicrmw {name} ptr {place}, {kind.llvm} {e.read(sources[0], kind.llvm)} {order}, "
            f"align {kind.bytes}"
        )
    if returns and not isinstance(i.operands[0], Sink):
        e.write(i.operands[0], old, kind.llvm)


def _operation(op: str, kind: Type) -> str:
    if op in ("min", "max"):
        return op if kind.kind == "s" else f"u{op}"
    return "fadd" if op == "add" and kind.kind == "f" else _RMW[op]


def _compare_exchange(
    e: FunctionEmitter, place: str, expected: str, new: str, kind: Type, order: str
) -> str:
    failure = "acquire" if order in ("acq_rel", "acquire") else "monotonic"
    pair = e.op(
        f"cmpxchg ptr {place}, {kind.llvm} {expected}, {kind.llvm} {new} {order} {failure}, "
        f"align {kind.bytes}"
    )
    return e.op(f"extractvalue {{ {kind.llvm}, i1 }} {pair}, 0")


def _add_halves(e: FunctionEmitter, place: str, value: str, kind: Type, order: str) -> str:
    """Adds halves by compare-and-swap; returns the old value in the type's register form."""
    llvm = f"i{kind.bits}"
    bits = e.op(f"bitcast half {value} to i16") if kind.llvm == "half" else value
    failure = "acquire" if order in ("acq_rel", "acquire") else "monotonic"
    loop, done = e.block_name("cas"), e.block_name("cas.done")
    slot = e.alloca(llvm)
    first = e.op(f"load atomic {llvm}, ptr {place} monotonic, align {kind.bytes}")
    e.line(f"store {llvm} {first}, ptr {slot}")
    e.line(f"br label %{loop}")
    e.start(loop)
    old = e.op(f"load {llvm}, ptr {slot}")
    new = _sum_bits(e, old, bits, kind)
    pair = e.op(
        f"cmpxchg ptr {place}, {llvm} {old}, {llvm} {new} {order} {failure}, align {kind.bytes}"
    )
    e.line(f"store {llvm} {e.op(f'extractvalue {{ {llvm}, i1 }} {pair}, 0')}, ptr {slot}")
    e.line(
        f"br i1 {e.op(f'extractvalue {{ {llvm}, i1 }} {pair}, 1')}, label %{done}, label %{loop}"
    )
    e.start(done)
    seen = e.op(f"load {llvm}, ptr {slot}")
    return e.op(f"bitcast i16 {seen} to half") if kind.llvm == "half" else seen


def _sum_bits(e: FunctionEmitter, a: str, b: str, kind: Type) -> str:
    element = TYPES[kind.name.removesuffix("x2")]

    def add(x: str, y: str) -> str:
        return from_float(
            e, e.op(f"fadd float {to_float(e, x, element)}, {to_float(e, y, element)}"), element
        )

    if kind.kind == "x":
        (a0, a1), (b0, b1) = split_pair(e, a, element), split_pair(e, b, element)
        return join_pair(e, add(a0, b0), add(a1, b1), element)
    if element.llvm == "half":
        x, y = (e.op(f"bitcast i16 {v} to half") for v in (a, b))
        return e.op(f"bitcast half {add(x, y)} to i16")
    return add(a, b)


@lowers("fence")
def fence(e: FunctionEmitter, i: Instr) -> None:
    order = {"acq_rel": "acq_rel", "acquire": "acquire", "release": "release"}.get(
        i.form.get("sem"), "seq_cst"
    )
    e.line(f"fence {order}")
