"""Conversions to and from the types that only matrix instructions compute with: tf32 and fp8."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rgpu_emu.lower.registry import lowers

if TYPE_CHECKING:
    from rgpu_emu.lower.emit import FunctionEmitter
    from rgpu_emu.ptx.operands import Instr

_MAGNITUDE: Final = 0x7FFFFFFF
_INFINITY: Final = 0x7F800000
_TF32_MASK: Final = 0xFFFFE000
_TF32_MOST: Final = 0x7F7FE000
_NAN: Final = 0x7FFFFFFF
_QUIET: Final = 0x00400000  # the bit of a float that makes a NaN quiet


@dataclass(frozen=True)
class Narrow:
    """An 8-bit format. `most`: its greatest number, as bits of a float."""

    mantissa: int
    bias: int
    most: int

    @property
    def least_normal(self) -> int:
        """The smallest normal number, as bits of a float."""
        return (127 - self.bias + 1) << 23

    @property
    def step(self) -> int:
        """A power of two in whose floats the last bit is the format's smallest number."""
        return (127 - self.bias + 1 - self.mantissa + 23) << 23


_FORMATS: Final = {"e4m3x2": Narrow(3, 7, 0x43E00000), "e5m2x2": Narrow(2, 15, 0x47600000)}


def _select(e: FunctionEmitter, condition: str, kind: str, yes: str, no: str) -> str:
    return e.op(f"select i1 {condition}, {kind} {yes}, {kind} {no}")


@lowers("cvt_tf32")
def cvt_tf32(e: FunctionEmitter, i: Instr) -> None:
    """Emits the rounding of a float to the 19 upper bits. The others become zero.

    The manual leaves open which NaN a NaN becomes. `.rna` alone keeps its sign and its upper bits,
    as an H100 does, and makes it quiet.
    """
    form, bits = i.form, e.read(i.operands[1], "i32")
    kept = str(_NAN)
    if form.has("rna") and not form.has("satfinite"):
        kept = e.op(f"or i32 {e.op(f'and i32 {bits}, {_TF32_MASK}')}, {_QUIET}")
    size = e.op(f"and i32 {bits}, {_MAGNITUDE}")
    nan = e.op(f"icmp ugt i32 {size}, {_INFINITY}")
    infinite = e.op(f"icmp eq i32 {size}, {_INFINITY}")
    if form.has("rna"):
        size = e.op(f"add i32 {size}, {1 << 12}")
    elif form.get("frnd") == "rn":
        odd = e.op(f"and i32 {e.op(f'lshr i32 {size}, 13')}, 1")
        size = e.op(f"add i32 {e.op(f'add i32 {size}, {(1 << 12) - 1}')}, {odd}")
    size = e.op(f"and i32 {size}, {_TF32_MASK}")
    size = _select(e, infinite, "i32", str(_INFINITY), size)
    if form.has("satfinite"):
        over = e.op(f"icmp uge i32 {size}, {_INFINITY}")
        size = _select(e, over, "i32", str(_TF32_MOST), size)
    sign = e.op(f"and i32 {bits}, {1 << 31}")
    value = e.op(f"or i32 {size}, {sign}")
    if form.has("relu"):
        value = _select(e, e.op(f"icmp ne i32 {sign}, 0"), "i32", "0", value)
    e.write(i.operands[0], _select(e, nan, "i32", kept, value), "i32")


def _eight(e: FunctionEmitter, bits: str, kind: Narrow, *, relu: bool) -> str:
    """Returns the bits of a float as i8, rounded to nearest even and limited to the format."""
    size = e.op(f"and i32 {bits}, {_MAGNITUDE}")
    nan = e.op(f"icmp ugt i32 {size}, {_INFINITY}")
    over = e.op(f"icmp ugt i32 {size}, {kind.most}")
    size = _select(e, over, "i32", str(kind.most), size)
    shift = 23 - kind.mantissa
    odd = e.op(f"and i32 {e.op(f'lshr i32 {size}, {shift}')}, 1")
    up = e.op(f"add i32 {e.op(f'add i32 {size}, {(1 << shift - 1) - 1}')}, {odd}")
    normal = e.op(f"lshr i32 {up}, {shift}")
    normal = e.op(f"sub i32 {normal}, {(127 - kind.bias) << kind.mantissa}")
    number = e.op(f"bitcast i32 {size} to float")
    step = e.op(f"bitcast i32 {kind.step} to float")
    tiny = e.op(f"bitcast float {e.op(f'fadd float {number}, {step}')} to i32")
    tiny = e.op(f"sub i32 {tiny}, {kind.step}")
    small = e.op(f"icmp ult i32 {size}, {kind.least_normal}")
    value = _select(e, small, "i32", tiny, normal)
    sign = e.op(f"and i32 {e.op(f'lshr i32 {bits}, 24')}, 128")
    value = e.op(f"or i32 {value}, {sign}")
    if relu:
        value = _select(e, e.op(f"icmp ne i32 {sign}, 0"), "i32", "0", value)
    return e.op(f"trunc i32 {_select(e, nan, 'i32', '127', value)} to i8")


@lowers("cvt_to_fp8")
def cvt_to_fp8(e: FunctionEmitter, i: Instr) -> None:
    """Emits the conversion of two floats, or of a pair of halves, to a pair of 8-bit floats."""
    kind, relu = _FORMATS[i.form.get("d")], i.form.has("relu")
    if i.form.get("s") == "f32":
        high, low = (e.read(operand, "i32") for operand in i.operands[1:])
    else:
        pair = e.op(f"bitcast i32 {e.read(i.operands[1], 'i32')} to <2 x half>")
        both = [e.op(f"extractelement <2 x half> {pair}, i32 {n}") for n in (1, 0)]
        high, low = (
            e.op(f"bitcast float {e.op(f'fpext half {half} to float')} to i32") for half in both
        )
    bytes_ = [_eight(e, bits, kind, relu=relu) for bits in (high, low)]
    upper, lower = (e.op(f"zext i8 {byte} to i16") for byte in bytes_)
    e.write(i.operands[0], e.op(f"or i16 {e.op(f'shl i16 {upper}, 8')}, {lower}"), "i16")


@lowers("cvt_from_fp8")
def cvt_from_fp8(e: FunctionEmitter, i: Instr) -> None:
    """Emits the conversion of a pair of 8-bit floats to halves, which is exact."""
    source, relu = e.read(i.operands[1], "i16"), i.form.has("relu")
    halves = []
    for shift in (0, 8):
        byte = e.op(f"and i16 {e.op(f'lshr i16 {source}, {shift}')}, 255")
        bits = _half_of(e, byte, i.form.get("s"))
        if relu:
            nan = e.op(f"icmp ugt i16 {e.op(f'and i16 {bits}, 32767')}, {0x7C00}")
            negative = e.op(f"icmp ne i16 {e.op(f'and i16 {byte}, 128')}, 0")
            bits = _select(e, negative, "i16", "0", bits)
            bits = _select(e, nan, "i16", str(0x7FFF), bits)
        halves.append(e.op(f"zext i16 {bits} to i32"))
    e.write(i.operands[0], e.op(f"or i32 {e.op(f'shl i32 {halves[1]}, 16')}, {halves[0]}"), "i32")


def _half_of(e: FunctionEmitter, byte: str, kind: str) -> str:
    """Returns the bits of a half: e5m2 is its upper byte, e4m3 a float with a smaller exponent."""
    if kind == "e5m2x2":
        half = e.op(f"shl i16 {byte}, 8")
        nan = e.op(f"icmp ugt i16 {e.op(f'and i16 {half}, 32767')}, {0x7C00}")
        return _select(e, nan, "i16", str(0x7FFF), half)
    size = e.op(f"zext i16 {e.op(f'and i16 {byte}, 127')} to i32")
    number = e.op(f"bitcast i32 {e.op(f'shl i32 {size}, 20')} to float")
    scale = e.op(f"bitcast i32 {(127 + 120) << 23} to float")
    number = e.op(f"fmul float {number}, {scale}")
    half = e.op(f"bitcast half {e.op(f'fptrunc float {number} to half')} to i16")
    sign = e.op(f"shl i16 {e.op(f'and i16 {byte}, 128')}, 8")
    nan = e.op(f"icmp eq i32 {size}, 127")
    return _select(e, nan, "i16", str(0x7FFF), e.op(f"or i16 {half}, {sign}"))
