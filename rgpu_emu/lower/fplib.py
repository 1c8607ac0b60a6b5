"""Helper functions as IR text. A module contains only those that it calls.

Directed rounding in f32 is computed in f64 with the exact error of the operation. So the rounding
mode need not change, and LLVM can vectorise the code. In f64 the processor's rounding mode is
changed around the one operation.
"""

from __future__ import annotations

from typing import Final

from rgpu_emu.lower import barriertext, fptext
from rgpu_emu.lower.approx import APPROXIMATIONS
from rgpu_emu.ptx.errors import PtxError

_FLAGS: Final = "alwaysinline nounwind"
ROUNDING: Final = {"rz": 0, "rn": 1, "rp": 2, "rm": 3}
_PERMUTES: Final = {
    "f4e": (0x3210, 0x4321, 0x5432, 0x6543),
    "b4e": (0x5670, 0x6701, 0x7012, 0x0123),
    "rc8": (0x0000, 0x1111, 0x2222, 0x3333),
    "ecl": (0x3210, 0x3211, 0x3222, 0x3333),
    "ecr": (0x0000, 0x1110, 0x2210, 0x3210),
    "rc16": (0x1010, 0x3232, 0x1010, 0x3232),
}


def helper(name: str) -> str:
    """Returns the definition of a helper. Its name says what it does (`rgpu.fma.rm.f32`)."""
    text = fptext.PLAIN.get(name) or APPROXIMATIONS.get(name) or barriertext.HELPERS.get(name)
    if text is not None:
        return text
    parts = name.split(".")[1:]
    if parts[0] == "prmt":
        return _prmt(parts[1] if len(parts) > 1 else "")
    if parts[0] in ("min", "max"):
        return _minmax(name, parts)
    if parts[0] == "narrow":
        return _narrow(name, parts[1])
    if parts[0] in ("add", "sub", "mul", "div", "fma", "sqrt") and len(parts) == 3:
        return (
            _directed_f32(name, *parts[:2])
            if parts[2] == "f32"
            else _directed_f64(name, *parts[:2])
        )
    raise PtxError(f"no helper {name}")


def declaration(name: str) -> str:
    """Returns the declaration of an intrinsic that helpers use."""
    return fptext.DECLARATIONS[name]


def _define(result: str, name: str, parameters: str, lines: list[str]) -> str:
    return (
        f"define internal {result} @{name}({parameters}) {_FLAGS} {{\n" + "\n".join(lines) + "\n}"
    )


def _prmt(mode: str) -> str:
    if mode:
        table = sum(selector << 16 * n for n, selector in enumerate(_PERMUTES[mode]))
        return _define(
            "i32",
            f"rgpu.prmt.{mode}",
            "i32 %a, i32 %b, i32 %c",
            [
                "%m = and i32 %c, 3",
                "%s = shl i32 %m, 4",
                "%w = zext i32 %s to i64",
                f"%t = lshr i64 {table if table < 1 << 63 else table - (1 << 64)}, %w",
                "%n = trunc i64 %t to i32",
                "%k = and i32 %n, 65535",
                "%r = call i32 @rgpu.prmt(i32 %a, i32 %b, i32 %k)",
                "ret i32 %r",
            ],
        )
    lines = [
        "%lo = zext i32 %a to i64",
        "%hw = zext i32 %b to i64",
        "%hi = shl i64 %hw, 32",
        "%v = or i64 %lo, %hi",
        "%r = add i32 0, 0",
    ]
    last = "%r"
    for n in range(4):
        lines += [
            f"%s{n} = lshr i32 %c, {4 * n}",
            f"%x{n} = and i32 %s{n}, 7",
            f"%y{n} = shl i32 %x{n}, 3",
            f"%z{n} = zext i32 %y{n} to i64",
            f"%w{n} = lshr i64 %v, %z{n}",
            f"%b{n} = trunc i64 %w{n} to i8",
            f"%g{n} = ashr i8 %b{n}, 7",
            f"%q{n} = and i32 %s{n}, 8",
            f"%p{n} = icmp ne i32 %q{n}, 0",
            f"%d{n} = select i1 %p{n}, i8 %g{n}, i8 %b{n}",
            f"%e{n} = zext i8 %d{n} to i32",
            f"%f{n} = shl i32 %e{n}, {8 * n}",
            f"%r{n} = or i32 {last}, %f{n}",
        ]
        last = f"%r{n}"
    return _define("i32", "rgpu.prmt", "i32 %a, i32 %b, i32 %c", [*lines, f"ret i32 {last}"])


def _minmax(name: str, parts: list[str]) -> str:
    """Returns min or max, written with comparisons: LLVM 20 has an intrinsic with the right
    meaning, but selects wrong instructions for it on x86-64.
    """
    kind = parts[-1]
    bits = "i32" if kind == "float" else "i64"
    order, zeros = ("olt", "or") if parts[0] == "min" else ("ogt", "and")
    lines = [
        f"%first = fcmp {order} {kind} %a, %b",
        f"%m = select i1 %first, {kind} %a, {kind} %b",
        f"%same = fcmp oeq {kind} %a, %b",
        f"%ab = bitcast {kind} %a to {bits}",
        f"%bb = bitcast {kind} %b to {bits}",
        f"%zb = {zeros} {bits} %ab, %bb",
        f"%z = bitcast {bits} %zb to {kind}",  # -0 is less than +0
        f"%m1 = select i1 %same, {kind} %z, {kind} %m",
    ]
    if "nan" in parts:
        lines += [
            f"%n = fcmp uno {kind} %a, %b",
            f"%r = select i1 %n, {kind} 0x7FF8000000000000, {kind} %m1",
        ]
    else:
        lines += [f"%n = fcmp uno {kind} %b, %b", f"%r = select i1 %n, {kind} %a, {kind} %m1"]
    return _define(kind, name, f"{kind} %a, {kind} %b", [*lines, f"ret {kind} %r"])


def _narrow(name: str, mode: str) -> str:
    """Returns float(x) for x = s + e with |e| below half an ulp of s, rounded by `mode` ('odd': to
    odd).
    """
    lines = [
        "%t = fptrunc double %s to float",
        "%back = fpext float %t to double",
        "%bits = bitcast float %t to i32",
        "%eq = fcmp oeq double %back, %s",
        "%sgt = fcmp ogt double %s, %back",
        "%slt = fcmp olt double %s, %back",
        "%egt = fcmp ogt double %e, 0.0",
        "%elt = fcmp olt double %e, 0.0",
        "%g1 = and i1 %eq, %egt",
        "%gt = or i1 %sgt, %g1",
        "%l1 = and i1 %eq, %elt",
        "%lt = or i1 %slt, %l1",
        "%neg = icmp slt i32 %bits, 0",
        "%su = select i1 %neg, i32 -1, i32 1",
        "%up = add i32 %bits, %su",
        "%sd = select i1 %neg, i32 1, i32 -1",
        "%down = add i32 %bits, %sd",
    ]
    if mode == "rm":
        lines += ["%r = select i1 %lt, i32 %down, i32 %bits"]
    elif mode == "rp":
        lines += ["%r = select i1 %gt, i32 %up, i32 %bits"]
    elif mode == "rz":
        lines += [
            "%pos = xor i1 %neg, true",
            "%o1 = and i1 %pos, %lt",
            "%o2 = and i1 %neg, %gt",
            "%o = or i1 %o1, %o2",
            "%in = sub i32 %bits, 1",
            "%r = select i1 %o, i32 %in, i32 %bits",
        ]
    else:
        lines += [
            "%low = and i32 %bits, 1",
            "%even = icmp eq i32 %low, 0",
            "%u = select i1 %gt, i32 %up, i32 %bits",
            "%d = select i1 %lt, i32 %down, i32 %u",
            "%r = select i1 %even, i32 %d, i32 %bits",
        ]
    return _define(
        "float",
        name,
        "double %s, double %e",
        [*lines, "%f = bitcast i32 %r to float", "ret float %f"],
    )


_WIDEN: Final = {v: f"%{v}d = fpext float %{v} to double" for v in "abc"}
_TWO_SUM: Final = [  # %s + %e = %x + %y exactly
    "%s = fadd double %x, %y",
    "%s1 = fsub double %s, %x",
    "%s2 = fsub double %s, %s1",
    "%s3 = fsub double %x, %s2",
    "%s4 = fsub double %y, %s1",
    "%e = fadd double %s3, %s4",
]
# When rounding down, a zero sum is negative zero, unless both terms are positive zeros.
_ZERO_DOWN: Final = [
    "%xb = bitcast double %x to i64",
    "%yb = bitcast double %y to i64",
    "%xy = or i64 %xb, %yb",
    "%both = icmp ne i64 %xy, 0",
    "%zero = fcmp oeq double %s, 0.0",
    "%flip = and i1 %both, %zero",
    "%sz = select i1 %flip, double -0.0, double %s",
]


def _directed_f32(name: str, op: str, mode: str) -> str:
    operands = {"fma": "abc", "sqrt": "a"}.get(op, "ab")
    lines = [_WIDEN[v] for v in operands]
    total = "%s"
    if op in ("add", "sub", "fma"):
        if op == "fma":
            lines += ["%x = fmul double %ad, %bd", "%y = fadd double %cd, -0.0"]
        else:
            lines += [
                "%x = fadd double %ad, -0.0",
                "%y = fneg double %bd" if op == "sub" else "%y = fadd double %bd, -0.0",
            ]
        lines += _TWO_SUM
        if mode == "rm":
            lines += _ZERO_DOWN
            total = "%sz"
    elif op == "mul":
        lines += ["%s = fmul double %ad, %bd", "%e = fadd double 0.0, 0.0"]
    elif op == "div":
        lines += [
            "%s = fdiv double %ad, %bd",
            "%n = fneg double %s",
            "%q = call double @llvm.fma.f64(double %n, double %bd, double %ad)",
            "%qn = fneg double %q",
            "%bn = fcmp olt double %bd, 0.0",
            "%e = select i1 %bn, double %qn, double %q",
        ]
    else:
        lines += [
            "%s = call double @llvm.sqrt.f64(double %ad)",
            "%n = fneg double %s",
            "%e = call double @llvm.fma.f64(double %n, double %s, double %ad)",
        ]
    lines += [f"%f = call float @rgpu.narrow.{mode}(double {total}, double %e)", "ret float %f"]
    return _define("float", name, ", ".join(f"float %{v}" for v in operands), lines)


def _directed_f64(name: str, op: str, mode: str) -> str:
    operands = {"fma": "abc", "sqrt": "a"}.get(op, "ab")
    intrinsic = f"llvm.experimental.constrained.{op if op in ('fma', 'sqrt') else 'f' + op}.f64"
    arguments = ", ".join(f"double %{v}" for v in operands)
    return (
        f"define internal double @{name}({arguments}) noinline nounwind strictfp {{\n"
        f"call void @llvm.set.rounding(i32 {ROUNDING[mode]}) strictfp\n"
        f'%r = call double @{intrinsic}({arguments}, metadata !"round.dynamic", '
        'metadata !"fpexcept.strict") strictfp\n'
        f"call void @llvm.set.rounding(i32 1) strictfp\nret double %r\n}}"
    )
