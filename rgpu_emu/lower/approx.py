"""IR texts of ex2, lg2, sin, cos and tanh in their `.approx` forms: polynomials that call no
library and can be vectorised.

Their errors are below the bounds of the PTX manual. sin and cos are computed in double, so large
arguments are more exact than on a device.
"""

from __future__ import annotations

import math
import struct
from typing import Final


def _f32(value: float) -> str:
    """An IR literal of the nearest float."""
    near: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return _f64(near)


def _f64(value: float) -> str:
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def _horner(name: str, x: str, coefficients: list[float], kind: str) -> list[str]:
    """`%name` = c0 + x (c1 + x (c2 + ...))."""
    constant = _f32 if kind == "float" else _f64
    lines, last = [], constant(coefficients[-1])
    for n in range(len(coefficients) - 2, -1, -1):
        lines.append(f"%{name}m{n} = fmul {kind} {last}, {x}")
        last = f"%{name}{n}" if n else f"%{name}"
        lines.append(f"{last} = fadd {kind} %{name}m{n}, {constant(coefficients[n])}")
    return lines


def _function(name: str, lines: list[str]) -> str:
    body = "\n".join(lines)
    return f"define internal float @{name}(float %x) alwaysinline nounwind {{\n{body}\n}}"


def _ex2() -> str:
    return _function(
        "rgpu.ex2.approx",
        [
            f"%hi = fcmp olt float %x, {_f32(129.0)}",
            f"%a = select i1 %hi, float %x, float {_f32(129.0)}",
            f"%lo = fcmp ogt float %a, {_f32(-151.0)}",
            f"%b = select i1 %lo, float %a, float {_f32(-151.0)}",
            "%n = call float @llvm.roundeven.f32(float %b)",
            "%f = fsub float %b, %n",
            *_horner("p", "%f", [math.log(2) ** k / math.factorial(k) for k in range(8)], "float"),
            "%i = call i32 @llvm.fptosi.sat.i32.f32(float %n)",
            "%i1 = ashr i32 %i, 1",
            "%i2 = sub i32 %i, %i1",
            "%e1 = add i32 %i1, 127",
            "%s1 = shl i32 %e1, 23",
            "%f1 = bitcast i32 %s1 to float",
            "%e2 = add i32 %i2, 127",
            "%s2 = shl i32 %e2, 23",
            "%f2 = bitcast i32 %s2 to float",
            "%q = fmul float %p, %f1",
            "%r = fmul float %q, %f2",
            "%nan = fcmp uno float %x, 0.0",
            "%out = select i1 %nan, float %x, float %r",
            "ret float %out",
        ],
    )


def _lg2() -> str:
    series = [2 / math.log(2) / (2 * k + 1) for k in range(5)]
    return _function(
        "rgpu.lg2.approx",
        [
            f"%tiny = fcmp olt float %x, {_f32(2.0**-126)}",
            f"%up = fmul float %x, {_f32(2.0**24)}",
            "%v = select i1 %tiny, float %up, float %x",
            f"%bias = select i1 %tiny, float {_f32(-24.0)}, float 0.0",
            "%bits = bitcast float %v to i32",
            f"%off = sub i32 %bits, {0x3F3504F3}",
            "%exp = ashr i32 %off, 23",
            "%low = and i32 %off, 8388607",
            f"%mant = add i32 %low, {0x3F3504F3}",
            "%m = bitcast i32 %mant to float",
            f"%f = fsub float %m, {_f32(1.0)}",
            f"%d = fadd float %m, {_f32(1.0)}",
            "%s = fdiv float %f, %d",
            "%z = fmul float %s, %s",
            *_horner("p", "%z", series, "float"),
            "%l = fmul float %s, %p",
            "%ef = sitofp i32 %exp to float",
            "%eb = fadd float %ef, %bias",
            "%r = fadd float %eb, %l",
            "%zero = fcmp oeq float %x, 0.0",
            "%r1 = select i1 %zero, float 0xFFF0000000000000, float %r",
            "%neg = fcmp olt float %x, 0.0",
            "%r2 = select i1 %neg, float 0x7FF8000000000000, float %r1",
            "%inf = fcmp oeq float %x, 0x7FF0000000000000",
            "%nan = fcmp uno float %x, 0.0",
            "%same = or i1 %inf, %nan",
            "%out = select i1 %same, float %x, float %r2",
            "ret float %out",
        ],
    )


def _trigonometric(name: str, shift: int) -> str:
    """sin(x + shift * pi/2) by quadrants."""
    high = struct.unpack("<d", struct.pack("<Q", 0x3FF921FB54400000))[0]
    sine = [(-1.0) ** k / math.factorial(2 * k + 1) for k in range(6)]
    cosine = [(-1.0) ** k / math.factorial(2 * k) for k in range(7)]
    return _function(
        f"rgpu.{name}.approx",
        [
            "%w = fpext float %x to double",
            f"%t = fmul double %w, {_f64(2 / math.pi)}",
            "%n = call double @llvm.roundeven.f64(double %t)",
            f"%h = fmul double %n, {_f64(high)}",
            "%r0 = fsub double %w, %h",
            f"%g = fmul double %n, {_f64(math.pi / 2 - high)}",
            "%r = fsub double %r0, %g",
            "%i = call i64 @llvm.fptosi.sat.i64.f64(double %n)",
            f"%k = add i64 %i, {shift}",
            "%z = fmul double %r, %r",
            *_horner("p", "%z", sine, "double"),
            "%sv = fmul double %p, %r",
            *_horner("q", "%z", cosine, "double"),
            "%odd = and i64 %k, 1",
            "%isodd = icmp ne i64 %odd, 0",
            "%v = select i1 %isodd, double %q, double %sv",
            "%two = and i64 %k, 2",
            "%minus = icmp ne i64 %two, 0",
            "%nv = fneg double %v",
            "%u = select i1 %minus, double %nv, double %v",
            f"%big = fcmp ogt double %u, {_f64(1.0)}",
            f"%u1 = select i1 %big, double {_f64(1.0)}, double %u",
            f"%less = fcmp olt double %u1, {_f64(-1.0)}",
            f"%u2 = select i1 %less, double {_f64(-1.0)}, double %u1",
            "%y = fptrunc double %u2 to float",
            "%zero = fcmp oeq float %x, 0.0",
            f"%out = select i1 %zero, float {'%x' if shift == 0 else _f32(1.0)}, float %y",
            "ret float %out",
        ],
    )


def _tanh() -> str:
    series = [1.0, -1 / 3, 2 / 15, -17 / 315, 62 / 2835, -1382 / 155925]
    return _function(
        "rgpu.tanh.approx",
        [
            "%a = call float @llvm.fabs.f32(float %x)",
            f"%y = fmul float %a, {_f32(2 / math.log(2))}",
            "%t = call float @rgpu.ex2.approx(float %y)",
            f"%d = fadd float %t, {_f32(1.0)}",
            f"%q = fdiv float {_f32(2.0)}, %d",
            f"%big = fsub float {_f32(1.0)}, %q",
            "%z = fmul float %a, %a",
            *_horner("p", "%z", series, "float"),
            "%small = fmul float %a, %p",
            f"%near = fcmp olt float %a, {_f32(0.55)}",
            "%v = select i1 %near, float %small, float %big",
            "%out = call float @llvm.copysign.f32(float %v, float %x)",
            "ret float %out",
        ],
    )


APPROXIMATIONS: Final[dict[str, str]] = {
    "rgpu.ex2.approx": _ex2(),
    "rgpu.lg2.approx": _lg2(),
    "rgpu.sin.approx": _trigonometric("sin", 0),
    "rgpu.cos.approx": _trigonometric("cos", 1),
    "rgpu.tanh.approx": _tanh(),
}
