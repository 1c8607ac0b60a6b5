"""IR texts of the helper functions that are the same for every use. Data only."""

from __future__ import annotations

from typing import Final

_TEXTS: Final = """
define internal float @rgpu.ftz(float %x) alwaysinline nounwind {
%m = call float @llvm.fabs.f32(float %x)
%s = fcmp olt float %m, 0x3810000000000000
%z = call float @llvm.copysign.f32(float 0.0, float %x)
%r = select i1 %s, float %z, float %x
ret float %r
}
define internal double @rgpu.ftz.f64(double %x) alwaysinline nounwind {
%m = call double @llvm.fabs.f64(double %x)
%s = fcmp olt double %m, 0x0010000000000000
%z = call double @llvm.copysign.f64(double 0.0, double %x)
%r = select i1 %s, double %z, double %x
ret double %r
}
define internal half @rgpu.ftz.f16(half %x) alwaysinline nounwind {
%b = bitcast half %x to i16
%e = and i16 %b, 31744
%s = icmp eq i16 %e, 0
%z = and i16 %b, -32768
%k = select i1 %s, i16 %z, i16 %b
%r = bitcast i16 %k to half
ret half %r
}
define internal float @rgpu.sat(float %x) alwaysinline nounwind {
%p = fcmp ogt float %x, 0.0
%a = select i1 %p, float %x, float 0.0
%l = fcmp olt float %a, 1.0
%r = select i1 %l, float %a, float 1.0
ret float %r
}
define internal double @rgpu.sat.f64(double %x) alwaysinline nounwind {
%p = fcmp ogt double %x, 0.0
%a = select i1 %p, double %x, double 0.0
%l = fcmp olt double %a, 1.0
%r = select i1 %l, double %a, double 1.0
ret double %r
}
define internal float @rgpu.relu(float %x) alwaysinline nounwind {
%n = fcmp ole float %x, 0.0
%r = select i1 %n, float 0.0, float %x
ret float %r
}
define internal i16 @rgpu.bf16.rn(float %x) alwaysinline nounwind {
%b = bitcast float %x to i32
%h = lshr i32 %b, 16
%l = and i32 %h, 1
%k = add i32 %l, 32767
%s = add i32 %b, %k
%t = lshr i32 %s, 16
%n = fcmp uno float %x, 0.0
%v = select i1 %n, i32 32767, i32 %t
%r = trunc i32 %v to i16
ret i16 %r
}
define internal i16 @rgpu.bf16.rz(float %x) alwaysinline nounwind {
%b = bitcast float %x to i32
%t = lshr i32 %b, 16
%n = fcmp uno float %x, 0.0
%v = select i1 %n, i32 32767, i32 %t
%r = trunc i32 %v to i16
ret i16 %r
}
define internal i16 @rgpu.bf16.away(float %x, i1 %when) alwaysinline nounwind {
%b = bitcast float %x to i32
%low = and i32 %b, 65535
%inexact = icmp ne i32 %low, 0
%up = and i1 %inexact, %when
%k = select i1 %up, i32 65536, i32 0
%s = add i32 %b, %k
%t = lshr i32 %s, 16
%n = fcmp uno float %x, 0.0
%v = select i1 %n, i32 32767, i32 %t
%r = trunc i32 %v to i16
ret i16 %r
}
define internal i16 @rgpu.bf16.rm(float %x) alwaysinline nounwind {
%b = bitcast float %x to i32
%neg = icmp slt i32 %b, 0
%r = call i16 @rgpu.bf16.away(float %x, i1 %neg)
ret i16 %r
}
define internal i16 @rgpu.bf16.rp(float %x) alwaysinline nounwind {
%b = bitcast float %x to i32
%pos = icmp sge i32 %b, 0
%r = call i16 @rgpu.bf16.away(float %x, i1 %pos)
ret i16 %r
}
define internal half @rgpu.f16.step(half %t, i1 %u, i1 %d) alwaysinline nounwind {
%bits = bitcast half %t to i16
%neg = icmp slt i16 %bits, 0
%su = select i1 %neg, i16 -1, i16 1
%sd = select i1 %neg, i16 1, i16 -1
%up = add i16 %bits, %su
%down = add i16 %bits, %sd
%r1 = select i1 %u, i16 %up, i16 %bits
%r2 = select i1 %d, i16 %down, i16 %r1
%r = bitcast i16 %r2 to half
ret half %r
}
define internal half @rgpu.f16.rm(float %x) alwaysinline nounwind {
%t = fptrunc float %x to half
%b = fpext half %t to float
%lt = fcmp olt float %x, %b
%r = call half @rgpu.f16.step(half %t, i1 false, i1 %lt)
ret half %r
}
define internal half @rgpu.f16.rp(float %x) alwaysinline nounwind {
%t = fptrunc float %x to half
%b = fpext half %t to float
%gt = fcmp ogt float %x, %b
%r = call half @rgpu.f16.step(half %t, i1 %gt, i1 false)
ret half %r
}
define internal half @rgpu.f16.rz(float %x) alwaysinline nounwind {
%t = fptrunc float %x to half
%b = fpext half %t to float
%gt = fcmp ogt float %x, %b
%lt = fcmp olt float %x, %b
%i = bitcast float %x to i32
%neg = icmp slt i32 %i, 0
%pos = xor i1 %neg, true
%u = and i1 %gt, %neg
%d = and i1 %lt, %pos
%r = call half @rgpu.f16.step(half %t, i1 %u, i1 %d)
ret half %r
}
define internal float @rgpu.fma.odd(double %a, double %b, double %y) alwaysinline nounwind {
%x = fmul double %a, %b
%s = fadd double %x, %y
%s1 = fsub double %s, %x
%s2 = fsub double %s, %s1
%s3 = fsub double %x, %s2
%s4 = fsub double %y, %s1
%e = fadd double %s3, %s4
%r = call float @rgpu.narrow.odd(double %s, double %e)
ret float %r
}
define internal i32 @rgpu.fns(i32 %mask, i32 %base, i32 %offset) nounwind {
entry:
%zero = icmp eq i32 %offset, 0
%positive = icmp sgt i32 %offset, 0
%inc = select i1 %positive, i32 1, i32 -1
%magnitude = call i32 @llvm.abs.i32(i32 %offset, i1 false)
%less = sub i32 %magnitude, 1
%first = select i1 %zero, i32 0, i32 %less
%limit = select i1 %zero, i32 1, i32 32
br label %loop
loop:
%pos = phi i32 [ %base, %entry ], [ %next, %step ]
%count = phi i32 [ %first, %entry ], [ %left, %step ]
%turn = phi i32 [ 0, %entry ], [ %turns, %step ]
%inside = icmp ult i32 %pos, 32
%more = icmp ult i32 %turn, %limit
%go = and i1 %inside, %more
br i1 %go, label %test, label %none
test:
%shifted = lshr i32 %mask, %pos
%bit = and i32 %shifted, 1
%set = icmp ne i32 %bit, 0
%last = icmp eq i32 %count, 0
%found = and i1 %set, %last
br i1 %found, label %done, label %step
step:
%left = sub i32 %count, %bit
%next = add i32 %pos, %inc
%turns = add i32 %turn, 1
br label %loop
done:
ret i32 %pos
none:
ret i32 -1
}
"""

PLAIN: Final[dict[str, str]] = {
    text.split("@", 1)[1].split("(", 1)[0]: f"define {text.strip()}"
    for text in _TEXTS.split("\ndefine ")[1:]
}

_UNARY: Final = ("fabs", "sqrt", "roundeven")
_BINARY: Final = ("copysign",)
_META: Final = "metadata, metadata"
DECLARATIONS: Final[dict[str, str]] = {
    **{
        f"llvm.{n}.{s}": f"declare {t} @llvm.{n}.{s}({t})"
        for n in _UNARY
        for s, t in (("f32", "float"), ("f64", "double"))
    },
    **{
        f"llvm.{n}.{s}": f"declare {t} @llvm.{n}.{s}({t}, {t})"
        for n in _BINARY
        for s, t in (("f32", "float"), ("f64", "double"))
    },
    "llvm.fma.f64": "declare double @llvm.fma.f64(double, double, double)",
    "llvm.fptosi.sat.i32.f32": "declare i32 @llvm.fptosi.sat.i32.f32(float)",
    "llvm.fptosi.sat.i64.f64": "declare i64 @llvm.fptosi.sat.i64.f64(double)",
    "llvm.abs.i32": "declare i32 @llvm.abs.i32(i32, i1)",
    "llvm.set.rounding": "declare void @llvm.set.rounding(i32)",
    **{
        f"llvm.experimental.constrained.{n}.f64": (
            f"declare double @llvm.experimental.constrained.{n}.f64({'double, ' * k}{_META})"
        )
        for n, k in (("fadd", 2), ("fsub", 2), ("fmul", 2), ("fdiv", 2), ("fma", 3), ("sqrt", 1))
    },
}
