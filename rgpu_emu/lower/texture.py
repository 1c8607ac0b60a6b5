"""Texture and surface instructions: each thread fills in a TextureCall and calls the sampler
(device/exec/texture_ops.h). They do not suspend.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rgpu_emu.lower import abi
from rgpu_emu.lower.memory import address_value
from rgpu_emu.lower.registry import lowers
from rgpu_emu.ptx.errors import PtxError
from rgpu_emu.ptx.operands import Addr, Operand, Pair, Texel, Vec

if TYPE_CHECKING:
    from rgpu_emu.lower.emit import FunctionEmitter
    from rgpu_emu.ptx.operands import Instr
    from rgpu_emu.ptx.table import Form

# How many coordinates follow the layer.
_AXES: Final = {"1d": 1, "2d": 2, "3d": 3, "a1d": 1, "a2d": 2, "cube": 3, "acube": 3}
_ARRAYS: Final = frozenset(("a1d", "a2d", "acube"))
_CUBES: Final = frozenset(("cube", "acube"))
_COMPONENTS: Final = "rgba"


def _place(e: FunctionEmitter, name: str, offset: int = 0) -> str:
    call = e.shared_slot("texture", abi.TEXTURE_BYTES, 16)
    return e.op(f"getelementptr i8, ptr {call}, i64 {abi.TEXTURE[name] + offset}")


def _put(e: FunctionEmitter, name: str, values: list[str], width: int = 32) -> None:
    for n, value in enumerate(values):
        e.line(f"store i{width} {value}, ptr {_place(e, name, n * width // 8)}")


def _head(e: FunctionEmitter, op: str, *, geometry: str = "1d", **fields: int) -> None:
    """Writes the eight bytes of a TextureCall that say what the instruction does."""
    order = ("integers", "detail", "elements", "outside", "reduction")
    head = bytes((abi.TEXTURE_OP[op], abi.TEXTURE_GEOMETRY[geometry]))
    head += bytes(fields.get(name, 0) for name in order)
    e.line(f"store i64 {int.from_bytes(head, 'little')}, ptr {_place(e, 'op')}")


def _run(e: FunctionEmitter) -> None:
    call = e.shared_slot("texture", abi.TEXTURE_BYTES, 16)
    e.line(f"call void {e.env('runtime.texture')}(ptr %bi, ptr {call})")


def _parts(operand: Operand) -> tuple[Operand, ...]:
    return operand.parts if isinstance(operand, Vec) else (operand,)


def _vector(e: FunctionEmitter, operand: Operand, axes: int, what: str) -> list[str]:
    """Returns `axes` words. The fourth element of a vector of four pads it."""
    parts = _parts(operand)
    if len(parts) != axes and (axes, len(parts)) != (3, 4):
        raise PtxError(f"{what} has {axes} elements, not {len(parts)}")
    return [e.read(part, "i32") for part in parts[:axes]]


def _locate(e: FunctionEmitter, geometry: str, texel: Operand) -> None:
    """Writes the object, the layer and the coordinates."""
    if not isinstance(texel, Texel):
        raise PtxError("this operand has no coordinates")
    _put(e, "object", [e.read(texel.object, "i64", relaxed=True)], 64)
    array = geometry in _ARRAYS
    count = _AXES[geometry] + array
    parts = _parts(texel.coordinates)
    if len(parts) != count and (count, len(parts)) != (3, 4):
        raise PtxError(f"a .{geometry} geometry has {count} coordinates, not {len(parts)}")
    values = [e.read(part, "i32") for part in parts[:count]]
    if array:
        _put(e, "layer", values[:1])
    _put(e, "at", values[array:])


def _offset(e: FunctionEmitter, geometry: str, given: list[Operand]) -> None:
    axes = _AXES[geometry]
    if given and geometry in _CUBES:
        raise PtxError("a cubemap takes no offset")
    _put(e, "offset", _vector(e, given[0], axes, "the offset") if given else ["0"] * 3)


@lowers("texture")
def texture(e: FunctionEmitter, i: Instr) -> None:
    form, (target, texel, *rest) = i.form, i.operands
    geometry, mip = form.get("geom"), form.get("mip")
    _locate(e, geometry, texel)
    if mip == "level":
        _put(e, "lod", [e.read(rest.pop(0), "i32")])
    if mip == "grad":
        for name in ("dx", "dy"):
            _put(e, name, _vector(e, rest.pop(0), _AXES[geometry], "the gradient"))
    _offset(e, geometry, rest)
    component = form.get("comp")
    _head(
        e,
        "gather" if component else {"level": "level", "grad": "gradient"}.get(mip, "read"),
        geometry=geometry,
        integers=int(form.get("c") == "s32"),
        detail=_COMPONENTS.index(component) if component else 0,
    )
    _run(e)
    _results(e, form, target)


def _results(e: FunctionEmitter, form: Form, target: Operand) -> None:
    """Writes the destination vector. All memory is resident, so the predicate is true."""
    if isinstance(target, Pair):
        e.write(target.second, "true", "i1")
        target = target.first
    parts = _parts(target)
    if len(parts) != int(form.get("vec")[1:]):
        raise PtxError(f"{form.name} has {form.get('vec')[1:]} results, not {len(parts)}")
    words = [e.op(f"load i32, ptr {_place(e, 'data', 4 * n)}") for n in range(4)]
    kind = form.get("d")
    if kind not in ("f16", "f16x2"):
        for part, word in zip(parts, words, strict=True):
            e.write(part, word, "i32")
        return
    halves = [_half(e, word) for word in words]
    if kind == "f16":
        for part, half in zip(parts, halves, strict=True):
            e.write(part, half, "i16")
        return
    for n, part in enumerate(parts):
        low, high = (e.op(f"zext i16 {halves[2 * n + k]} to i32") for k in range(2))
        e.write(part, e.op(f"or i32 {low}, {e.op(f'shl i32 {high}, 16')}"), "i32")


def _half(e: FunctionEmitter, word: str) -> str:
    number = e.op(f"fptrunc float {e.op(f'bitcast i32 {word} to float')} to half")
    return e.op(f"bitcast half {number} to i16")


def _whole(e: FunctionEmitter, address: Operand) -> str:
    if isinstance(address, Addr) and address.offset:
        raise PtxError("an object is one value, without an offset")
    return address_value(e, address)


@lowers("texture_query")
def texture_query(e: FunctionEmitter, i: Instr) -> None:
    _put(e, "object", [_whole(e, i.operands[1])], 64)
    _put(e, "lod", [e.read(i.operands[2], "i32") if i.form.has("level") else "0"])
    op = "query" if i.form.row.op == "txq" else "surface.query"
    _head(e, op, detail=abi.TEXTURE_ATTRIBUTE[i.form.get("query")])
    _run(e)
    e.write(i.operands[0], e.op(f"load i32, ptr {_place(e, 'data')}"), "i32")


@lowers("texture_type")
def texture_type(e: FunctionEmitter, i: Instr) -> None:
    """Emits istypep. No call of the driver API makes a sampler, so nothing is one."""
    kind, value = i.form.get("kind"), e.read(i.operands[1], "i64")
    if kind == "samplerref":
        e.write(i.operands[0], "false", "i1")
        return
    _put(e, "object", [value], 64)
    _head(e, "is.texture" if kind == "texref" else "is.surface")
    _run(e)
    found = e.op(f"load i32, ptr {_place(e, 'data')}")
    e.write(i.operands[0], e.op(f"icmp ne i32 {found}, 0"), "i1")


def _elements(form: Form, operand: Operand) -> tuple[Operand, ...]:
    parts, count = _parts(operand), int(form.get("vec")[1:] or "1")
    if len(parts) != count:
        raise PtxError(f"{form.name} moves {count} elements, not {len(parts)}")
    return parts


def _surface(e: FunctionEmitter, i: Instr, op: str, *, elements: int, reduction: int = 0) -> None:
    form = i.form
    _head(
        e,
        op,
        geometry=form.get("geom"),
        detail=form.type.bytes,
        elements=elements,
        outside=abi.SURFACE_OUTSIDE[form.get("mode") or "trap"],
        reduction=reduction,
    )
    _run(e)


@lowers("surface_load")
def surface_load(e: FunctionEmitter, i: Instr) -> None:
    kind, parts = i.form.type, _elements(i.form, i.operands[0])
    _locate(e, i.form.get("geom"), i.operands[1])
    _surface(e, i, "load", elements=len(parts))
    for n, part in enumerate(parts):
        value = e.op(f"load {kind.llvm}, ptr {_place(e, 'data', n * kind.bytes)}")
        e.write(part, value, kind.llvm, relaxed=True)


@lowers("surface_store")
def surface_store(e: FunctionEmitter, i: Instr) -> None:
    form, kind = i.form, i.form.type
    parts = _elements(form, i.operands[1])
    _locate(e, form.get("geom"), i.operands[0])
    values = [e.read(part, kind.llvm, relaxed=True) for part in parts]
    if form.has("p"):
        values += ["0"] * (4 - len(values))
    _put(e, "data", values, kind.bits)
    _surface(e, i, "store.texel" if form.has("p") else "store", elements=len(parts))


@lowers("surface_reduce")
def surface_reduce(e: FunctionEmitter, i: Instr) -> None:
    form, kind = i.form, i.form.type
    op = form.get("op")
    if op in ("min", "max"):
        op += ".s" if kind.kind == "s" else ".u"
    _locate(e, form.get("geom"), i.operands[0])
    _put(e, "data", [e.read(i.operands[1], kind.llvm)], kind.bits)
    name = "reduce.texel" if form.has("p") else "reduce"
    _surface(e, i, name, elements=1, reduction=abi.SURFACE_REDUCTION[op])
