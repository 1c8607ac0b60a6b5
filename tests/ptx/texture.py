"""Textures and surfaces for the reference runner: the device's own sampler, compiled for the tests, and objects whose
texels lie in the runner's arena."""

from __future__ import annotations

import atexit
import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from ptx.harness import Arena, Kernel

Array = npt.NDArray[Any]
HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FLAGS = ["-std=c++20", "-O0", "-shared", "-fPIC", "-Wall", "-Wextra", "-Wconversion", "-Werror"]
CHECKS = ["-fsanitize=undefined,float-cast-overflow", "-fno-sanitize-recover=all"]
MAX_LEVELS = 18
SHAPES = ("buffer", "1d", "a1d", "2d", "a2d", "3d", "cube", "acube")
TYPES = (
    "u8", "u16", "u32", "s8", "s16", "s32", "f16", "f32", "unorm1010102", "bc1", "bc2", "bc3", "bc4u", "bc4s", "bc5u",
    "bc5s", "bc6hu", "bc6hs", "bc7",
)  # fmt: skip
MODES = ("wrap", "clamp", "mirror", "border")
FAULTS = {-10: 700, -11: 700, -12: 700, -13: 700, -14: 716, -15: 719}


class Level(ctypes.Structure):
    _fields_ = (
        ("offset", ctypes.c_uint64), ("row_pitch", ctypes.c_uint64), ("slice_pitch", ctypes.c_uint64),
        ("width", ctypes.c_uint32), ("height", ctypes.c_uint32), ("depth", ctypes.c_uint32),
    )  # fmt: skip


class State(ctypes.Structure):
    """TextureState of device/exec/texture.h."""

    _fields_ = (
        ("object", ctypes.c_uint64), ("base", ctypes.c_uint64), ("bytes", ctypes.c_uint64),
        ("shape", ctypes.c_uint8), ("type", ctypes.c_uint8), ("channels", ctypes.c_uint8),
        ("texel_bytes", ctypes.c_uint8), ("level_count", ctypes.c_uint32), ("layers", ctypes.c_uint32),
        ("levels", Level * MAX_LEVELS), ("surface", ctypes.c_bool), ("normalized_float", ctypes.c_bool),
        ("normalized_coordinates", ctypes.c_bool), ("srgb", ctypes.c_bool), ("linear_filter", ctypes.c_bool),
        ("linear_mip_filter", ctypes.c_bool), ("seamless_cubemap", ctypes.c_bool),
        ("trilinear_optimization", ctypes.c_bool), ("address", ctypes.c_uint8 * 3), ("border", ctypes.c_float * 4),
        ("level_bias", ctypes.c_float), ("min_level", ctypes.c_float), ("max_level", ctypes.c_float),
        ("max_anisotropy", ctypes.c_uint32),
    )  # fmt: skip


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    folder = tempfile.mkdtemp(prefix="rgpu-sampler-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    assert compiler, "no C++ compiler: install g++ ('apt-get install g++')"
    output = Path(folder) / "sampler.so"
    base = [compiler, *FLAGS, f"-I{ROOT}", str(HERE / "texture_host.cc"), "-o", str(output)]
    # Some distributions ship the compiler without the sanitizers' libraries.
    if subprocess.run([*base, *CHECKS], check=False, capture_output=True).returncode:
        subprocess.run(base, check=True)
    loaded = ctypes.CDLL(str(output))
    loaded.Publish.restype = loaded.StateBytes.restype = ctypes.c_uint64
    loaded.Publish.argtypes = [ctypes.POINTER(State)]
    loaded.Withdraw.argtypes = [ctypes.c_uint64]
    loaded.Run.argtypes = [ctypes.c_void_p]
    assert loaded.StateBytes() == ctypes.sizeof(State)
    return loaded


def run_call(call: int) -> int:
    """Runs the TextureCall at an address; returns the CUresult with which the launch ends, or 0."""
    code = int(library().Run(call))
    return FAULTS[code] if code else 0


@dataclass
class Texture:
    """A texture or surface.

    levels: the texels of each level as [layer or slice, row, column, channel]; of compressed types as
    [layer, row of blocks, column of blocks, byte], with the extent in texels in `extents`.
    """

    shape: str
    kind: str
    levels: Sequence[Array]
    extents: Sequence[tuple[int, int, int]] = ()
    surface: bool = False
    normalized_float: bool = False
    normalized: bool = False
    srgb: bool = False
    linear: bool = False
    linear_mip: bool = False
    seamless: bool = False
    address: tuple[str, str, str] = ("clamp", "clamp", "clamp")
    border: tuple[float, float, float, float] = (0, 0, 0, 0)
    bias: float = 0
    bounds: tuple[float, float] = (0, 100)
    anisotropy: int = 0
    pad: int = 32
    _places: list[tuple[int, int, int]] = field(default_factory=list)

    def extent(self, level: int) -> tuple[int, int, int]:
        """Width, height and depth."""
        if self.extents:
            return self.extents[level]
        slices, rows, columns, _ = self.levels[level].shape
        return columns, rows, slices if self.shape == "3d" else 1

    @property
    def layers(self) -> int:
        return 1 if self.shape == "3d" else int(self.levels[0].shape[0])

    def _state(self) -> State:
        data = self.levels[0]
        channels = int(data.shape[3])
        state = State(
            shape=SHAPES.index(self.shape), type=TYPES.index(self.kind), channels=channels,
            texel_bytes=channels * data.itemsize, level_count=len(self.levels), layers=self.layers,
            surface=self.surface, normalized_float=self.normalized_float, normalized_coordinates=self.normalized,
            srgb=self.srgb, linear_filter=self.linear, linear_mip_filter=self.linear_mip,
            seamless_cubemap=self.seamless, level_bias=self.bias, min_level=self.bounds[0],
            max_level=self.bounds[1], max_anisotropy=self.anisotropy,
        )  # fmt: skip
        if self.kind == "unorm1010102":
            state.channels, state.texel_bytes = 4, 4
        elif self.kind.startswith("bc"):
            state.channels = {"bc4": 1, "bc5": 2, "bc6": 3}.get(self.kind[:3], 4)
            state.texel_bytes = channels
        for axis, mode in enumerate(self.address):
            state.address[axis] = MODES.index(mode)
        state.border[:] = self.border
        return state

    def place(self, arena: Arena) -> int:
        """Puts the texels into an arena, with gaps between rows and slices; returns the object."""
        state = self._state()
        rows = []
        for number, level in enumerate(self.levels):
            slices, height, width, _ = level.shape
            pitch = width * state.texel_bytes + self.pad
            raw = np.full((slices, height, pitch), 0xA5, np.uint8)
            raw[:, :, : pitch - self.pad] = (
                np.ascontiguousarray(level).view(np.uint8).reshape(slices, height, -1)
            )
            at = arena.put(raw)
            rows.append((at, pitch, pitch * height))
            columns, lines, depth = self.extent(number)
            state.levels[number] = Level(0, pitch, pitch * height, columns, lines, depth)
        state.base = rows[0][0]
        for number, (at, _, _) in enumerate(rows):
            state.levels[number].offset = at - state.base
        state.bytes = arena.base + arena.top - state.base
        self._places = rows
        return int(library().Publish(ctypes.byref(state)))

    def texels(self, arena: Arena, level: int = 0) -> Array:
        """The texels as they are now."""
        at, pitch, _ = self._places[level]
        like = self.levels[level]
        raw = arena.get(at, np.zeros((like.shape[0], like.shape[1], pitch), np.uint8))
        kept = np.ascontiguousarray(raw[:, :, : pitch - self.pad])
        assert (raw[:, :, pitch - self.pad :] == 0xA5).all(), (
            "something was written between the rows"
        )
        return kept.view(like.dtype).reshape(like.shape)


HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"


def entry(instruction: str, words: int, results: int) -> str:
    """A kernel in which each thread runs an instruction. The words of a thread are in %w0.., its results in %x0..

    The object is %t; doubles of the words are in %q0..
    """
    loads = "".join(f"ld.global.b32 %w{n}, [%in+{4 * n}];" for n in range(words))
    stores = "".join(f"st.global.b32 [%out+{4 * n}], %x{n};" for n in range(results))
    return f"""{HEAD}
.visible .entry k(.param .u64 object, .param .u64 in, .param .u64 out)
{{
.reg .b64 %t, %in, %out, %at, %q<8>; .reg .b32 %i, %w<16>, %x<16>; .reg .b16 %h<8>; .reg .pred %p<4>;
ld.param.u64 %t, [object]; ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; mov.u32 %i, %tid.x;
mad.lo.u32 %i, %ctaid.x, 32, %i;
mul.wide.u32 %at, %i, {4 * words}; add.u64 %in, %in, %at;
mul.wide.u32 %at, %i, {4 * results}; add.u64 %out, %out, %at;
{loads}
{instruction}
{stores}
ret;
}}
"""


@cache
def _kernel(instruction: str, words: int, results: int) -> Kernel:
    return Kernel(entry(instruction, words, results))


def execute(instruction: str, texture: Texture, words: Array, results: int = 4) -> Array:
    """Runs the instruction once for each row of `words`; returns the words of the results."""
    count = -(-len(words) // 32) * 32
    given = np.zeros((count, words.shape[1]), np.uint32)
    given[: len(words)] = np.ascontiguousarray(words).view(np.uint32)
    made = _kernel(instruction, words.shape[1], results)
    made.arena = Arena()
    handle = texture.place(made.arena)
    out = np.zeros((count, results), np.uint32)
    at = made.arena.put(out)
    made.launch(
        (count // 32,), (32,), np.uint64(handle), np.uint64(made.arena.put(given)), np.uint64(at)
    )
    library().Withdraw(handle)
    return made.arena.get(at, out)[: len(words)]


def result_of(instruction: str, handle: int, words: Array, arena: Arena | None = None) -> int:
    """The CUresult of one thread that runs the instruction."""
    made = _kernel(instruction, words.size, 4)
    made.arena = arena or made.arena
    out = made.arena.put(np.zeros(64, np.uint32))
    return made.launch_in_child(
        (1,),
        (1,),
        np.uint64(handle),
        np.uint64(made.arena.put(words.view(np.uint32))),
        np.uint64(out),
    )
