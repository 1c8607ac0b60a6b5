"""Conversions to and from tf32, e4m3 and e5m2, for all values at which rounding changes."""

from __future__ import annotations

import math
import struct
from itertools import pairwise

import numpy as np
import pytest
from ptx.matrix import decode
from ptx.program import run

TF32 = [
    *(f"cvt.rna{s}.tf32.f32" for s in ("", ".satfinite")),
    *(
        f"cvt.{r}{s}{n}.tf32.f32"
        for r in ("rn", "rz")
        for s in ("", ".satfinite")
        for n in ("", ".relu")
    ),
]
TO = [
    f"cvt.rn.satfinite{relu}.{kind}x2.{source}"
    for relu in ("", ".relu")
    for kind in ("e4m3", "e5m2")
    for source in ("f32", "f16x2")
]
FROM = [f"cvt.rn{relu}.f16x2.{kind}x2" for relu in ("", ".relu") for kind in ("e4m3", "e5m2")]
FORMS = [*TF32, *TO, *FROM]
SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, 1e38, -3e38, 1e-45]


def bits_of(value: float) -> int:
    return int(np.float32(value).view(np.uint32))


def value_of(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


def each(body: str, data: np.ndarray) -> np.ndarray:
    """Runs the body for each word of `data`, at most 1024; %r1 in, %r9 out."""
    load = "mul.wide.u32 %rd1, %tid, 4; add.u64 %rd2, %in, %rd1; ld.u32 %r1, [%rd2];"
    store = "add.u64 %rd3, %out, %rd1; st.u32 [%rd3], %r9;"
    count = len(data)
    return run(load + body + store, data, np.zeros(count, np.uint32), threads=count)


def numbers(count: int) -> np.ndarray:
    rng = np.random.default_rng(count)
    bits = rng.integers(0, 1 << 32, count, dtype=np.uint32)
    bits[: len(SPECIAL)] = [bits_of(v) for v in SPECIAL]
    ties = np.arange(len(SPECIAL), count // 2)  # halfway between two tf32, and beside
    bits[ties] = bits[ties] & 0xFFFFE000 | np.array([0x1000, 0x0FFF, 0x1001])[ties % 3]
    bits[-5:] = 0x7F7FFFFF, 0xFF7FF000, 0x7FFFFFFF, 0xFFC12345, 0xFF800001
    return bits


def as_tf32(bits: int, name: str) -> int:
    value, sign = value_of(bits), bits & 0x80000000
    if math.isnan(value):
        return bits & 0xFFFFE000 | 0x400000 if name == "cvt.rna.tf32.f32" else 0x7FFFFFFF
    low, size = bits & 0x1FFF, bits & 0x7FFFE000
    odd = size >> 13 & 1
    if not math.isinf(value):
        up = low >= 0x1000 if ".rna" in name else low > 0x1000 or (low == 0x1000 and odd)
        size += 0x2000 if up and ".rz" not in name else 0
    if ".satfinite" in name:
        size = min(size, 0x7F7FE000)
    return 0 if ".relu" in name and sign else size | sign


@pytest.mark.parametrize("name", TF32)
def test_rounds_to_tf32(name: str) -> None:
    data = numbers(600)
    got = each(f"{name} %r9, %r1;", data)
    for have, bits in zip(got.tolist(), data.tolist(), strict=True):
        assert have == as_tf32(bits, name), (name, hex(bits), hex(have))


def nearest(value: float, kind: str, *, relu: bool) -> int:
    """The nearest number of an 8-bit format by looking at all of them; even if two are as near."""
    if math.isnan(value):
        return 0x7F
    if relu and math.copysign(1, value) < 0:
        return 0
    most = 0x7E if kind == "e4m3" else 0x7B
    sign = 0x80 if math.copysign(1, value) < 0 else 0
    size = abs(value)
    if size >= float(decode(most, kind)):
        return most | sign
    return min(range(most + 1), key=lambda b: (abs(float(decode(b, kind)) - size), b & 1)) | sign


def near(kind: str) -> list[float]:
    """Numbers of a format, those halfway between two, and those just beside."""
    most = 0x7E if kind == "e4m3" else 0x7B
    grid = [float(decode(b, kind)) for b in range(most + 1)]
    middle = [(a + b) / 2 for a, b in pairwise(grid)]
    beside = [v * f for v in middle for f in (1 - 2**-9, 1 + 2**-9)]
    return SPECIAL + grid + middle + [-v for v in middle] + beside


@pytest.mark.parametrize("name", TO)
def test_rounds_to_eight_bits(name: str) -> None:
    kind = "e4m3" if "e4m3" in name else "e5m2"
    values = near(kind)[:1000]
    if name.endswith("f32"):
        data = np.array([bits_of(v) for v in values], np.uint32)
        body = f"mov.b32 %r2, 0f40000000; {name} %h1, %r1, %r2; {name} %h2, %r2, %r1; mov.b32 %r9, {{%h1, %h2}};"
        kept = [value_of(int(b)) for b in data]
    else:
        with np.errstate(over="ignore"):
            halves = np.array(values, np.float32).astype(np.float16)
        data = halves.view(np.uint16).astype(np.uint32) << 16 | 0x4000
        body = f"{name} %h1, %r1; prmt.b32 %r2, %r1, 0, 0x1032; {name} %h2, %r2; mov.b32 %r9, {{%h1, %h2}};"
        kept = [float(h) for h in halves]
    two = nearest(2.0, kind, relu=False)
    for have, value in zip(each(body, data).tolist(), kept, strict=True):
        want = nearest(value, kind, relu=".relu" in name)
        assert have == want << 8 | two | (two << 8 | want) << 16, (name, value, hex(have))


@pytest.mark.parametrize("name", FROM)
def test_eight_bits_are_halves_exactly(name: str) -> None:
    kind = "e4m3" if "e4m3" in name else "e5m2"
    data = np.arange(256, dtype=np.uint32) | 0x3800
    got = each(f"cvt.u16.u32 %h1, %r1; {name} %r9, %h1;", data)
    one = float(decode(0x38, kind))
    for byte, have in enumerate(got.tolist()):
        high, low = (float(np.uint16(have >> n & 0xFFFF).view(np.float16)) for n in (16, 0))
        assert high == one
        special = byte & 0x7F in (0x7F, *((0x7D, 0x7E) if kind == "e5m2" else ()))
        if special:
            assert have & 0xFFFF == 0x7FFF
        elif kind == "e5m2" and byte & 0x7F == 0x7C:
            assert low == (
                0 if byte >> 7 and ".relu" in name else math.copysign(math.inf, 127.5 - byte)
            )
        else:
            value = float(decode(byte, kind))
            assert low == (0.0 if ".relu" in name and byte >> 7 else value)
