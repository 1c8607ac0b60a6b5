"""Kernels that read and write arrays and linear memory through objects, against NumPy: for tests in
process and over the wire.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_size_t, c_uint64, c_void_p
from typing import Any

import numpy as np

from helpers import boxes, textures
from helpers.boxes import F32, LAYERED, SURFACE, U8, U16, U32, Box, shape
from helpers.maps import Driver
from helpers.textures import (
    AS_INTEGER,
    IN_MIPMAPPED_ARRAY,
    LINEAR_FILTER,
    NORMALIZED,
    Kernels,
    View,
)

Pixels = np.ndarray[Any, Any]


def fill(driver: Driver, array: int, data: Pixels) -> None:
    """Writes an array: `data` is slices, rows, columns and channels."""
    slices, rows = data.shape[:2]
    row_bytes = data.nbytes // (slices * rows)
    box = Box(width=row_bytes, height=rows, depth=slices, srctype=1, dsttype=3, dstarray=array)
    box.srcpitch, box.srcrows = row_bytes, rows
    held = data.tobytes()
    box.srchost = ctypes.cast(held, c_void_p)
    driver("cuMemcpy3D_v2", byref(box))


def contents(driver: Driver, array: int, like: Pixels) -> Pixels:
    """What an array holds."""
    slices, rows = like.shape[:2]
    row_bytes = like.nbytes // (slices * rows)
    box = Box(width=row_bytes, height=rows, depth=slices, srctype=3, dsttype=1, srcarray=array)
    buffer = ctypes.create_string_buffer(like.nbytes)
    box.dsthost, box.dstpitch, box.dstrows = ctypes.addressof(buffer), row_bytes, rows
    driver("cuMemcpy3D_v2", byref(box))
    return np.frombuffer(buffer.raw, like.dtype).reshape(like.shape)


def upload(driver: Driver, data: Pixels) -> int:
    address = c_uint64()
    driver("cuMemAlloc_v2", byref(address), c_size_t(data.nbytes))
    driver("cuMemcpyHtoD_v2", address, data.tobytes(), c_size_t(data.nbytes))
    return address.value


def words(raw: bytes, size: tuple[int, int, int]) -> Pixels:
    width, height, depth = size
    return np.frombuffer(raw, np.uint32).reshape(depth, height, width, 4)


def read_everything(driver: Driver) -> None:
    """Every texel of every kind of resource, exactly."""
    rng, run = np.random.default_rng(1), Kernels(driver)
    plain = textures.texture()
    colors = rng.integers(0, 256, (1, 6, 11, 4), np.uint8)
    flat = boxes.create(driver, shape(11, 6, channels=4))
    fill(driver, flat, colors)
    made = textures.create(driver, textures.in_array(flat), plain)
    size = (11, 6, 1)
    assert (words(run.read("words_2d", made, size), size) == colors).all()
    assert words(run.read("size", made, (1, 1, 1)), (1, 1, 1)).tolist() == [[[[11, 6, 1, 0]]]]
    holder = upload(driver, np.array([made], np.uint64))
    got = words(run.read("words_2d_from_memory", holder, size), size)
    assert (got == colors).all(), "the value of an object in memory"

    volume = rng.integers(0, 1 << 16, (4, 6, 5, 2), np.uint16)
    cube = boxes.create(driver, shape(5, 6, 4, format=U16, channels=2))
    fill(driver, cube, volume)
    size = (5, 6, 4)
    made = textures.create(driver, textures.in_array(cube), plain)
    assert (words(run.read("words_3d", made, size), size)[..., :2] == volume).all()

    layers = rng.integers(0, 1 << 32, (4, 6, 5, 1), np.uint32)
    stack = boxes.create(driver, shape(5, 6, 4, format=U32, flags=LAYERED))
    fill(driver, stack, layers)
    made = textures.create(driver, textures.in_array(stack), plain)
    assert (words(run.read("words_layers", made, size), size)[..., :1] == layers).all()
    view = View(format=13, width=5, height=6, first_layer=1, last_layer=2)
    made = textures.create(driver, textures.in_array(stack), plain, view)
    size = (5, 6, 2)
    assert (words(run.read("words_layers", made, size), size)[..., :1] == layers[1:3]).all()

    line = rng.integers(0, 1 << 32, (1, 1, 100, 1), np.uint32)
    buffer = textures.linear(upload(driver, line), line.nbytes, U32)
    size = (100, 1, 1)
    made = textures.create(driver, buffer, plain)
    assert (words(run.read("words_1d", made, size), size)[..., :1] == line).all()

    rows = rng.integers(0, 256, (1, 7, 64, 4), np.uint8)
    plane = textures.pitched(upload(driver, rows), (13, 7, 256), U8, 4)
    size = (13, 7, 1)
    made = textures.create(driver, plane, plain)
    assert (words(run.read("words_2d", made, size), size) == rows[:, :, :13]).all()


def read_levels(driver: Driver) -> None:
    rng, run = np.random.default_rng(2), Kernels(driver)
    mipmapped = boxes.create_mipmapped(driver, shape(16, 8, format=U32), 4)
    data = []
    for number in range(4):
        texels = rng.integers(0, 1 << 32, (1, 8 >> number, 16 >> number, 1), np.uint32)
        fill(driver, boxes.level(driver, mipmapped, number), texels)
        data.append(texels)
    resource = textures.in_array(mipmapped, IN_MIPMAPPED_ARRAY)
    wanted = textures.texture(NORMALIZED | AS_INTEGER, most=10)
    made = textures.create(driver, resource, wanted)
    view = View(format=13, width=16, height=8, first_level=1, last_level=3)
    part = textures.create(driver, resource, wanted, view)
    for number in range(4):
        size = (16 >> number, 8 >> number, 4)
        got = words(run.read("words_level", made, size), size)
        assert (got[number, ..., :1] == data[number][0]).all(), number
        if number > 0:
            got = words(run.read("words_level", part, size), size)
            assert (got[number - 1, ..., :1] == data[number][0]).all(), "levels of a view"


def read_filtered(driver: Driver) -> None:
    """A linear filter between texels whose values are known, and integers that become floats."""
    run = Kernels(driver)
    rng = np.random.default_rng(3)
    texels = rng.random((1, 8, 8, 1), np.float32)
    array = boxes.create(driver, shape(8, 8, format=F32))
    fill(driver, array, texels)
    made = textures.create(
        driver, textures.in_array(array), textures.texture(0, filter=LINEAR_FILTER)
    )
    size = (8, 8, 1)
    got = np.frombuffer(run.read("floats_2d", made, size), np.float32).reshape(8, 8, 4)
    assert np.allclose(got[..., 0], texels[0, ..., 0]), "at the centres of texels"
    colors = rng.integers(0, 256, (1, 8, 8, 4), np.uint8)
    bytes_ = boxes.create(driver, shape(8, 8, channels=4))
    fill(driver, bytes_, colors)
    made = textures.create(driver, textures.in_array(bytes_), textures.texture(0))
    got = np.frombuffer(run.read("floats_2d", made, size), np.float32).reshape(8, 8, 4)
    assert np.allclose(got, colors[0] / 255)


def write_surfaces(driver: Driver) -> None:
    rng, run = np.random.default_rng(4), Kernels(driver)
    data = rng.integers(0, 1 << 31, (1, 6, 9, 1), np.uint32)
    array = boxes.create(driver, shape(9, 6, format=U32, flags=SURFACE))
    fill(driver, array, data)
    status, made = textures.surface(driver, array)
    assert status == 0
    for rounds in range(1, 4):
        run.launch("bump", made, (9, 6, 1))
        assert (contents(driver, array, data) == data + rounds).all()
    texture = textures.create(driver, textures.in_array(array), textures.texture())
    size = (9, 6, 1)
    assert (words(run.read("words_2d", texture, size), size)[..., :1] == data + 3).all()
    mipmapped = boxes.create_mipmapped(driver, shape(18, 12, format=U32, flags=SURFACE), 3)
    level = boxes.level(driver, mipmapped, 1)
    fill(driver, level, data)
    _, made = textures.surface(driver, level)
    run.launch("bump", made, (9, 6, 1))
    assert (contents(driver, level, data) == data + 1).all()
