"""Suspend points: barriers, warp operations, yields. Each stores its request in the thread's state
and suspends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rgpu_emu.lower import abi
from rgpu_emu.lower.compare import write_pair
from rgpu_emu.lower.places import WORDS
from rgpu_emu.lower.registry import lowers
from rgpu_emu.lower.special import lane_id
from rgpu_emu.ptx.errors import PtxError
from rgpu_emu.ptx.operands import Not, Pair, Reg

if TYPE_CHECKING:
    from rgpu_emu.lower.emit import FunctionEmitter
    from rgpu_emu.ptx.operands import Instr

_KINDS: Final = {
    "op": "i32",
    "mask": "i32",
    "a": "i32",
    "b": "i32",
    "value": "i64",
    "result": "i64",
}


def suspend(e: FunctionEmitter, op: str, *, result: bool = False, **fields: str) -> str:
    """Suspends with an operation; returns the scheduler's 64-bit result if `result` is True."""
    if not e.coroutine:
        raise AssertionError(f"suspend point {op} outside a coroutine")
    for name, value in {"op": str(abi.OP[op]), **fields}.items():
        e.line(f"store {_KINDS[name]} {value}, ptr {_place(e, name)}")
    after = e.block_name("resume")
    state = e.op("call i8 @llvm.coro.suspend(token none, i1 false)")
    e.line(f"switch i8 {state}, label %coro.end [ i8 0, label %{after} i8 1, label %coro.cleanup ]")
    e.start(after)
    return e.op(f"load i64, ptr {_place(e, 'result')}") if result else ""


def _place(e: FunctionEmitter, field: str) -> str:
    return e.op(f"getelementptr i8, ptr {e.env('thread')}, i64 {abi.THREAD[field]}")


def _low(e: FunctionEmitter, value: str) -> str:
    return e.op(f"trunc i64 {value} to i32")


def _bit(e: FunctionEmitter, value: str, at: int = 0) -> str:
    moved = e.op(f"lshr i64 {value}, {at}") if at else value
    return e.op(f"trunc i64 {moved} to i1")


def _wide(e: FunctionEmitter, value: str, llvm: str = "i32") -> str:
    return value if llvm == "i64" else e.op(f"zext {llvm} {value} to i64")


def go_on_together(e: FunctionEmitter) -> None:
    """Lets the other threads of the warp come to where this one is.

    A function that is called by pointer, or calls itself, cannot suspend, so this does nothing
    there.
    """
    if e.coroutine:
        suspend(e, "together")


@lowers("bar_sync")
def bar_sync(e: FunctionEmitter, i: Instr) -> None:
    count = e.read(i.operands[1], "i32") if len(i.operands) > 1 else "0"
    suspend(e, "bar.sync", a=e.read(i.operands[0], "i32"), b=count)


@lowers("bar_arrive")
def bar_arrive(e: FunctionEmitter, i: Instr) -> None:
    suspend(e, "bar.arrive", a=e.read(i.operands[0], "i32"), b=e.read(i.operands[1], "i32"))


@lowers("bar_red")
def bar_red(e: FunctionEmitter, i: Instr) -> None:
    op, source = i.form.get("op"), i.operands[-1]
    if not isinstance(source, (Reg, Not)) or (isinstance(source, Reg) and source.type.bits != 1):
        raise PtxError(f"{i.form.name} needs a predicate as its last operand")
    count = e.read(i.operands[2], "i32") if len(i.operands) > 3 else "0"
    value = _wide(e, e.read(source, "i1"), "i1")
    result = suspend(
        e, f"bar.red.{op}", result=True, a=e.read(i.operands[1], "i32"), b=count, value=value
    )
    if op == "popc":
        e.write(i.operands[0], _low(e, result), "i32")
    else:
        e.write(i.operands[0], _bit(e, result), "i1")


@lowers("warp_sync")
def warp_sync(e: FunctionEmitter, i: Instr) -> None:
    suspend(e, "warp.sync", mask=e.read(i.operands[0], "i32"))


@lowers("shfl")
def shfl(e: FunctionEmitter, i: Instr) -> None:
    source, lane, clamp, mask = (e.read(o, "i32") for o in i.operands[1:])
    value = _wide(e, source)
    result = suspend(
        e, f"shfl.{i.form.get('mode')}", result=True, mask=mask, a=lane, b=clamp, value=value
    )
    predicate = _bit(e, result, 32) if isinstance(i.operands[0], Pair) else ""
    write_pair(e, i.operands[0], _low(e, result), "i32", predicate)


@lowers("vote")
def vote(e: FunctionEmitter, i: Instr) -> None:
    mode = i.form.get("mode")
    value = _wide(e, e.read(i.operands[1], "i1"), "i1")
    result = suspend(e, f"vote.{mode}", result=True, mask=e.read(i.operands[2], "i32"), value=value)
    if mode == "ballot":
        e.write(i.operands[0], _low(e, result), "i32")
    else:
        e.write(i.operands[0], _bit(e, result), "i1")


@lowers("match")
def match(e: FunctionEmitter, i: Instr) -> None:
    kind, mode = i.form.type, i.form.get("mode")
    value = _wide(e, e.source(i, 1), kind.llvm)
    mask = e.read(i.operands[2], "i32")
    result = suspend(e, f"match.{mode}", result=True, mask=mask, a=str(kind.bits), value=value)
    predicate = _bit(e, result, 32) if isinstance(i.operands[0], Pair) else ""
    write_pair(e, i.operands[0], _low(e, result), "i32", predicate)


@lowers("activemask")
def activemask(e: FunctionEmitter, i: Instr) -> None:
    """Emits activemask: the mask of the threads that are together here (`places`) when no other
    thread of the warp can run.
    """
    if e.frame.places is None:
        raise AssertionError("activemask in a function that does not know its places")
    _store_words(e, e.frame.places.values(e.position))
    result = suspend(e, "activemask", result=True, a=str(e.next_meeting()))
    e.write(i.operands[0], _low(e, result), "i32")


def _store_words(e: FunctionEmitter, words: list[str]) -> None:
    """Writes all of `ThreadState::place` with one store. LLVM would merge single stores of zero
    into a memset, and the time for that grows with the square of their number.
    """
    words = [*words, *["0"] * (WORDS - len(words))]
    constants = ", ".join(f"i64 {word if word.isdecimal() else 0}" for word in words)
    vector = f"<{constants}>"
    for n, word in enumerate(words):
        if not word.isdecimal():
            vector = e.op(f"insertelement <{WORDS} x i64> {vector}, i64 {word}, i32 {n}")
    e.line(f"store <{WORDS} x i64> {vector}, ptr {_place(e, 'place')}, align 8")


@lowers("redux")
def redux(e: FunctionEmitter, i: Instr) -> None:
    op, kind = i.form.get("op"), i.form.type
    if kind.kind == "f":
        _redux_float(e, i, op)
        return
    name = f"redux.{op}" + (f".{kind.kind}" if op in ("min", "max") else "")
    value = _wide(e, e.source(i, 1))
    result = suspend(e, name, result=True, mask=e.read(i.operands[2], "i32"), value=value)
    e.write(i.operands[0], _low(e, result), "i32")


def _redux_float(e: FunctionEmitter, i: Instr, op: str) -> None:
    """Emits min and max of floats by the unsigned operation on keys of the same order.

    No number has the lowest or the highest key. A NaN gets one of them: with `.NaN` the one that
    wins, otherwise the one that wins only if there is no other.
    """
    bits = e.read(i.operands[1], "i32")
    if i.form.has("abs"):
        bits = e.op(f"and i32 {bits}, {0x7FFFFFFF}")
    mask = e.op(f"or i32 {e.op(f'ashr i32 {bits}, 31')}, {-(1 << 31)}")
    nan = "0" if i.form.has("NaN") == (op == "min") else "-1"
    number = e.op(f"icmp ule i32 {e.op(f'and i32 {bits}, {0x7FFFFFFF}')}, {0x7F800000}")
    key = e.op(f"select i1 {number}, i32 {e.op(f'xor i32 {bits}, {mask}')}, i32 {nan}")
    result = suspend(
        e, f"redux.{op}.u", result=True, mask=e.read(i.operands[2], "i32"), value=_wide(e, key)
    )
    won = _low(e, result)
    positive = e.op(f"xor i32 {e.op(f'ashr i32 {won}, 31')}, -1")
    back = e.op(f"or i32 {positive}, {-(1 << 31)}")
    found = e.op(f"icmp ne i32 {won}, {nan}")
    canonical = 0x7FFFFFFF
    value = e.op(f"select i1 {found}, i32 {e.op(f'xor i32 {won}, {back}')}, i32 {canonical}")
    e.write(i.operands[0], value, "i32")


@lowers("elect")
def elect(e: FunctionEmitter, i: Instr) -> None:
    """Emits elect. The lowest lane of the mask that takes part is elected."""
    mask = e.read(i.operands[1], "i32")
    ballot = _low(e, suspend(e, "vote.ballot", result=True, mask=mask, value="1"))
    leader = e.intrinsic("i32", "llvm.cttz.i32", f"i32 {ballot}", "i1 false")
    write_pair(e, i.operands[0], leader, "i32", e.op(f"icmp eq i32 {leader}, {lane_id(e)}"))


@lowers("nanosleep")
def nanosleep(e: FunctionEmitter, i: Instr) -> None:
    """Emits nanosleep, which lets the other threads of the block run.

    A function that is called by pointer, or calls itself, cannot suspend. There the time is 0,
    which the manual allows.
    """
    if not e.coroutine:
        e.poll()
        return
    suspend(e, "yield", value=_wide(e, e.source(i, 0)))
