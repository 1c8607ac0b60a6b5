"""Rows for integer, floating-point and half-precision arithmetic. Data only."""

from __future__ import annotations

from typing import Final

from rgpu_emu.ptx.table import Row

I_: Final = "integer-arithmetic-instructions-"
X_: Final = "extended-precision-arithmetic-instructions-"
F_: Final = "floating-point-instructions-"
H_: Final = "half-precision-floating-point-instructions-"

INTEGER: Final[tuple[Row, ...]] = (
    Row("add", "t=s16|u16|s32|u32|s64|u64|s16x2|u16x2", "d s s", "int_binary", I_ + "add"),
    Row("add", "sat t=s32", "d s s", "int_saturating", I_ + "add"),
    Row("sub", "t=s16|u16|s32|u32|s64|u64", "d s s", "int_binary", I_ + "sub"),
    Row("sub", "sat t=s32", "d s s", "int_saturating", I_ + "sub"),
    Row("mul", "t=s16|u16|s32|u32|s64|u64", "d s s", "int_mul", I_ + "mul"),
    Row("mul", "mode=lo|hi t=s16|u16|s32|u32|s64|u64", "d s s", "int_mul", I_ + "mul"),
    Row("mul", "mode=wide t=s16|u16|s32|u32", "d s s", "int_mul", I_ + "mul"),
    Row("mad", "mode=lo|hi t=s16|u16|s32|u32|s64|u64", "d s s s", "int_mad", I_ + "mad"),
    Row("mad", "mode=wide t=s16|u16|s32|u32", "d s s s", "int_mad", I_ + "mad"),
    Row("mad", "mode=hi sat t=s32", "d s s s", "int_mad", I_ + "mad"),
    Row("mul24", "mode=lo|hi t=s32|u32", "d s s", "int_mul24", I_ + "mul24"),
    Row("mad24", "mode=lo|hi t=s32|u32", "d s s s", "int_mul24", I_ + "mad24"),
    Row("mad24", "mode=hi sat t=s32", "d s s s", "int_mul24", I_ + "mad24"),
    Row("sad", "t=s16|u16|s32|u32|s64|u64", "d s s s", "int_sad", I_ + "sad"),
    Row("div", "t=s16|u16|s32|u32|s64|u64", "d s s", "int_divide", I_ + "div"),
    Row("rem", "t=s16|u16|s32|u32|s64|u64", "d s s", "int_divide", I_ + "rem"),
    Row("abs", "t=s16|s32|s64", "d s", "int_unary", I_ + "abs"),
    Row("neg", "t=s16|s32|s64", "d s", "int_unary", I_ + "neg"),
    Row("min", "t=s16|u16|s32|u32|s64|u64|s16x2|u16x2", "d s s", "int_binary", I_ + "min"),
    Row("min", "relu t=s32|s16x2", "d s s", "int_binary", I_ + "min"),
    Row("max", "t=s16|u16|s32|u32|s64|u64|s16x2|u16x2", "d s s", "int_binary", I_ + "max"),
    Row("max", "relu t=s32|s16x2", "d s s", "int_binary", I_ + "max"),
    Row("popc", "t=b32|b64", "d s", "int_count", I_ + "popc"),
    Row("clz", "t=b32|b64", "d s", "int_count", I_ + "clz"),
    Row("bfind", "?shiftamt t=s32|u32|s64|u64", "d s", "int_bfind", I_ + "bfind"),
    Row("fns", "t=b32", "d s s s", "int_fns", I_ + "fns"),
    Row("brev", "t=b32|b64", "d s", "int_count", I_ + "brev"),
    Row("bfe", "t=s32|u32|s64|u64", "d s s s", "int_bfe", I_ + "bfe"),
    Row("bfi", "t=b32|b64", "d s s s s", "int_bfi", I_ + "bfi"),
    Row("szext", "mode=clamp|wrap t=s32|u32", "d s s", "int_szext", I_ + "szext"),
    Row("bmsk", "mode=clamp|wrap t=b32", "d s s", "int_bmsk", I_ + "bmsk"),
    Row("dp4a", "a=s32|u32 b=s32|u32", "d s s s", "int_dot", I_ + "dp4a"),
    Row("dp2a", "mode=lo|hi a=s32|u32 b=s32|u32", "d s s s", "int_dot", I_ + "dp2a"),
    Row("add", "cc t=s32|u32|s64|u64", "d s s", "carry_add", X_ + "add-cc"),
    Row("addc", "?cc t=s32|u32|s64|u64", "d s s", "carry_add", X_ + "addc"),
    Row("sub", "cc t=s32|u32|s64|u64", "d s s", "carry_sub", X_ + "sub-cc"),
    Row("subc", "?cc t=s32|u32|s64|u64", "d s s", "carry_sub", X_ + "subc"),
    Row("mad", "mode=lo|hi cc t=s32|u32|s64|u64", "d s s s", "carry_mad", X_ + "mad-cc"),
    Row("madc", "mode=lo|hi ?cc t=s32|u32|s64|u64", "d s s s", "carry_mad", X_ + "madc"),
)

_RND: Final = "rnd?=rn|rz|rm|rp"
_NEED: Final = "rnd=rn|rz|rm|rp"

FLOAT: Final[tuple[Row, ...]] = (
    Row(
        "testp",
        "op=finite|infinite|number|notanumber|normal|subnormal t=f32|f64",
        "d s",
        "fp_test",
        F_ + "testp",
    ),
    Row("copysign", "t=f32|f64", "d s s", "fp_copysign", F_ + "copysign"),
    Row("add", f"{_RND} ?ftz ?sat t=f32", "d s s", "fp_binary", F_ + "add"),
    Row("add", f"{_RND} t=f64", "d s s", "fp_binary", F_ + "add"),
    Row("sub", f"{_RND} ?ftz ?sat t=f32", "d s s", "fp_binary", F_ + "sub"),
    Row("sub", f"{_RND} t=f64", "d s s", "fp_binary", F_ + "sub"),
    Row("mul", f"{_RND} ?ftz ?sat t=f32", "d s s", "fp_binary", F_ + "mul"),
    Row("mul", f"{_RND} t=f64", "d s s", "fp_binary", F_ + "mul"),
    Row("fma", f"{_NEED} ?ftz ?sat t=f32", "d s s s", "fp_fma", F_ + "fma"),
    Row("fma", f"{_NEED} t=f64", "d s s s", "fp_fma", F_ + "fma"),
    Row("mad", f"{_RND} ?ftz ?sat t=f32", "d s s s", "fp_fma", F_ + "mad"),
    Row("mad", f"{_NEED} t=f64", "d s s s", "fp_fma", F_ + "mad"),
    Row("div", "mode=approx|full ?ftz t=f32", "d s s", "fp_div_approx", F_ + "div"),
    Row("div", f"{_NEED} ?ftz t=f32", "d s s", "fp_binary", F_ + "div"),
    Row("div", f"{_NEED} t=f64", "d s s", "fp_binary", F_ + "div"),
    Row("abs", "?ftz t=f32", "d s", "fp_sign", F_ + "abs"),
    Row("abs", "t=f64", "d s", "fp_sign", F_ + "abs"),
    Row("neg", "?ftz t=f32", "d s", "fp_sign", F_ + "neg"),
    Row("neg", "t=f64", "d s", "fp_sign", F_ + "neg"),
    Row("min", "?ftz ?NaN t=f32", "d s s", "fp_minmax", F_ + "min"),
    Row("min", "?ftz ?NaN xorsign abs t=f32", "d s s", "fp_minmax", F_ + "min"),
    Row("min", "t=f64", "d s s", "fp_minmax", F_ + "min"),
    Row("max", "?ftz ?NaN t=f32", "d s s", "fp_minmax", F_ + "max"),
    Row("max", "?ftz ?NaN xorsign abs t=f32", "d s s", "fp_minmax", F_ + "max"),
    Row("max", "t=f64", "d s s", "fp_minmax", F_ + "max"),
    Row("rcp", "approx ?ftz t=f32", "d s", "fp_approx", F_ + "rcp"),
    Row("rcp", f"{_NEED} ?ftz t=f32", "d s", "fp_rcp", F_ + "rcp"),
    Row("rcp", f"{_NEED} t=f64", "d s", "fp_rcp", F_ + "rcp"),
    Row("rcp", "approx ftz t=f64", "d s", "fp_approx", F_ + "rcp-approx-ftz-f64"),
    Row("sqrt", "approx ?ftz t=f32", "d s", "fp_approx", F_ + "sqrt"),
    Row("sqrt", f"{_NEED} ?ftz t=f32", "d s", "fp_sqrt", F_ + "sqrt"),
    Row("sqrt", f"{_NEED} t=f64", "d s", "fp_sqrt", F_ + "sqrt"),
    Row("rsqrt", "approx ?ftz t=f32", "d s", "fp_approx", F_ + "rsqrt"),
    Row("rsqrt", "approx ?ftz t=f64", "d s", "fp_approx", F_ + "rsqrt-approx-ftz-f64"),
    Row("sin", "approx ?ftz t=f32", "d s", "fp_approx", F_ + "sin"),
    Row("cos", "approx ?ftz t=f32", "d s", "fp_approx", F_ + "cos"),
    Row("lg2", "approx ?ftz t=f32", "d s", "fp_approx", F_ + "lg2"),
    Row("ex2", "approx ?ftz t=f32", "d s", "fp_approx", F_ + "ex2"),
    Row("tanh", "approx t=f32", "d s", "fp_approx", F_ + "tanh"),
)

_HALF: Final = "rnd?=rn ?ftz ?sat t=f16|f16x2"
_BF16: Final = "rnd?=rn t=bf16|bf16x2"

HALF: Final[tuple[Row, ...]] = (
    Row("add", _HALF, "d s s", "half_binary", H_ + "add"),
    Row("add", _BF16, "d s s", "half_binary", H_ + "add"),
    Row("sub", _HALF, "d s s", "half_binary", H_ + "sub"),
    Row("sub", _BF16, "d s s", "half_binary", H_ + "sub"),
    Row("mul", _HALF, "d s s", "half_binary", H_ + "mul"),
    Row("mul", _BF16, "d s s", "half_binary", H_ + "mul"),
    Row("fma", "rnd=rn ?ftz ?sat t=f16|f16x2", "d s s s", "half_fma", H_ + "fma"),
    Row("fma", "rnd=rn ?ftz relu t=f16|f16x2", "d s s s", "half_fma", H_ + "fma"),
    Row("fma", "rnd=rn ?relu t=bf16|bf16x2", "d s s s", "half_fma", H_ + "fma"),
    Row("neg", "?ftz t=f16|f16x2", "d s", "half_sign", H_ + "neg"),
    Row("neg", "t=bf16|bf16x2", "d s", "half_sign", H_ + "neg"),
    Row("abs", "?ftz t=f16|f16x2", "d s", "half_sign", H_ + "abs"),
    Row("abs", "t=bf16|bf16x2", "d s", "half_sign", H_ + "abs"),
    Row("min", "?ftz ?NaN t=f16|f16x2", "d s s", "half_minmax", H_ + "min"),
    Row("min", "?ftz ?NaN xorsign abs t=f16|f16x2", "d s s", "half_minmax", H_ + "min"),
    Row("min", "?NaN t=bf16|bf16x2", "d s s", "half_minmax", H_ + "min"),
    Row("min", "?NaN xorsign abs t=bf16|bf16x2", "d s s", "half_minmax", H_ + "min"),
    Row("max", "?ftz ?NaN t=f16|f16x2", "d s s", "half_minmax", H_ + "max"),
    Row("max", "?ftz ?NaN xorsign abs t=f16|f16x2", "d s s", "half_minmax", H_ + "max"),
    Row("max", "?NaN t=bf16|bf16x2", "d s s", "half_minmax", H_ + "max"),
    Row("max", "?NaN xorsign abs t=bf16|bf16x2", "d s s", "half_minmax", H_ + "max"),
    Row("tanh", "approx t=f16|f16x2|bf16|bf16x2", "d s", "half_approx", H_ + "tanh"),
    Row("ex2", "approx t=f16|f16x2", "d s", "half_approx", H_ + "ex2"),
    Row("ex2", "approx ftz t=bf16|bf16x2", "d s", "half_approx", H_ + "ex2"),
)
ROWS: Final = INTEGER + FLOAT + HALF
