"""Rows for comparison, logic, data movement and conversion. Data only."""

from __future__ import annotations

from typing import Final

from rgpu_emu.ptx.table import Row

C_: Final = "comparison-and-selection-instructions-"
HC_: Final = "half-precision-comparison-instructions-"
L_: Final = "logic-and-shift-instructions-"
D_: Final = "data-movement-and-conversion-instructions-"

_ICMP: Final = "cmp=eq|ne|lt|le|gt|ge|lo|ls|hi|hs"
_FCMP: Final = "cmp=eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan"
_BOOL: Final = "bool=and|or|xor"
_ITYPE: Final = "b16|b32|b64|u16|u32|u64|s16|s32|s64"
_DTYPE: Final = "d=u32|s32|f32"

COMPARE: Final[tuple[Row, ...]] = (
    Row("set", f"{_ICMP} {_DTYPE} t={_ITYPE}", "d s s", "cmp_set", C_ + "set"),
    Row("set", f"{_ICMP} {_BOOL} {_DTYPE} t={_ITYPE}", "d s s p", "cmp_set", C_ + "set"),
    Row("set", f"{_FCMP} ?ftz {_DTYPE} t=f32|f64", "d s s", "cmp_set", C_ + "set"),
    Row("set", f"{_FCMP} {_BOOL} ?ftz {_DTYPE} t=f32|f64", "d s s p", "cmp_set", C_ + "set"),
    Row("setp", f"{_ICMP} t={_ITYPE}", "P s s", "cmp_setp", C_ + "setp"),
    Row("setp", f"{_ICMP} {_BOOL} t={_ITYPE}", "P s s p", "cmp_setp", C_ + "setp"),
    Row("setp", f"{_FCMP} ?ftz t=f32|f64", "P s s", "cmp_setp", C_ + "setp"),
    Row("setp", f"{_FCMP} {_BOOL} ?ftz t=f32|f64", "P s s p", "cmp_setp", C_ + "setp"),
    Row("selp", f"t={_ITYPE}|f32|f64", "d s s s", "cmp_selp", C_ + "selp"),
    Row("slct", f"t={_ITYPE}|f32|f64 c=s32", "d s s s", "cmp_slct", C_ + "slct"),
    Row("slct", f"?ftz t={_ITYPE}|f32|f64 c=f32", "d s s s", "cmp_slct", C_ + "slct"),
    *(
        Row("set", f"{cmp} {way} {types}", letters, "cmp_set", HC_ + "set")
        for cmp, types in (
            (_FCMP, "?ftz d=f16|bf16|u16|s16|u32|s32 t=f16"),
            (_FCMP, "d=f16|bf16|u16|s16|u32|s32 t=bf16"),
            (_FCMP, "?ftz d=f16x2|u32|s32 t=f16x2"),
            (_FCMP, "d=bf16x2|u32|s32 t=bf16x2"),
            (_ICMP, f"d=f16|bf16 t={_ITYPE}"),
            (_FCMP, "?ftz d=f16 t=f32|f64"),
            (_FCMP, "d=bf16 t=f32|f64"),
        )
        for way, letters in (("", "d s s"), (_BOOL, "d s s p"))
    ),
    Row("setp", f"{_FCMP} ?ftz t=f16|f16x2", "P s s", "cmp_setp", HC_ + "setp"),
    Row("setp", f"{_FCMP} {_BOOL} ?ftz t=f16|f16x2", "P s s p", "cmp_setp", HC_ + "setp"),
    Row("setp", f"{_FCMP} t=bf16|bf16x2", "P s s", "cmp_setp", HC_ + "setp"),
    Row("setp", f"{_FCMP} {_BOOL} t=bf16|bf16x2", "P s s p", "cmp_setp", HC_ + "setp"),
)

LOGIC: Final[tuple[Row, ...]] = (
    # NVIDIA's compiler takes negated predicates here too, and Dr.Jit writes them.
    *(Row(op, "t=pred", "d p p", "int_binary", L_ + op) for op in ("and", "or", "xor")),
    *(Row(op, "t=b16|b32|b64", "d s s", "int_binary", L_ + op) for op in ("and", "or", "xor")),
    Row("not", "t=pred", "d p", "int_unary", L_ + "not"),
    Row("not", "t=b16|b32|b64", "d s", "int_unary", L_ + "not"),
    Row("cnot", "t=b16|b32|b64", "d s", "int_unary", L_ + "cnot"),
    Row("lop3", "t=b32", "d s s s s", "int_lop3", L_ + "lop3"),
    Row("lop3", "bool=and|or t=b32", "P s s s s p", "int_lop3", L_ + "lop3"),
    Row("shf", "dir=l|r mode=clamp|wrap t=b32", "d s s s", "int_funnel", L_ + "shf"),
    Row("shl", "t=b16|b32|b64", "d s s", "int_shift", L_ + "shl"),
    Row("shr", f"t={_ITYPE}", "d s s", "int_shift", L_ + "shr"),
)

_MEM_TYPE: Final = "t=b8|b16|b32|b64|b128|u8|u16|u32|u64|s8|s16|s32|s64|f32|f64"
_FROM: Final = "space?=const|global|local|param|param::entry|param::func|shared|shared::cta"
_TO: Final = "space?=global|local|param|param::func|shared|shared::cta"
_LOAD: Final = "sem?=weak|volatile|relaxed|acquire scope?=cta|cluster|gpu|sys"
_STORE: Final = "sem?=weak|volatile|relaxed|release scope?=cta|cluster|gpu|sys"
_MMIO: Final = "mmio sem=relaxed scope=sys space?=global"
_EVICT: Final = (
    "first?=L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate "
    "second?=L2::evict_normal|L2::evict_last|L2::evict_first "
    "hint?=L2::cache_hint prefetch?=L2::64B|L2::128B|L2::256B"
)
_VEC: Final = "vec?=v2|v4|v8"

_POLICY: Final = (
    "first=L2::evict_last|L2::evict_normal|L2::evict_first|L2::evict_unchanged "
    "second?=L2::evict_first|L2::evict_unchanged"
)

MEMORY: Final[tuple[Row, ...]] = (
    Row(
        "mov",
        "t=b16|b32|b64|b128|u16|u32|u64|s16|s32|s64|f16|bf16|f32|f64|pred",
        "D S",
        "mov",
        D_ + "mov",
    ),
    Row(
        "mov",
        "vec=v2|v4 t=b16|b32|b64|u16|u32|u64|s16|s32|s64|f32|f64",
        "D S",
        "mov_vector",
        D_ + "mov",
    ),
    Row(
        "ld",
        f"{_LOAD} {_FROM} cop?=ca|cg|cs|lu|cv {_EVICT} {_VEC} {_MEM_TYPE}",
        "D m s?",
        "load",
        D_ + "ld",
    ),
    Row("ld", f"{_MMIO} {_MEM_TYPE}", "D m", "load", D_ + "ld"),
    Row("st", f"{_MMIO} {_MEM_TYPE}", "m S", "store", D_ + "st"),
    Row(
        "ld",
        f"space=global cop?=ca|cg|cs nc {_EVICT} {_VEC} {_MEM_TYPE}",
        "D m s?",
        "load",
        D_ + "ld-global-nc",
    ),
    Row("ldu", f"space?=global {_VEC} {_MEM_TYPE}", "D m", "load", D_ + "ldu"),
    Row(
        "st",
        f"{_STORE} {_TO} cop?=wb|cg|cs|wt {_EVICT} {_VEC} {_MEM_TYPE}",
        "m S s?",
        "store",
        D_ + "st",
    ),
    Row("prefetch", "space?=global|local level=L1|L2", "m", "nothing", D_ + "prefetch-prefetchu"),
    Row(
        "prefetch",
        "space=global level=L2::evict_last|L2::evict_normal",
        "m",
        "nothing",
        D_ + "prefetch-prefetchu",
    ),
    Row("prefetchu", "level=L1", "m", "nothing", D_ + "prefetch-prefetchu"),
    Row("discard", "space?=global level=L2", "m s", "nothing", D_ + "discard"),
    Row("createpolicy", f"fractional {_POLICY} t=b64", "d s?", "policy", D_ + "createpolicy"),
    Row(
        "createpolicy",
        f"range space?=global {_POLICY} t=b64",
        "d m s s",
        "policy",
        D_ + "createpolicy",
    ),
    Row("createpolicy", "cvt level=L2 t=b64", "d s", "policy", D_ + "createpolicy"),
    Row(
        "applypriority",
        "space?=global level=L2::evict_normal",
        "m s",
        "nothing",
        D_ + "applypriority",
    ),
    Row(
        "isspacep",
        "space=const|global|local|shared|shared::cta|param|param::entry",
        "d s",
        "isspacep",
        D_ + "isspacep",
    ),
    Row(
        "cvta",
        "?to space=const|global|local|shared|shared::cta|param|param::entry t=u32|u64",
        "d s",
        "cvta",
        D_ + "cvta",
    ),
    Row("prmt", "t=b32", "d s s s", "int_prmt", D_ + "prmt"),
    Row("prmt", "t=b32 mode=f4e|b4e|rc8|ecl|ecr|rc16", "d s s s", "int_prmt", D_ + "prmt"),
    Row(
        "cp",
        "async mode=ca|cg space=shared|shared::cta from=global ?L2::cache_hint "
        "prefetch?=L2::64B|L2::128B|L2::256B",
        "m m s q? s?",
        "copy_async",
        D_ + "cp-async",
    ),
    Row("cp", "async commit_group", "", "nothing", D_ + "cp-async-commit-group"),
    Row("cp", "async wait_group", "s", "nothing", D_ + "cp-async-wait-group"),
    Row("cp", "async wait_all", "", "nothing", D_ + "cp-async-wait-group"),
)

_INT: Final = "u8|u16|u32|u64|s8|s16|s32|s64"
_IRND: Final = "irnd=rni|rzi|rmi|rpi"
_FP8: Final = "e4m3x2|e5m2x2"
_FRND: Final = "frnd=rn|rz|rm|rp"

CONVERT: Final[tuple[Row, ...]] = (
    Row("cvt", f"?sat d={_INT} s={_INT}", "d s", "cvt_int", D_ + "cvt"),
    Row("cvt", f"{_FRND} ?sat d=f16|bf16|f32|f64 s={_INT}", "d s", "cvt_int_to_float", D_ + "cvt"),
    Row(
        "cvt",
        f"{_IRND} ?ftz ?sat d={_INT} s=f16|bf16|f32|f64",
        "d s",
        "cvt_float_to_int",
        D_ + "cvt",
    ),
    Row("cvt", f"{_IRND} ?ftz ?sat d=f16 s=f16", "d s", "cvt_round", D_ + "cvt"),
    Row("cvt", f"{_IRND} d=bf16 s=bf16", "d s", "cvt_round", D_ + "cvt"),
    Row("cvt", f"{_IRND} ?ftz ?sat d=f32 s=f32", "d s", "cvt_round", D_ + "cvt"),
    Row("cvt", f"{_IRND} ?ftz ?sat d=f64 s=f64", "d s", "cvt_round", D_ + "cvt"),
    Row("cvt", "?ftz ?sat d=f32 s=f16|bf16|f32", "d s", "cvt_float", D_ + "cvt"),
    Row("cvt", "?ftz ?sat d=f64 s=f16|bf16|f32|f64", "d s", "cvt_float", D_ + "cvt"),
    Row("cvt", "?ftz ?sat d=f16 s=f16", "d s", "cvt_float", D_ + "cvt"),
    Row("cvt", f"{_FRND} ?ftz ?sat d=f32 s=f64", "d s", "cvt_float", D_ + "cvt"),
    Row("cvt", f"{_FRND} ?ftz ?sat d=f16|bf16 s=f64|f16|bf16", "d s", "cvt_float", D_ + "cvt"),
    Row("cvt", f"{_FRND} ?ftz ?relu ?sat d=f16|bf16 s=f32", "d s", "cvt_float", D_ + "cvt"),
    Row("cvt", "frnd=rn|rz ?relu satfinite d=f16|bf16 s=f32", "d s", "cvt_float", D_ + "cvt"),
    Row("cvt", "frnd=rn|rz ?relu ?sat d=f16x2|bf16x2 s=f32", "d s s", "cvt_pack", D_ + "cvt"),
    Row(
        "cvt",
        "frnd=rn|rz ?relu satfinite d=f16x2|bf16x2 s=f32",
        "d s s",
        "cvt_pack",
        D_ + "cvt",
    ),
    Row("cvt", "rna ?satfinite d=tf32 s=f32", "d s", "cvt_tf32", D_ + "cvt"),
    Row("cvt", "frnd=rn|rz ?satfinite ?relu d=tf32 s=f32", "d s", "cvt_tf32", D_ + "cvt"),
    Row("cvt", f"rn satfinite ?relu d={_FP8} s=f32", "d s s", "cvt_to_fp8", D_ + "cvt"),
    Row("cvt", f"rn satfinite ?relu d={_FP8} s=f16x2", "d s", "cvt_to_fp8", D_ + "cvt"),
    Row("cvt", f"rn ?relu d=f16x2 s={_FP8}", "d s", "cvt_from_fp8", D_ + "cvt"),
    Row("cvt", "pack sat d=u16|s16 s=s32", "d s s", "cvt_pack_integers", D_ + "cvt-pack"),
    Row(
        "cvt",
        "pack sat d=u2|s2|u4|s4|u8|s8 s=s32 c=b32",
        "d s s s",
        "cvt_pack_integers",
        D_ + "cvt-pack",
    ),
)
ROWS: Final = COMPARE + LOGIC + MEMORY + CONVERT
