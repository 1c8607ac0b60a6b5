"""Matrix instructions of a warp: mma, wmma, ldmatrix, stmatrix, movmatrix.

Each thread writes its registers into its MatrixCall and suspends. When all 32 threads have come,
the scheduler computes the instruction for the warp (device/exec/matrix_ops.h), and the threads read
their results.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rgpu_emu.lower import abi
from rgpu_emu.lower.memory import address_value, pointer, space_of
from rgpu_emu.lower.registry import lowers
from rgpu_emu.lower.sync import suspend
from rgpu_emu.ptx.errors import PtxError
from rgpu_emu.ptx.operands import Imm, Vec

if TYPE_CHECKING:
    from rgpu_emu.lower.emit import FunctionEmitter
    from rgpu_emu.ptx.operands import Instr, Operand
    from rgpu_emu.ptx.table import Form

_SHAPE: Final = re.compile(r"m(\d+)n(\d+)k(\d+)")
_BITS: Final = {"f16": 16, "bf16": 16, "f64": 64, "b1": 1} | {
    name: bits for bits, names in ((8, "e4m3 e5m2 u8 s8"), (4, "u4 s4")) for name in names.split()
}
_ROUNDINGS: Final = ("rn", "rz", "rm", "rp")
_QUADS: Final = 4  # independent products of mma.m8n8k4
WARP: Final = 32


@dataclass(frozen=True)
class Shape:
    m: int
    n: int
    k: int

    @classmethod
    def of(cls, form: Form) -> Shape:
        found = _SHAPE.fullmatch(form.get("shape"))
        if found is None:
            raise AssertionError(form.name)
        return cls(*map(int, found.groups()))


def _bits(kind: str) -> int:
    return _BITS.get(kind, 32)


def _count(elements: int, kind: str) -> int:
    """Returns the registers of each thread that hold so many elements of the warp."""
    return elements * _bits(kind) // max(_bits(kind), 32) // WARP


def _multiplicand(form: Form, rows: int, depth: int, kind: str) -> int:
    if form.row.op == "wmma" and kind == "f16":
        return 8
    return _count(rows * depth, kind)


def _registers(operand: Operand, count: int) -> tuple[Operand, ...]:
    parts = operand.parts if isinstance(operand, Vec) else (operand,)
    if len(parts) != count:
        raise PtxError(f"{count} registers belong where {len(parts)} are given")
    return parts


def _place(e: FunctionEmitter, offset: int) -> str:
    call = e.shared_slot("matrix", abi.MATRIX_BYTES, 16)
    return e.op(f"getelementptr i8, ptr {call}, i64 {offset}")


def _put(e: FunctionEmitter, name: str, parts: tuple[Operand, ...], kind: str) -> None:
    width = max(_bits(kind), 32)
    for n, part in enumerate(parts):
        value = e.read(part, f"i{width}")
        e.line(f"store i{width} {value}, ptr {_place(e, abi.MATRIX[name] + n * width // 8)}")


def _get(e: FunctionEmitter, name: str, parts: tuple[Operand, ...], kind: str) -> None:
    width = max(_bits(kind), 32)
    for n, part in enumerate(parts):
        place = _place(e, abi.MATRIX[name] + n * width // 8)
        e.write(part, e.op(f"load i{width}, ptr {place}"), f"i{width}")


def _begin(
    e: FunctionEmitter,
    kind: str,
    shape: Shape,
    types: tuple[str, ...] = (),
    flags: tuple[str, ...] = (),
    *,
    selector: int = 0,
    rounding: int = 0,
) -> None:
    """Writes the first words of the MatrixCall, which say what the instruction does."""
    numbers = [abi.MATRIX_TYPE[t] for t in types] + [0] * (4 - len(types))
    bits = sum(abi.MATRIX_FLAG[flag] for flag in flags)
    head = bytes((abi.MATRIX_KIND[kind], bits, shape.m, shape.n, *shape.k.to_bytes(2, "little")))
    head += bytes((*numbers, selector, rounding))
    e.line(f"store i64 {int.from_bytes(head[:8], 'little')}, ptr {_place(e, 0)}")
    e.line(f"store i32 {int.from_bytes(head[8:], 'little')}, ptr {_place(e, 8)}")


def _wait(e: FunctionEmitter) -> None:
    call = e.shared_slot("matrix", abi.MATRIX_BYTES, 16)
    number = str(e.next_meeting())
    suspend(e, "matrix", mask="-1", a=number, value=e.op(f"ptrtoint ptr {call} to i64"))


def _selector(form: Form, shape: Shape, operand: Operand) -> int:
    """Returns the sparsity selector. It chooses threads that fit the size of the metadata."""
    chunk = {"tf32": 2, "s4": 8, "u4": 8}.get(form.get("a"), 4)  # elements for four bits
    threads = shape.k // (4 * chunk)  # of each four, that have metadata
    choices = 4 // threads
    if not isinstance(operand, Imm) or not 0 <= operand.value < choices:
        raise PtxError(f"the sparsity selector must be a number below {choices}")
    return operand.value


def _flags(form: Form, *, quads: bool) -> tuple[str, ...]:
    flags = ["satfinite"] * form.has("satfinite") + ["sparse"] * form.has("variant")
    flags += ["and"] * (form.get("bits") == "and")
    if quads:
        flags += [f"col.{name}" for name in "ab" if form.get(f"{name}l") == "col"]
    return tuple(flags)


@lowers("matrix_mma")
def matrix_mma(e: FunctionEmitter, i: Instr) -> None:
    form, shape = i.form, Shape.of(i.form)
    a, b, c, d = (form.get(name) or "f16" for name in "abcd")
    sparse, wmma = form.has("variant"), form.row.op == "wmma"
    quads = not wmma and form.get("shape") == "m8n8k4" and a == "f16"
    times = _QUADS if quads else 1
    stored = shape.k // 2 if sparse else shape.k
    first = _multiplicand(form, shape.m * times, stored, a)
    second = _multiplicand(form, shape.n * times, shape.k, b)
    results = shape.m * shape.n * times
    targets = _registers(i.operands[0], _count(results, d))
    given = tuple(
        _registers(operand, count)
        for operand, count in zip(i.operands[1:4], (first, second, _count(results, c)), strict=True)
    )
    _begin(
        e,
        "quads" if quads else "wmma" if wmma else "mma",
        shape,
        (a, b, c, d),
        _flags(form, quads=quads),
        selector=_selector(form, shape, i.operands[5]) if sparse else 0,
        rounding=_ROUNDINGS.index(form.get("rnd") or "rn"),
    )
    for name, parts, kind in zip("abc", given, (a, b, c), strict=True):
        _put(e, name, parts, kind)
    if sparse:
        _put(e, "metadata", (i.operands[4],), "b32")
    _wait(e)
    _get(e, "c", targets, d)


def _fragment(form: Form, shape: Shape) -> tuple[str, int, int, int]:
    """Returns the kind of a load or store, its registers and the size of the matrix."""
    matrix, kind = form.get("mat"), form.get("a")
    rows = {"b": shape.k}.get(matrix, shape.m)
    columns = {"a": shape.k}.get(matrix, shape.n)
    if matrix in "cd":
        return (
            ("load.c" if matrix == "c" else "store.d"),
            _count(rows * columns, kind),
            rows,
            columns,
        )
    return f"load.{matrix}", _multiplicand(form, rows, columns, kind), rows, columns


def _locate(e: FunctionEmitter, i: Instr, address: Operand) -> None:
    """Writes the address of a matrix in memory and its stride."""
    form, shape = i.form, Shape.of(i.form)
    kind, _, rows, columns = _fragment(form, shape)
    column, shared = form.get("layout") == "col", space_of(form.get("space")) == "shared"
    flags = ["col.a"] * column + ["shared"] * shared
    stride = str(rows if column else columns)
    if len(i.operands) > 2:
        stride = e.read(i.operands[2], "i32")
    _begin(e, kind, shape, (form.get("a"),), tuple(flags))
    e.line(f"store i32 {stride}, ptr {_place(e, abi.MATRIX['stride'])}")
    value = address_value(e, address)
    e.line(f"store i64 {value}, ptr {_place(e, abi.MATRIX['address'])}")


@lowers("matrix_load")
def matrix_load(e: FunctionEmitter, i: Instr) -> None:
    kind, count, _, _ = _fragment(i.form, Shape.of(i.form))
    targets = _registers(i.operands[0], count)
    _locate(e, i, i.operands[1])
    _wait(e)
    _get(e, "c" if kind == "load.c" else "a", targets, i.form.get("a"))


@lowers("matrix_store")
def matrix_store(e: FunctionEmitter, i: Instr) -> None:
    _, count, _, _ = _fragment(i.form, Shape.of(i.form))
    parts = _registers(i.operands[1], count)
    _locate(e, i, i.operands[0])
    _put(e, "c", parts, i.form.get("a"))
    _wait(e)


@lowers("matrix_rows")
def matrix_rows(e: FunctionEmitter, i: Instr) -> None:
    """Emits ldmatrix and stmatrix. A thread whose address is not used may have any address."""
    form, count = i.form, int(i.form.get("num")[1:])
    store = form.row.op == "stmatrix"
    address, vector = i.operands if store else reversed(i.operands)
    parts = _registers(vector, count)
    row = pointer(e, address, space_of(form.get("space")), 16)
    flags = ("trans",) if form.has("trans") else ()
    _begin(e, form.row.op, Shape(8, 8, count), (), flags)
    e.line(f"store ptr {row}, ptr {_place(e, abi.MATRIX['address'])}")
    if store:
        _put(e, "a", parts, "b32")
    _wait(e)
    if not store:
        _get(e, "a", parts, "b32")


@lowers("matrix_transpose")
def matrix_transpose(e: FunctionEmitter, i: Instr) -> None:
    _begin(e, "movmatrix", Shape(8, 8, 1))
    _put(e, "a", (i.operands[1],), "b32")
    _wait(e)
    _get(e, "a", (i.operands[0],), "b32")
