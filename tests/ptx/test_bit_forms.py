"""Logic, shift, bit-field and permute instructions against Python's integers."""

from __future__ import annotations

from ptx.forms import INT, Case, bits, check, signed, value


def logic() -> list[Case]:
    cases = []
    for t in ("pred", "b16", "b32", "b64"):
        n = 1 if t == "pred" else bits(t)
        for op, compute in (
            ("and", lambda a, b: a & b),
            ("or", lambda a, b: a | b),
            ("xor", lambda a, b: a ^ b),
        ):
            cases.append(Case(f"{op}.{t} {{d}}, {{0}}, {{1}}", t, (t, t), compute))
            if n == 1:
                for flip, text in ((1, "!{0}, {1}"), (2, "{0}, !{1}"), (3, "!{0}, !{1}")):
                    cases.append(
                        Case(
                            f"{op}.pred {{d}}, {text}",
                            t,
                            (t, t),
                            lambda a, b, c=compute, f=flip: c(a ^ f & 1, b ^ f >> 1),
                        )
                    )
        cases.append(Case(f"not.{t} {{d}}, {{0}}", t, (t,), lambda a, n=n: a ^ (1 << n) - 1))
        if n == 1:
            cases.append(Case("not.pred {d}, !{0}", t, (t,), lambda a: a))
        if n > 1:
            cases.append(Case(f"cnot.{t} {{d}}, {{0}}", t, (t,), lambda a: int(a == 0)))
            cases.append(
                Case(
                    f"shl.{t} {{d}}, {{0}}, {{1}}",
                    t,
                    (t, "b32"),
                    lambda a, b, n=n: a << b if b < n else 0,
                )
            )
    for t in (*INT, "b16", "b32", "b64"):
        kind = t if t[0] == "s" else f"u{t[1:]}"
        cases.append(
            Case(
                f"shr.{t} {{d}}, {{0}}, {{1}}",
                t,
                (t, "b32"),
                lambda a, b, k=kind: value(a, k) >> min(b, 64),
            )
        )
        cases.append(Case(f"shr.{t} {{d}}, {{0}}, 5", t, (t,), lambda a, k=kind: value(a, k) >> 5))
        cases.append(
            Case(f"shr.{t} {{d}}, {{0}}, 77", t, (t,), lambda a, k=kind: value(a, k) >> 77)
        )
    for table in (0x00, 0xFF, 0x96, 0xE8, 0x1B, 0xCA, 0x80):

        def lop3(a: int, b: int, c: int, table: int = table) -> int:
            return sum(
                (table >> ((a >> k & 1) << 2 | (b >> k & 1) << 1 | c >> k & 1) & 1) << k
                for k in range(32)
            )

        cases.append(
            Case(f"lop3.b32 {{d}}, {{0}}, {{1}}, {{2}}, {table}", "b32", ("b32",) * 3, lop3)
        )
        cases.append(
            Case(
                f"lop3.or.b32 {{d}}|{{p}}, {{0}}, {{1}}, {{2}}, {table}, {{3}}",
                "b32",
                ("b32",) * 3 + ("pred",),
                lambda a, b, c, q, f=lop3: (f(a, b, c), int(f(a, b, c) != 0) | q),
            )
        )
    return cases


def find(a: int, kind: str, shift: bool) -> int:
    v = value(a, kind)
    v = ~v if v < 0 else v
    if v == 0:
        return -1
    top = v.bit_length() - 1
    return bits(kind) - 1 - top if shift else top


def extract(a: int, b: int, c: int, kind: str) -> int:
    n, pos, length = bits(kind), b & 0xFF, c & 0xFF
    top = min(pos + length - 1, n - 1)
    sign = 0 if kind[0] == "u" or length == 0 else a >> top & 1
    return sum((a >> pos + k & 1 if k < length and pos + k < n else sign) << k for k in range(n))


def insert(a: int, b: int, c: int, d: int, n: int) -> int:
    pos, length, out = c & 0xFF, d & 0xFF, b
    for k in range(length):
        if pos + k < n and k < n:
            out = out & ~(1 << pos + k) | (a >> k & 1) << pos + k
    return out


def nth_set(mask: int, base: int, offset: int) -> int | None:
    offset = signed(offset, 32)
    if base > 31:
        return None
    if offset == 0:
        return base if mask >> base & 1 else -1
    count, step, pos = abs(offset) - 1, 1 if offset > 0 else -1, base
    while 0 <= pos < 32:
        if mask >> pos & 1:
            if count == 0:
                return pos
            count -= 1
        pos += step
    return -1


def mask_of(width: int) -> int:
    return (1 << min(width, 32)) - 1


def sign_extend(a: int, width: int, kind: str) -> int:
    width = min(width, 32)
    low = a & mask_of(width)
    return signed(low, width) if kind[0] == "s" and width else low


def fields() -> list[Case]:
    cases = []
    for t in ("b32", "b64"):
        n = bits(t)
        cases += [
            Case(
                f"popc.{t} {{d}}, {{0}}",
                "b32",
                (t,),
                lambda a: f"{a:b}".count("1"),
            ),
            Case(f"clz.{t} {{d}}, {{0}}", "b32", (t,), lambda a, n=n: n - a.bit_length()),
            Case(f"brev.{t} {{d}}, {{0}}", t, (t,), lambda a, n=n: int(f"{a:0{n}b}"[::-1], 2)),
            Case(
                f"bfi.{t} {{d}}, {{0}}, {{1}}, {{2}}, {{3}}",
                t,
                (t, t, "b32", "b32"),
                lambda a, b, c, d, n=n: insert(a, b, c, d, n),
            ),
        ]
    for t in ("s32", "u32", "s64", "u64"):
        cases += [
            Case(f"bfind.{t} {{d}}, {{0}}", "b32", (t,), lambda a, t=t: find(a, t, False)),
            Case(f"bfind.shiftamt.{t} {{d}}, {{0}}", "b32", (t,), lambda a, t=t: find(a, t, True)),
            Case(
                f"bfe.{t} {{d}}, {{0}}, {{1}}, {{2}}",
                t,
                (t, "b32", "b32"),
                lambda a, b, c, t=t: extract(a, b, c, t),
            ),
        ]
    cases.append(Case("fns.b32 {d}, {0}, {1}, {2}", "b32", ("b32",) * 3, nth_set))
    for t in ("s32", "u32"):
        cases += [
            Case(
                f"szext.clamp.{t} {{d}}, {{0}}, {{1}}",
                t,
                (t, "u32"),
                lambda a, b, t=t: sign_extend(a, b, t),
            ),
            Case(
                f"szext.wrap.{t} {{d}}, {{0}}, {{1}}",
                t,
                (t, "u32"),
                lambda a, b, t=t: sign_extend(a, b & 31, t),
            ),
        ]
    cases += [
        Case(
            "bmsk.clamp.b32 {d}, {0}, {1}",
            "b32",
            ("b32", "b32"),
            lambda a, b: mask_of(b) << a if a < 32 else 0,
        ),
        Case(
            "bmsk.wrap.b32 {d}, {0}, {1}",
            "b32",
            ("b32", "b32"),
            lambda a, b: mask_of(b & 31) << (a & 31),
        ),
    ]
    for mode in ("clamp", "wrap"):

        def left(a: int, b: int, c: int, mode: str = mode) -> int:
            n = c & 31 if mode == "wrap" else min(c, 32)
            return ((b << 32 | a) << n) >> 32

        def right(a: int, b: int, c: int, mode: str = mode) -> int:
            return (b << 32 | a) >> (c & 31 if mode == "wrap" else min(c, 32))

        cases += [
            Case(f"shf.l.{mode}.b32 {{d}}, {{0}}, {{1}}, {{2}}", "b32", ("b32",) * 3, left),
            Case(f"shf.r.{mode}.b32 {{d}}, {{0}}, {{1}}, {{2}}", "b32", ("b32",) * 3, right),
        ]
    return cases


def permute(a: int, b: int, c: int) -> int:
    v, out = b << 32 | a, 0
    for k in range(4):
        selector = c >> 4 * k & 15
        byte = v >> 8 * (selector & 7) & 255
        out |= (255 * (byte >> 7) if selector & 8 else byte) << 8 * k
    return out


# For each mode the source byte of bytes 3, 2, 1, 0 by the two low bits of the control, from the manual's table.
PRMT = {
    "f4e": ("3210", "4321", "5432", "6543"),
    "b4e": ("5670", "6701", "7012", "0123"),
    "rc8": ("0000", "1111", "2222", "3333"),
    "ecl": ("3210", "3211", "3222", "3333"),
    "ecr": ("0000", "1110", "2210", "3210"),
    "rc16": ("1010", "3232", "1010", "3232"),
}


def permutes() -> list[Case]:
    cases = [
        Case("prmt.b32 {d}, {0}, {1}, {2}", "b32", ("b32",) * 3, permute),
        Case(
            "prmt.b32 {d}, {0}, {1}, 0x7531",
            "b32",
            ("b32",) * 2,
            lambda a, b: permute(a, b, 0x7531),
        ),
    ]
    for mode, table in PRMT.items():
        cases.append(
            Case(
                f"prmt.b32.{mode} {{d}}, {{0}}, {{1}}, {{2}}",
                "b32",
                ("b32",) * 3,
                lambda a, b, c, t=table: permute(a, b, int(t[c & 3], 16)),
            )
        )
    return cases


CASES = [*logic(), *fields(), *permutes()]


def test_logic_and_shifts() -> None:
    check(logic(), 3)


def test_bit_fields() -> None:
    check(fields(), 4)


def test_permutes() -> None:
    check(permutes(), 5)
