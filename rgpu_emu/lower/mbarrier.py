"""mbarrier objects. A loop around test_wait or try_wait yields at its back-edge (`spin`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_emu.lower.barriertext import COUNT_BITS, COUNT_MASK, PHASE_BIT, UPDATE
from rgpu_emu.lower.memory import address_value, host_pointer, pointer, space_of
from rgpu_emu.lower.registry import lowers
from rgpu_emu.ptx.errors import CUDA_ERROR_MISALIGNED_ADDRESS
from rgpu_emu.ptx.operands import Sink

if TYPE_CHECKING:
    from rgpu_emu.lower.emit import FunctionEmitter
    from rgpu_emu.ptx.operands import Instr, Operand


def _object(e: FunctionEmitter, i: Instr, address: Operand) -> str:
    return _aligned(e, pointer(e, address, space_of(i.form.get("space")), 8))


def _aligned(e: FunctionEmitter, place: str) -> str:
    low = e.op(f"and i64 {e.op(f'ptrtoint ptr {place} to i64')}, 7")
    e.trap_if(e.op(f"icmp ne i64 {low}, 0"), CUDA_ERROR_MISALIGNED_ADDRESS)
    return place


def _number(e: FunctionEmitter, operand: Operand) -> str:
    return e.op(f"zext i32 {e.read(operand, 'i32')} to i64")


def update(e: FunctionEmitter, place: str, dropped: str, arrived: str, transferred: str) -> str:
    """Changes the object at a host address; returns the word before."""
    name = e.library(UPDATE)
    return e.op(f"call i64 {name}(ptr {place}, i64 {dropped}, i64 {arrived}, i64 {transferred})")


@lowers("mbarrier_init")
def mbarrier_init(e: FunctionEmitter, i: Instr) -> None:
    place = _object(e, i, i.operands[0])
    count = e.op(f"and i64 {_number(e, i.operands[1])}, {COUNT_MASK}")
    word = e.op(f"or i64 {count}, {e.op(f'shl i64 {count}, {COUNT_BITS}')}")
    e.line(f"store atomic i64 {word}, ptr {place} release, align 8")


@lowers("mbarrier_inval")
def mbarrier_inval(e: FunctionEmitter, i: Instr) -> None:
    e.line(f"store atomic i64 0, ptr {_object(e, i, i.operands[0])} monotonic, align 8")


@lowers("mbarrier_tx")
def mbarrier_tx(e: FunctionEmitter, i: Instr) -> None:
    """Emits expect_tx and complete_tx, which completes the phase if nothing else is awaited."""
    place, count = _object(e, i, i.operands[0]), _number(e, i.operands[1])
    if i.form.has("complete_tx"):
        count = e.op(f"sub i64 0, {count}")
    update(e, place, "0", "0", count)


@lowers("mbarrier_arrive")
def mbarrier_arrive(e: FunctionEmitter, i: Instr) -> None:
    expects = i.form.has("expect_tx")
    place = _object(e, i, i.operands[1])
    given = _number(e, i.operands[2]) if len(i.operands) > 2 else "1"
    count = "1" if expects else given
    dropped = count if i.form.get("action") == "arrive_drop" else "0"
    state = update(e, place, dropped, count, given if expects else "0")
    if not isinstance(i.operands[0], Sink):
        e.write(i.operands[0], state, "i64")


@lowers("mbarrier_wait")
def mbarrier_wait(e: FunctionEmitter, i: Instr) -> None:
    """Emits test_wait and try_wait: True if the phase of a state, or of a parity, is over. Waiting
    for less than its time limit is allowed, so try_wait does not wait.
    """
    place = _object(e, i, i.operands[1])
    order = "monotonic" if i.form.get("sem") == "relaxed" else "acquire"
    word = e.op(f"load atomic i64, ptr {place} {order}, align 8")
    phase = e.op(f"lshr i64 {word}, {PHASE_BIT}")
    if i.form.has("parity"):
        asked = e.op(f"and i64 {_number(e, i.operands[2])}, 1")
    else:
        asked = e.op(f"lshr i64 {e.read(i.operands[2], 'i64')}, {PHASE_BIT}")
    e.write(i.operands[0], e.op(f"icmp ne i64 {phase}, {asked}"), "i1")


@lowers("mbarrier_pending")
def mbarrier_pending(e: FunctionEmitter, i: Instr) -> None:
    count = e.op(f"and i64 {e.read(i.operands[1], 'i64')}, {COUNT_MASK}")
    e.write(i.operands[0], e.op(f"trunc i64 {count} to i32"), "i32")


@lowers("copy_arrive")
def copy_arrive(e: FunctionEmitter, i: Instr) -> None:
    """Emits `cp.async.mbarrier.arrive`. The copies before it are complete: it arrives at once, and
    without .noinc it awaits one arrival more, which leaves the object as it is.
    """
    place = _object(e, i, i.operands[0])
    if i.form.has("noinc"):
        update(e, place, "0", "1", "0")


@lowers("copy_bulk")
def copy_bulk(e: FunctionEmitter, i: Instr) -> None:
    """Emits `cp.async.bulk` as an immediate copy by 16 bytes, which then completes its bytes.

    A size or address that is no multiple of 16 ends the launch, as on a device.
    """
    target, origin, size = i.operands[:3]
    spaces = (space_of(i.form.get("space")), space_of(i.form.get("from")))
    to, at = address_value(e, target), address_value(e, origin)
    count = e.op(f"zext i32 {e.read(size, 'i32')} to i64")
    both = e.op(f"or i64 {to}, {at}")
    low = e.op(f"and i64 {e.op(f'or i64 {both}, {count}')}, 15")
    e.trap_if(e.op(f"icmp ne i64 {low}, 0"), CUDA_ERROR_MISALIGNED_ADDRESS)
    cell = e.alloca("i64")
    again, copy, done = (e.block_name(f"bulk.{n}") for n in ("again", "copy", "done"))
    e.line(f"store i64 0, ptr {cell}")
    e.line(f"br label %{again}")
    e.start(again)
    e.poll()
    offset = e.op(f"load i64, ptr {cell}")
    more = e.op(f"icmp ult i64 {offset}, {count}")
    e.line(f"br i1 {more}, label %{copy}, label %{done}")
    e.start(copy)
    source = host_pointer(e, e.op(f"add i64 {at}, {offset}"), spaces[1], 16)
    place = host_pointer(e, e.op(f"add i64 {to}, {offset}"), spaces[0], 16)
    e.line(f"store i128 {e.op(f'load i128, ptr {source}, align 1')}, ptr {place}, align 1")
    e.line(f"store i64 {e.op(f'add i64 {offset}, 16')}, ptr {cell}")
    e.line(f"br label %{again}")
    e.start(done)
    if not i.form.has("bulk_group"):
        object_ = _aligned(e, pointer(e, i.operands[3], "shared", 8))
        update(e, object_, "0", "0", e.op(f"sub i64 0, {count}"))
