"""Conversions between state-space addresses and generic addresses.

Generic addresses are arena addresses, and .global and .const addresses are the same numbers.
.shared and .local addresses are offsets into the window of the block or thread, .param addresses
are offsets into the parameters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_emu.lower.memory import space_of
from rgpu_emu.lower.registry import lowers
from rgpu_emu.ptx.errors import unsupported

if TYPE_CHECKING:
    from rgpu_emu.lower.emit import FunctionEmitter
    from rgpu_emu.ptx.operands import Instr


def param_window(e: FunctionEmitter) -> str:
    """Returns the generic address of a copy of the parameters. The copy is made on entry in the
    thread's local window.
    """
    frame = e.frame
    if not frame.is_entry:
        raise unsupported("cvta.param", "is supported in entries only")
    if frame.param_copy < 0:
        frame.param_copy = e.reserve_local(max(frame.param_bytes, 1), 128)
        offset, arena, params = e.env("local.offset"), e.env("arena"), e.env("params")
        start, place = e.temp(), e.temp()
        e.entry.append(f"{start} = add i64 {offset}, {frame.param_copy}")
        e.entry.append(f"{place} = getelementptr i8, ptr {arena}, i64 {start}")
        e.unit.declare("void", "llvm.memcpy.p0.p0.i64", ["ptr", "ptr", "i64", "i1"])
        e.entry.append(
            f"call void @llvm.memcpy.p0.p0.i64(ptr {place}, ptr {params}, "
            f"i64 {frame.param_bytes}, i1 false)"
        )
    return e.op(f"add i64 {e.env('local.base')}, {frame.param_copy}")


def window_base(e: FunctionEmitter, space: str) -> str:
    """Returns the generic address of a window's offset 0."""
    if space == "shared":
        return e.env("shared_base")
    return e.env("local.base") if space == "local" else param_window(e)


@lowers("cvta")
def cvta(e: FunctionEmitter, i: Instr) -> None:
    space = space_of(i.form.get("space"))
    value = e.read(i.operands[1], "i64", relaxed=True)
    if space not in ("global", "const"):
        op = "sub" if i.form.has("to") else "add"
        value = e.op(f"{op} i64 {value}, {window_base(e, space)}")
    e.write(i.operands[0], e.cast_int(value, "i64", i.form.type.llvm), i.form.type.llvm)


def _in_window(e: FunctionEmitter, value: str, base: str, size: str) -> str:
    return e.op(f"icmp ult i64 {e.op(f'sub i64 {value}, {base}')}, {size}")


@lowers("isspacep")
def isspacep(e: FunctionEmitter, i: Instr) -> None:
    space = space_of(i.form.get("space"))
    value = e.read(i.operands[1], "i64", relaxed=True)
    e.write(i.operands[0], _is_in(e, value, space), "i1")


def _is_in(e: FunctionEmitter, value: str, space: str) -> str:
    if space in ("shared", "local"):
        return _in_window(e, value, window_base(e, space), e.env(f"{space}.bytes"))
    if space == "param":
        return _in_window(e, value, param_window(e), str(e.frame.param_bytes))
    if space == "const":
        return e.op(f"call i1 {e.unit.const_test()}(ptr {e.env('globals')}, i64 {value})")
    band = _in_window(e, value, e.env("band_base"), e.env("band_bytes"))
    windows = e.op(f"or i1 {_is_in(e, value, 'shared')}, {_is_in(e, value, 'local')}")
    windows = e.op(f"or i1 {windows}, {_is_in(e, value, 'const')}")
    return e.op(f"and i1 {band}, {e.op(f'xor i1 {windows}, true')}")
