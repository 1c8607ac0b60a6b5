"""Addresses and plain loads and stores.

**Kernels reach memory only through the clamp.** An offset from the band's start that is outside the
band is replaced by the band's end, where a guard page lies. An offset that is outside its window is
replaced by the same guard page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rgpu_emu.lower.arith import minmax
from rgpu_emu.lower.lockstep import is_volatile
from rgpu_emu.lower.registry import lowers
from rgpu_emu.lower.sync import go_on_together
from rgpu_emu.ptx.errors import PtxError, unsupported
from rgpu_emu.ptx.operands import Addr, Imm, Not, Operand, Reg, Sink, Special, Sym, Variable, Vec
from rgpu_emu.ptx.types import PRED
from rgpu_emu.ptx.uses import refuse_own_parameter

if TYPE_CHECKING:
    from rgpu_emu.lower.emit import FunctionEmitter
    from rgpu_emu.ptx.operands import Instr
    from rgpu_emu.ptx.types import Type

MAX_ACCESS_BITS: Final = 256  # abi.PARAM_PADDING and the guard pages are larger
ORDERED: Final = {
    "volatile": "monotonic",
    "relaxed": "monotonic",
    "acquire": "acquire",
    "release": "release",
}


def space_of(name: str) -> str:
    """Returns the plain name of a space such as `shared::cta`; '' is generic."""
    return name.partition("::")[0]


def pointer(e: FunctionEmitter, address: Operand, space: str, size: int) -> str:
    """Returns a host pointer for `size` bytes at `[address]` of a state space."""
    if not isinstance(address, Addr):
        raise PtxError("this operand is not an address")
    base = address.base
    if isinstance(base, Sym) and address.index is None:
        variable = base.variable or e.unit.program.variable(base.name, e.frame.function.module)
        if variable is not None:
            fixed = _fixed(e, variable, base.offset + address.offset, space, size)
            if fixed:
                return fixed
    if space == "param":
        return _param_pointer(e, address)
    return host_pointer(e, address_value(e, address), space, size)


def host_pointer(e: FunctionEmitter, value: str, space: str, size: int) -> str:
    """Returns a host pointer for `size` bytes at an address that was computed."""
    if space in ("shared", "local"):
        return _window(e, value, space, size)
    return clamp(e, value)


def address_value(e: FunctionEmitter, address: Operand) -> str:
    """Returns the address itself: generic, or an offset in its window."""
    if not isinstance(address, Addr):
        raise PtxError("this operand is not an address")
    if address.base is None:
        return str(address.offset)
    base = address.base
    if isinstance(base, Reg) and base.type.bits == 32 and address.offset > 0:
        # The sum wraps as 32-bit addresses do: compilers write [%r1 + 128] for %r1 = -128.
        narrow = e.op(f"add i32 {e.read(base, 'i32')}, {address.offset & 0xFFFFFFFF}")
        return e.op(f"zext i32 {narrow} to i64")
    value = e.read(base, "i64", relaxed=True)
    if address.index is not None:
        return e.op(f"add i64 {value}, {_bytes_before(e, address, address.index)}")
    return e.op(f"add i64 {value}, {address.offset}") if address.offset else value


def _bytes_before(e: FunctionEmitter, address: Addr, index: Reg) -> str:
    """Returns the bytes of the elements before the one that `address` names."""
    base = address.base
    variable = None
    if isinstance(base, Sym):
        variable = base.variable or e.unit.program.variable(base.name, e.frame.function.module)
    if variable is None:
        raise PtxError("only elements of variables have a number")
    number = e.read(index, f"i{index.type.bits}")
    if index.type.bits < 64:
        wider = "sext" if index.type.kind == "s" else "zext"
        number = e.op(f"{wider} i{index.type.bits} {number} to i64")
    number = e.op(f"add i64 {number}, {address.offset}")
    return e.op(f"mul i64 {number}, {variable.type.bytes}")


def clamp(e: FunctionEmitter, address: str) -> str:
    """Returns the host pointer of a generic or global address."""
    offset = e.op(f"sub i64 {address}, {e.env('band_base')}")
    offset = minmax(e, "min", "i64", offset, e.env("band_bytes"), signed=False)
    return e.op(f"getelementptr i8, ptr {e.env('arena')}, i64 {offset}")


def _window(e: FunctionEmitter, offset: str, space: str, size: int) -> str:
    inside = e.op(f"icmp ult i64 {offset}, {e.places_in(space, size)}")
    place = e.op(f"add i64 {offset}, {e.env(f'{space}.offset')}")
    place = e.op(f"select i1 {inside}, i64 {place}, i64 {e.env('band_bytes')}")
    return e.op(f"getelementptr i8, ptr {e.env('arena')}, i64 {place}")


def _fixed(e: FunctionEmitter, variable: Variable, offset: int, space: str, size: int) -> str:
    """Returns a pointer that needs no clamp because it is inside a variable; '' if it needs one."""
    inside = offset >= 0 and offset + size <= variable.bytes
    if variable.space == "param" and space in ("param", "", "local"):
        if not inside:
            raise PtxError(f"{size} bytes at {variable.name}+{offset} are outside the parameter")
        if id(variable) in e.frame.param_offsets and e.frame.is_entry:
            at = e.frame.param_offsets[id(variable)] + offset
            return e.op(f"getelementptr i8, ptr {e.env('params')}, i64 {at}")
        return e.op(f"getelementptr i8, ptr {e.frame.scratch(variable)}, i64 {offset}")
    if not inside or variable.space != space or space not in ("shared", "local"):
        return ""
    if space == "shared":
        start: str = str(e.unit.shared[id(variable)] + offset)
    else:
        start = e.op(f"add i64 %lsp, {e.frame.local_offsets[id(variable)] + offset}")
    place = e.op(f"add i64 {e.env(f'{space}.offset')}, {start}")
    return e.op(f"getelementptr i8, ptr {e.env('arena')}, i64 {place}")


def _param_pointer(e: FunctionEmitter, address: Addr) -> str:
    if not e.frame.is_entry:
        raise unsupported("ld.param by register", "is supported in entries only")
    offset = minmax(
        e, "min", "i64", address_value(e, address), str(e.frame.param_bytes), signed=False
    )
    return e.op(f"getelementptr i8, ptr {e.env('params')}, i64 {offset}")


def _parts(operand: Operand, vector: str) -> tuple[Operand, ...]:
    count = int(vector[1:]) if vector else 1
    if not vector:
        if isinstance(operand, Vec):
            raise PtxError("a vector operand without .v2, .v4 or .v8")
        return (operand,)
    if not isinstance(operand, Vec) or len(operand.parts) != count:
        raise PtxError(f"a .{vector} access needs {count} registers in braces")
    return operand.parts


def _accessed(operand: Operand, i: Instr) -> tuple[Operand, ...]:
    """Returns the elements that a load or store moves."""
    parts = _parts(operand, i.form.get("vec"))
    if len(parts) * i.form.type.bits > MAX_ACCESS_BITS:
        raise PtxError(f"{i.form.name} moves more than {MAX_ACCESS_BITS} bits")
    return parts


def _access(e: FunctionEmitter, i: Instr, kind: Type, *, store: bool) -> tuple[str, str]:
    """Returns the text before and after an access: `atomic`, and the ordering with the
    alignment.
    """
    order = i.form.get("sem")
    if order in ORDERED and kind.bits <= 64 and space_of(i.form.get("space")) != "param":
        return "atomic volatile ", f" {ORDERED[order]}, align {kind.bytes}"
    if space_of(i.form.get("space")) == "param":
        return "", ", align 1, !invariant.load !0" if not store and _is_entry_param(
            e, i.operands[1]
        ) else ", align 1"
    return "", f", align 1{e.unit.access}"


def _is_entry_param(e: FunctionEmitter, address: Operand) -> bool:
    """Returns True if an address is in the launch's parameters, and not in a call's
    scratch space.
    """
    base = address.base if isinstance(address, Addr) else None
    if isinstance(base, Sym) and base.variable is not None:
        return e.frame.is_entry and id(base.variable) in e.frame.param_offsets
    return e.frame.is_entry


def _hoisted(e: FunctionEmitter, i: Instr) -> bool:
    """Returns True if the load reads a parameter at a fixed place. The block's loop reads
    it once.
    """
    address = i.operands[1]
    fixed = isinstance(address, Addr) and isinstance(address.base, Sym) and e.hoist
    return fixed and space_of(i.form.get("space")) == "param" and _is_entry_param(e, address)


def _hoisted_offset(e: FunctionEmitter, i: Instr) -> int:
    address = i.operands[1]
    if (
        not isinstance(address, Addr)
        or not isinstance(address.base, Sym)
        or address.base.variable is None
    ):
        raise PtxError("this operand is not an address")
    variable, offset = address.base.variable, address.base.offset + address.offset
    size = i.form.type.bytes * int(i.form.get("vec")[1:] or "1")
    if offset < 0 or offset + size > variable.bytes:
        raise PtxError(f"{size} bytes at {variable.name}+{offset} are outside the parameter")
    return e.frame.param_offsets[id(variable)] + offset


@lowers("load")
def load(e: FunctionEmitter, i: Instr) -> None:
    kind, space = i.form.type, space_of(i.form.get("space"))
    if e.position in e.unit.reach.meetings.get(e.frame.function, ()):
        go_on_together(e)
    parts = _accessed(i.operands[0], i)
    base = "" if _hoisted(e, i) else pointer(e, i.operands[1], space, kind.bytes * len(parts))
    before, after = _access(e, i, kind, store=False)
    values = []
    for n in range(len(parts)):
        if not base:
            values.append(e.param(kind.llvm, _hoisted_offset(e, i) + n * kind.bytes))
            continue
        place = base if n == 0 else e.op(f"getelementptr i8, ptr {base}, i64 {n * kind.bytes}")
        values.append(e.op(f"load {before}{kind.llvm}, ptr {place}{after}"))
    for part, value in zip(parts, values, strict=True):
        if isinstance(part, Reg) and part.type.bits < kind.bits:
            raise PtxError(f"the register {part.name} is too narrow for {i.form.name}")
        e.write(part, value, kind.llvm, relaxed=True, signed=kind.kind == "s")
    if is_volatile(i):
        go_on_together(e)


@lowers("store")
def store(e: FunctionEmitter, i: Instr) -> None:
    kind, space = i.form.type, space_of(i.form.get("space"))
    parts = _accessed(i.operands[1], i)
    # `_` leaves its element of memory as it is.
    whole = not i.form.get("vec")
    values = [
        "" if isinstance(part, Sink) and not whole else e.read(part, kind.llvm, relaxed=True)
        for part in parts
    ]
    refuse_own_parameter(e.frame.function, i)
    base = pointer(e, i.operands[0], space, kind.bytes * len(parts))
    before, after = _access(e, i, kind, store=True)
    for n, value in enumerate(values):
        if not value:
            continue
        place = base if n == 0 else e.op(f"getelementptr i8, ptr {base}, i64 {n * kind.bytes}")
        e.line(f"store {before}{kind.llvm} {value}, ptr {place}{after}")
    if is_volatile(i):
        go_on_together(e)


@lowers("copy_async")
def copy_async(e: FunctionEmitter, i: Instr) -> None:
    """Emits `cp.async` as an immediate copy, so the later waits have nothing to wait for."""
    size, limit = _copied(i)
    target = pointer(e, i.operands[0], "shared", size)
    origin = pointer(e, i.operands[1], "global", size)
    if limit is None:
        value = e.op(f"load i{size * 8}, ptr {origin}, align 1")
    else:
        value = _copied_part(e, limit, size, target, origin)
    e.line(f"store i{size * 8} {value}, ptr {target}, align 1")


def _copied(i: Instr) -> tuple[int, Operand | None]:
    """Returns how many bytes `cp.async` writes, and its operand that says how many it reads."""
    size, *rest = i.operands[2:]
    if not isinstance(size, Imm) or size.value not in (4, 8, 16):
        raise PtxError("cp.async copies 4, 8 or 16 bytes")
    if i.form.get("mode") == "cg" and size.value != 16:
        raise PtxError("cp.async.cg copies 16 bytes")
    if i.form.has("L2::cache_hint") and not rest:
        raise PtxError("cp.async with .L2::cache_hint needs a cache policy")
    limit = rest[: len(rest) - i.form.has("L2::cache_hint")]
    if len(limit) > 1:
        raise PtxError(f"{i.form.name} takes no cache policy")
    return size.value, limit[0] if limit else None


def _copied_part(e: FunctionEmitter, limit: Operand, size: int, target: str, origin: str) -> str:
    """Returns the value that `cp.async` writes if it reads fewer bytes, or none: the rest is zero.

    limit: the number of bytes, or a predicate that is true if none is read. The source address may
    then be outside all memory, so the target is read in its place.
    """
    bits, wide = size * 8, f"i{size * 16}"
    if isinstance(limit, Not) or (isinstance(limit, Reg) and limit.type is PRED):
        ignored = e.read(limit, "i1")
        have = e.op(f"select i1 {ignored}, i32 0, i32 {size}")
    else:
        have = e.read(limit, "i32", relaxed=True)
        have = minmax(e, "min", "i32", have, str(size), signed=False)
        ignored = e.op(f"icmp eq i32 {have}, 0")
    place = e.op(f"select i1 {ignored}, ptr {target}, ptr {origin}")
    count = e.op(f"zext i32 {e.op(f'shl i32 {have}, 3')} to {wide}")
    mask = e.op(f"sub {wide} {e.op(f'shl {wide} 1, {count}')}, 1")
    value = e.op(f"load i{bits}, ptr {place}, align 1")
    return e.op(f"and i{bits} {value}, {e.op(f'trunc {wide} {mask} to i{bits}')}")


@lowers("policy")
def policy(e: FunctionEmitter, i: Instr) -> None:
    """Emits 0: a cache policy is an opaque number that only cache hints use."""
    e.write(i.operands[0], "0", "i64")


@lowers("nothing")
def nothing(e: FunctionEmitter, i: Instr) -> None:
    """Emits no code for hints, and for waits for operations that are already complete."""


@lowers("mov")
def mov(e: FunctionEmitter, i: Instr) -> None:
    kind, (target, source) = i.form.type, i.operands
    llvm = f"i{kind.bits}" if kind.bits > 1 else "i1"
    if isinstance(source, Vec):
        e.write(target, _pack(e, source, kind.bits), llvm)
    elif isinstance(target, Vec):
        _unpack(e, target, e.read(source, llvm), kind.bits)
    else:
        if kind.kind == "f":
            llvm = kind.llvm
        e.write(target, e.read(source, llvm), llvm)


def _element_bits(vector: Vec, bits: int) -> int:
    """Returns the bits of each element of a vector that fills `bits`."""
    count = len(vector.parts)
    if count not in (2, 4) or bits < 8 * count:
        raise PtxError(f"{count} elements do not make {bits} bits: give 2 or 4 of 8 bits or more")
    return bits // count


def _pack(e: FunctionEmitter, source: Vec, bits: int) -> str:
    width, value = _element_bits(source, bits), "0"
    for n, part in enumerate(source.parts):
        if isinstance(part, Sink):
            continue
        if isinstance(part, Special) and width < 16:
            raise PtxError(f"{part.name} does not fit into {width} bits")
        wide = e.op(f"zext i{width} {e.read(part, f'i{width}')} to i{bits}")
        moved = e.op(f"shl i{bits} {wide}, {n * width}") if n else wide
        value = e.op(f"or i{bits} {value}, {moved}")
    return value


def _unpack(e: FunctionEmitter, target: Vec, value: str, bits: int) -> None:
    width = _element_bits(target, bits)
    for n, part in enumerate(target.parts):
        moved = e.op(f"lshr i{bits} {value}, {n * width}") if n else value
        e.write(part, e.op(f"trunc i{bits} {moved} to i{width}"), f"i{width}")


@lowers("mov_vector")
def mov_vector(e: FunctionEmitter, i: Instr) -> None:
    kind, (target, source) = i.form.type, i.operands
    targets, sources = _parts(target, i.form.get("vec")), _parts(source, i.form.get("vec"))
    values = [e.read(part, kind.llvm) for part in sources]
    for part, value in zip(targets, values, strict=True):
        e.write(part, value, kind.llvm)
