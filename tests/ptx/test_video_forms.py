"""Scalar and SIMD video instructions against Python's integers, after the manual's pseudo code."""

from __future__ import annotations

import itertools

import pytest
from ptx.forms import Case, Reference, check, signed
from ptx.program import source

from rgpu_emu.lower.entry import lower_entry
from rgpu_emu.ptx.errors import PtxError
from rgpu_emu.ptx.link import link

TYPES = ("u32", "s32")
SELECTORS = ("", ".b0", ".b1", ".b2", ".b3", ".h0", ".h1")
COMPARE = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
BINARY = {
    "vadd": lambda a, b: a + b,
    "vsub": lambda a, b: a - b,
    "vabsdiff": lambda a, b: abs(a - b),
    "vmin": min,
    "vmax": max,
}
SECOND = {"add": lambda t, c: t + c, "min": min, "max": max}


def placed(selector: str) -> tuple[int, int]:
    """The bits and the position of a selected part."""
    bits = {"b": 8, "h": 16}.get(selector[1:2], 32)
    return bits, bits * int(selector[2:] or 0)


def part(raw: int, selector: str, kind: str) -> int:
    bits, at = placed(selector)
    value = raw >> at & (1 << bits) - 1
    return signed(value, bits) if kind == "s32" else value


def clamp(value: int, bits: int, kind: str) -> int:
    if kind == "s32":
        return min(max(value, -(1 << bits - 1)), (1 << bits - 1) - 1)
    return min(max(value, 0), (1 << bits) - 1)


def merge(value: int, selector: str, c: int) -> int:
    bits, at = placed(selector)
    mask = (1 << bits) - 1
    return (value & mask) << at | c & ~(mask << at)


def finished(value: int, kind: str, sat: bool, second: str, selector: str, c: int) -> int:
    if sat:
        value = clamp(value, placed(selector)[0], kind)
    if second:
        third = signed(c, 32) if kind == "s32" else c
        cut = value if second == "add" else signed(value & (1 << 33) - 1, 33)
        value = SECOND[second](cut, third)
    return merge(value, selector, c) if selector else value


def scalar(name: str, kinds: tuple[str, str, str], compute: Reference, n: int) -> list[Case]:
    """Forms of one operation: plain, with a second operation, and merged; n varies the selectors."""
    d, a, b = kinds
    asel, bsel = SELECTORS[n % 7], SELECTORS[(n * 3 + 1) % 7]
    if name.startswith("vsh"):
        bsel = ("", ".b0", ".h0")[n % 3]
    sat = ".sat" in name
    cases = []
    ways = [("", ""), *((f".{op}", "") for op in SECOND), *(("", s) for s in SELECTORS[1:])]
    for tail, dsel in ways:
        text = f"{name}{tail} {{d}}{dsel}, {{0}}{asel}, {{1}}{bsel}" + (
            ", {2}" if tail or dsel else ""
        )
        sources = ("u32",) * (3 if tail or dsel else 2)
        cases.append(
            Case(
                text,
                "u32",
                sources,
                lambda x, y, c=0, t=tail[1:], s=dsel: finished(
                    compute(part(x, asel, a), part(y, bsel, b)), d, sat, t, s, c
                ),
            )
        )
    return cases


def arithmetic() -> list[Case]:
    cases = []
    for n, (op, d, a, b) in enumerate(itertools.product(BINARY, TYPES, TYPES, TYPES)):
        cases += scalar(f"{op}.{d}.{a}.{b}" + (".sat" if n % 3 else ""), (d, a, b), BINARY[op], n)
    return cases


def shifts() -> list[Case]:
    cases = []
    for n, (op, d, a, sat, mode) in enumerate(
        itertools.product(("vshl", "vshr"), TYPES, TYPES, ("", ".sat"), ("clamp", "wrap"))
    ):

        def shift(value: int, count: int, op: str = op, mode: str = mode) -> int:
            count = min(count, 32) if mode == "clamp" else count & 31
            return value << count if op == "vshl" else value >> count

        cases += scalar(f"{op}.{d}.{a}.u32{sat}.{mode}", (d, a, "u32"), shift, n)
    return cases


def comparisons() -> list[Case]:
    cases = []
    for n, (a, b, cmp) in enumerate(itertools.product(TYPES, TYPES, COMPARE)):
        test = COMPARE[cmp]
        cases += scalar(f"vset.{a}.{b}.{cmp}", ("u32", a, b), lambda x, y, t=test: int(t(x, y)), n)
    return cases


def multiply_add(
    kinds: tuple[str, str],
    minus: tuple[str, ...],
    asel: str,
    bsel: str,
    po: str,
    sat: str,
    scale: str,
) -> Case:
    """vmad with the given signs before its sources."""
    a, b = kinds
    final = kinds != ("u32", "u32") or minus not in (("", "", ""), ("-", "-", ""))
    kind = "s32" if final else "u32"

    def reference(x: int, y: int, c: int) -> int:
        product = part(x, asel, a) * part(y, bsel, b)
        third = signed(c, 32) if final else c
        total = (-product if minus[0] != minus[1] else product) + (-third if minus[2] else third)
        total = total + bool(po) >> int(scale[4:] or 0)
        return clamp(total, 32, kind) if sat else total

    sources = f"{minus[0]}{{0}}{asel}, {minus[1]}{{1}}{bsel}, {minus[2]}{{2}}"
    return Case(
        f"vmad.{kind}.{a}.{b}{po}{sat}{scale} {{d}}, {sources}", "u32", ("u32",) * 3, reference
    )


def products() -> list[Case]:
    cases = []
    signs = (("", "", ""), ("-", "", ""), ("", "-", ""), ("-", "-", ""), ("", "", "-"))
    ways = itertools.product(TYPES, TYPES, ("", ".po"), ("", ".sat"), ("", ".shr7", ".shr15"))
    for n, (a, b, po, sat, scale) in enumerate(ways):
        for minus in signs if not po else signs[:1]:
            if minus[2] and (a, b) == ("u32", "u32") and (sat or scale):
                continue
            asel, bsel = SELECTORS[n % 7], SELECTORS[(n * 5 + 2) % 7]
            cases.append(multiply_add((a, b), minus, asel, bsel, po, sat, scale))
    return cases


def average(a: int, b: int) -> int:
    return a + b + 1 >> 1 if a + b >= 0 else a + b >> 1


PARALLEL = {**BINARY, "vavrg": average}


def elements(low: int, high: int, order: str, width: int, kind: str) -> list[int]:
    bits, both = 32 // width, low | high << 32
    values = [both >> int(n) * bits & (1 << bits) - 1 for n in reversed(order)]
    return [signed(v, bits) if kind == "s32" else v for v in values]


def parallel(
    name: str, width: int, kinds: tuple[str, str, str], compute: Reference, n: int
) -> Case:
    letter, bits = {2: "h", 4: "b"}[width], 32 // width
    masks = ["", *("".join(str(k) for k in range(width - 1, -1, -1) if m >> k & 1) for m in range(1, 1 << width))]  # fmt: skip
    mask = masks[n % len(masks)]
    orders = [["10", "32"], ["3210", "7654"]][width // 4]
    if n % 4:
        orders = ["".join(str((n * 7 + 3 * k + j) % (2 * width)) for j in range(width)) for k in (0, 1)]  # fmt: skip
    written = {int(k) for k in mask} or set(range(width))
    d, a, b = kinds

    def reference(x: int, y: int, c: int) -> int:
        pairs = zip(elements(x, y, orders[0], width, a), elements(x, y, orders[1], width, b), strict=True)  # fmt: skip
        values = [compute(*pair) for pair in pairs]
        if ".sat" in name:
            values = [clamp(v, bits, d) for v in values]
        if name.endswith(".add"):
            return c + sum(v for k, v in enumerate(values) if k in written)
        for k, v in enumerate(values):
            if k in written:
                c = merge(v, f".{letter}{k}", c)
        return c

    first, second = (f".{letter}{o}" if n % 4 else "" for o in orders)
    target = f".{letter}{mask}" if mask else ""
    return Case(
        f"{name} {{d}}{target}, {{0}}{first}, {{1}}{second}, {{2}}", "u32", ("u32",) * 3, reference
    )


def simd() -> list[Case]:
    cases = []
    kinds = list(itertools.product(TYPES, TYPES, TYPES))
    ways = itertools.product((2, 4), PARALLEL, ("", ".sat", ".add"), range(3))
    for n, (width, op, tail, k) in enumerate(ways):
        d, a, b = kinds[(3 * k + n // 3) % len(kinds)]
        name = f"{op}{width}.{d}.{a}.{b}{tail}"
        cases.append(parallel(name, width, (d, a, b), PARALLEL[op], n))
    for n, (width, cmp, tail) in enumerate(itertools.product((2, 4), COMPARE, ("", ".add"))):
        _, a, b = kinds[n % len(kinds)]
        test = COMPARE[cmp]
        cases.append(
            parallel(f"vset{width}.{a}.{b}.{cmp}{tail}", width, ("u32", a, b),
                     lambda x, y, t=test: int(t(x, y)), n)
        )  # fmt: skip
    return cases


CASES = [*arithmetic(), *shifts(), *comparisons(), *products(), *simd()]


@pytest.mark.full
def test_arithmetic() -> None:
    check(arithmetic(), 71)


@pytest.mark.full
def test_shifts() -> None:
    check(shifts(), 72)


def test_comparisons() -> None:
    check(comparisons(), 73)


def test_products() -> None:
    check(products(), 74)


def test_simd() -> None:
    check(simd(), 75)


def test_literals_are_sources() -> None:
    check(
        [
            Case("vadd4.u32.u32.u32 {d}, {0}, 0x01020304, 0", "u32", ("u32",),
                 lambda a: sum(((a >> s) + (0x01020304 >> s) & 255) << s for s in (0, 8, 16, 24))),
            Case("vsub.s32.s32.s32 {d}, {0}.h1, -5", "u32", ("u32",),
                 lambda a: signed(a >> 16, 16) + 5),
            Case("vmad.s32.s32.s32 {d}, {0}, -3, -7", "u32", ("u32",),
                 lambda a: signed(a, 32) * -3 - 7),
        ],
        76,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("vadd.u32.u32.u32 %r1, %r2.b4, %r3;", "names no byte or half-word"),
        ("vadd.u32.u32.u32 %r1, %r2.h10, %r3;", "names no byte or half-word"),
        ("vadd.u32.u32.u32 %r1, %r2, %r3, %r4;", "third source is for a second operation"),
        ("vadd.u32.u32.u32 %r1.h0, %r2, %r3;", "third source is for a second operation"),
        ("vadd.u32.u32.u32.add %r1, %r2, %r3;", "third source is for a second operation"),
        ("vadd.u32.u32.u32.add %r1.b0, %r2, %r3, %r4;", "writes the whole destination"),
        ("vadd.u32.u32.u32.add %r1, %r2, %r3, %r4.b0;", "third source is a whole register"),
        ("vadd.u32.u32.u32 %r1, -%r2, %r3;", "only vmad negates"),
        ("vadd.u32.u32.u32 %rd1, %r2, %r3;", "does not fit"),
        ("vadd.u32.u32.u32 [%rd1], %r2, %r3;", "registers and literals"),
        ("vadd.u32.u32.u32 7, %r2, %r3;", "destination is not a register"),
        ("vmad.s32.s32.s32 %r1, -%r2, %r3, -%r4;", "not both"),
        ("vmad.s32.s32.s32.po %r1, %r2, -%r3, %r4;", "does not negate"),
        ("vmad.s32.s32.s32 %r1.h0, %r2, %r3, %r4;", "whole destination"),
        ("vmad.s32.u32.u32.sat %r1, %r2, %r3, -%r4;", "no clear meaning"),
        ("vadd2.u32.u32.u32 %r1.h01, %r2, %r3, %r4;", "not a mask"),
        ("vadd2.u32.u32.u32 %r1, %r2.h4, %r3, %r4;", "does not select 2 elements"),
        ("vadd2.u32.u32.u32 %r1, %r2.h40, %r3, %r4;", "does not select 2 elements"),
        ("vadd4.u32.u32.u32 %r1.b00, %r2, %r3, %r4;", "not a mask"),
        ("vadd4.u32.u32.u32 %r1, %r2.b8210, %r3, %r4;", "does not select 4 elements"),
        ("vadd4.u32.u32.u32 %r1, %r2.h10, %r3, %r4;", "does not select 4 elements"),
        ("vadd4.u32.u32.u32 %r1, %r2, %r3;", "takes 4 operands"),
    ],
)
def test_wrong_operands_are_refused(line: str, words: str) -> None:
    with pytest.raises(PtxError, match=words) as caught:
        lower_entry(link([source(line)]), "k")
    assert caught.value.result == (801 if "clear" in words else 218)


@pytest.mark.parametrize(
    "name",
    [
        "vadd2.u32.u32.u32.sat.add",
        "vadd4.u32.u32.u32.min",
        "vavrg.u32.u32.u32",
        "vshl.u32.u32.s32.clamp",
        "vshl.u32.u32.u32",
        "vset.u32.u32.equ",
        "vmad.u32.u32.u32.add",
        "vadd.u64.u32.u32",
        "vmad2.u32.u32.u32",
    ],
)
def test_what_is_not_a_video_instruction_is_refused_by_name(name: str) -> None:
    with pytest.raises(PtxError) as caught:
        link([source(f"{name} %r1, %r2, %r3, %r4;")])
    assert caught.value.result == 218
    assert f"'{name}'" in str(caught.value)
