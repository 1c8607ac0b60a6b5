"""Block-compressed textures: BC1 to BC5 against their formulas in NumPy, BC6H and BC7 against recorded digests."""

from __future__ import annotations

import ctypes
import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from ptx.texture import TYPES, Texture, execute, library

Array = npt.NDArray[Any]
BYTES = {"bc1": 8, "bc4u": 8, "bc4s": 8}
SIZE = (10, 7)  # texels: 3 x 2 blocks


def random_blocks(kind: str, count: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).integers(0, 256, (count, BYTES.get(kind, 16)), np.uint8)


def number(block: Array) -> int:
    return int.from_bytes(block.tobytes(), "little")


def colours(block: Array, *, transparent: bool) -> Array:
    """The colour half of BC1 to BC3, as [texel, channel]."""
    bits = number(block)
    ends = [bits & 0xFFFF, bits >> 16 & 0xFFFF]
    a, b = (np.array([(e >> 11) / 31, (e >> 5 & 63) / 63, (e & 31) / 31]) for e in ends)
    table = np.ones((4, 4))
    table[:, :3] = [a, b, (2 * a + b) / 3, (a + 2 * b) / 3]
    if transparent and ends[0] <= ends[1]:
        table[2, :3], table[3] = (a + b) / 2, 0
    return table[[bits >> 32 + 2 * n & 3 for n in range(16)]]


def channel(block: Array, *, signed: bool) -> Array:
    """BC4's channel, and BC3's alpha."""
    bits, most = number(block), 127 if signed else 255
    ends = [max(int(np.int8(v.view(np.int8))), -127) if signed else int(v) for v in block[:2]]
    a, b = (e / most for e in ends)
    if ends[0] > ends[1]:
        table = [a, b, *(((7 - n) * a + n * b) / 7 for n in range(1, 7))]
    else:
        table = [
            a,
            b,
            *(((5 - n) * a + n * b) / 5 for n in range(1, 5)),
            -1.0 if signed else 0.0,
            1.0,
        ]
    return np.array([table[bits >> 16 + 3 * n & 7] for n in range(16)])


def decode(kind: str, block: Array) -> Array:
    """One block as [texel, channel]."""
    out = np.zeros((16, 4))
    out[:, 3] = 1
    if kind == "bc1":
        return colours(block, transparent=True)
    if kind in ("bc2", "bc3"):
        out = colours(block[8:], transparent=False)
        alpha = np.array([(number(block[:8]) >> 4 * n & 15) / 15 for n in range(16)])
        out[:, 3] = alpha if kind == "bc2" else channel(block[:8], signed=False)
        return out
    for n in range(1 if kind.startswith("bc4") else 2):
        out[:, n] = channel(block[8 * n : 8 * n + 8], signed=kind.endswith("s"))
    return out


def by_device(kind: str, blocks: Array) -> Array:
    """The device's own decoder: [block, texel, channel]."""
    out = np.zeros((len(blocks), 16, 4), np.float32)
    for block, texels in zip(np.ascontiguousarray(blocks), out, strict=True):
        library().ReadBlock(
            TYPES.index(kind),
            ctypes.c_void_p(block.ctypes.data),
            ctypes.c_void_p(texels.ctypes.data),
        )
    return out


def texture(kind: str, blocks: Array, **options: Any) -> Texture:
    return Texture(
        "2d",
        kind,
        [blocks.reshape(1, 2, 3, -1)],
        extents=[(*SIZE, 1)],
        normalized_float=True,
        **options,
    )


def whole(kind: str, decoded: Array) -> Array:
    """The texels of the texture's blocks as [row, column, channel]."""
    rows = decoded.reshape(2, 3, 4, 4, 4).transpose(0, 2, 1, 3, 4).reshape(8, 12, 4)
    return rows[: SIZE[1], : SIZE[0]]


READ = "tex.2d.v4.f32.f32 {%x0, %x1, %x2, %x3}, [%t, {%w0, %w1}];"


@pytest.mark.parametrize("kind", ["bc1", "bc2", "bc3", "bc4u", "bc4s", "bc5u", "bc5s"])
def test_texels(kind: str) -> None:
    for seed in range(6):
        blocks = random_blocks(kind, 6, seed)
        want = whole(kind, np.stack([decode(kind, block) for block in blocks]))
        rows, columns = np.mgrid[: SIZE[1], : SIZE[0]]
        at = np.stack([columns.ravel() + 0.5, rows.ravel() + 0.5], 1).astype(np.float32)
        got = execute(READ, texture(kind, blocks), at).view(np.float32)
        np.testing.assert_allclose(got, want.reshape(-1, 4), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("kind", ["bc3", "bc6hs", "bc7"])
def test_filters_read_over_blocks(kind: str) -> None:
    """The middle between four texels of four blocks is their mean."""
    blocks = random_blocks(kind, 6, 3)
    if kind != "bc3":
        blocks[:, 0] = 3 if kind == "bc6hs" else 64
    texels = whole(kind, by_device(kind, blocks))
    got = execute(READ, texture(kind, blocks, linear=True), np.array([[4, 4]], np.float32))[0].view(
        np.float32
    )
    want = texels[3:5, 3:5].astype(np.float64).mean((0, 1))
    np.testing.assert_allclose(got, want, rtol=1e-6)


# SHA-256 of 256 random blocks of a mode as floats.  When they were recorded, Pillow 13.0 decoded the same blocks to the
# same 8 bits: all of BC7's modes, and BC6H's within the rounding of its interpolation, which Pillow cuts off (of the
# signed modes only those without differences, because Pillow does not extend the sign of a sum).
BC7_MODES = range(8)
BC6_MODES = (0, 1, 2, 6, 10, 14, 18, 22, 26, 30, 3, 7, 11, 15)
DIGESTS: dict[tuple[str, int], str] = {
    ("bc7", 0): "e3d3cc865128d4b0", ("bc7", 1): "e96220664a2bfba4", ("bc7", 2): "b325c4c872f10ce1",
    ("bc7", 3): "c5f37660918df548", ("bc7", 4): "645bc07e1c0447c1", ("bc7", 5): "0e5e9416b0c78a7e",
    ("bc7", 6): "f18d6b10271be33b", ("bc7", 7): "c14cee6ee01f25c2", ("bc6hu", 0): "5e88d0b82722d207",
    ("bc6hu", 1): "85e2e9a1d401c0ab", ("bc6hu", 2): "57fd59623772c0c0", ("bc6hu", 6): "73da9ea452a1348a",
    ("bc6hu", 10): "ab89789e70f34895", ("bc6hu", 14): "e06a4e1097550e2b", ("bc6hu", 18): "e3986779e689cf4d",
    ("bc6hu", 22): "3ae0f2b387f74083", ("bc6hu", 26): "d68690c0f78108ad", ("bc6hu", 30): "9c5eca5398749fef",
    ("bc6hu", 3): "1f3eb9683505fec2", ("bc6hu", 7): "24275f73a427ad42", ("bc6hu", 11): "4902a65d8da71dc0",
    ("bc6hu", 15): "7ce96e07a198d32a", ("bc6hs", 0): "5b4fb66d6f5400fa", ("bc6hs", 1): "b431d9354fb79f57",
    ("bc6hs", 2): "9e235d840cc3fc8e", ("bc6hs", 6): "27de024971073912", ("bc6hs", 10): "c3c5c9f78a965763",
    ("bc6hs", 14): "83295a7828353e89", ("bc6hs", 18): "c17531a78c94eb82", ("bc6hs", 22): "42211e8b20b86beb",
    ("bc6hs", 26): "a39690f5c2297982", ("bc6hs", 30): "4476f6c6a1198d3a", ("bc6hs", 3): "20adb41c089249cd",
    ("bc6hs", 7): "ab16f3bb41efc20a", ("bc6hs", 11): "1eaa0e4de74d739b", ("bc6hs", 15): "9e9ffbb5e0de2506",
}  # fmt: skip


def mode_blocks(kind: str, mode: int) -> Array:
    blocks = random_blocks(kind, 256, mode + 40)
    mask, code = (
        ((1 << mode + 1) - 1, 1 << mode) if kind == "bc7" else (3 if mode < 2 else 31, mode)
    )
    blocks[:, 0] = (blocks[:, 0].astype(int) & ~mask & 255) | code
    return blocks


def digest(kind: str, mode: int) -> str:
    return hashlib.sha256(by_device(kind, mode_blocks(kind, mode)).tobytes()).hexdigest()[:16]


@pytest.mark.parametrize(("kind", "mode"), DIGESTS)
def test_modes(kind: str, mode: int) -> None:
    assert digest(kind, mode) == DIGESTS[kind, mode]


def test_every_mode_has_a_digest() -> None:
    want = {("bc7", m) for m in BC7_MODES} | {(k, m) for k in ("bc6hu", "bc6hs") for m in BC6_MODES}
    assert set(DIGESTS) == want


@pytest.mark.parametrize("signed", [False, True])
def test_ends_of_ten_bits(signed: bool) -> None:
    """BC6H's mode 3 has both ends as they are: 0, halfway and the greatest half by the specification's formulas."""
    kind = "bc6hs" if signed else "bc6hu"
    most = 511 if signed else 1023

    def block(ends: list[int], index: int) -> int:
        value, at = 3, 5
        for end in ends:
            value |= (end & 1023) << at
            at += 10
        value |= (index & 7) << at
        at += 3
        for _ in range(15):
            value |= index << at
            at += 4
        return value

    ends = [0, 0, 0, most, 200, -most if signed else 77]
    for index, weight in ((0, 0), (7, 30), (6, 26)):
        raw = np.frombuffer(block(ends, index).to_bytes(16, "little"), np.uint8).reshape(1, 16)
        for n in range(3):
            e = abs(ends[3 + n])
            full = 0x7FFF if signed else 0xFFFF
            wide = full if e == most else (e << 15) + 0x4000 >> 9
            value = (weight * wide * (-1 if ends[3 + n] < 0 else 1) + 32) >> 6
            half = abs(value) * 31 >> (5 if signed else 6)
            want = float(np.uint16(half).view(np.float16)) * (-1 if value < 0 else 1)
            assert by_device(kind, raw)[0, 5, n] == want


@pytest.mark.parametrize(
    ("kind", "first", "alpha"), [("bc7", 0, 0.0), ("bc6hu", 19, 1.0), ("bc6hs", 31, 1.0)]
)
def test_reserved_modes_are_black(kind: str, first: int, alpha: float) -> None:
    blocks = random_blocks(kind, 1)
    blocks[0, 0] = first
    assert by_device(kind, blocks)[0].tolist() == [[0, 0, 0, alpha]] * 16
