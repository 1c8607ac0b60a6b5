"""Kernels with texture and surface objects in process, and objects that are gone or invented."""

from __future__ import annotations

import struct

from helpers import boxes, texture_checks, textures
from helpers.boxes import SURFACE, U32, shape
from helpers.textures import Kernels

from emu.device import Device, expect, on_device

ILLEGAL_ADDRESS = 700


@on_device()
def test_every_texel_of_every_resource(cuda: Device) -> None:
    cuda.open()
    texture_checks.read_everything(cuda)


@on_device()
def test_levels(cuda: Device) -> None:
    cuda.open()
    texture_checks.read_levels(cuda)


@on_device()
def test_filters(cuda: Device) -> None:
    cuda.open()
    texture_checks.read_filtered(cuda)


@on_device()
def test_surfaces(cuda: Device) -> None:
    cuda.open()
    texture_checks.write_surfaces(cuda)


def _ready(cuda: Device) -> tuple[Kernels, int, int]:
    """Kernels, an array and a texture of it."""
    cuda.open()
    array = boxes.create(cuda, shape(8, 8, format=U32, flags=SURFACE))
    return Kernels(cuda), array, textures.create(cuda, textures.in_array(array), textures.texture())


def _is_illegal(cuda: Device, run: Kernels, name: str, value: int) -> None:
    run.launch(name, value, (8, 8, 1))
    expect(ILLEGAL_ADDRESS, lambda: cuda("cuCtxSynchronize"))


@on_device()
def test_a_destroyed_texture_is_an_illegal_access(cuda: Device) -> None:
    run, _, made = _ready(cuda)
    assert len(run.read("words_2d", made, (8, 8, 1))) == 1024
    cuda("cuTexObjectDestroy", made)
    _is_illegal(cuda, run, "words_2d", made)


@on_device()
def test_an_invented_texture_is_an_illegal_access(cuda: Device) -> None:
    run, _, made = _ready(cuda)
    _is_illegal(cuda, run, "words_2d", made ^ (1 << 21))


@on_device()
def test_an_address_is_no_texture(cuda: Device) -> None:
    run, *_ = _ready(cuda)
    _is_illegal(cuda, run, "words_2d", run.out.value)


@on_device()
def test_a_texture_is_no_surface(cuda: Device) -> None:
    run, _, made = _ready(cuda)
    _is_illegal(cuda, run, "bump", made)


def _of_rows(cuda: Device, rows: int) -> tuple[Kernels, int, bytes]:
    """Kernels, a texture of pitched memory with 8 words in each row, and the first row."""
    cuda.open()
    memory = cuda.alloc(4096)
    words = struct.pack("8I", *range(100, 108))
    cuda.write(memory, words)
    held = textures.pitched(memory, (8, rows, 64), U32)
    return Kernels(cuda), textures.create(cuda, held, textures.texture()), words


@on_device()
def test_one_row_is_read_as_one_dimension_too(cuda: Device) -> None:
    run, made, words = _of_rows(cuda, 1)
    read = run.read("words_1d", made, (8, 1, 1))
    assert b"".join(read[n : n + 4] for n in range(0, 128, 16)) == words


@on_device()
def test_two_rows_are_not_one_dimension(cuda: Device) -> None:
    run, made, _ = _of_rows(cuda, 2)
    _is_illegal(cuda, run, "words_1d", made)


@on_device()
def test_a_texture_of_a_destroyed_array_is_an_illegal_access(cuda: Device) -> None:
    run, array, made = _ready(cuda)
    cuda("cuArrayDestroy", array)
    _is_illegal(cuda, run, "words_2d", made)


@on_device()
def test_a_texture_of_freed_memory_is_an_illegal_access(cuda: Device) -> None:
    run, *_ = _ready(cuda)
    memory = cuda.alloc(4096)
    made = textures.create(cuda, textures.pitched(memory, (8, 8, 64), U32), textures.texture())
    cuda.free(memory)
    _is_illegal(cuda, run, "words_2d", made)


@on_device()
def test_a_surface_has_borders(cuda: Device) -> None:
    run, array, _ = _ready(cuda)
    _, made = textures.surface(cuda, array)
    run.launch("bump", made, (9, 8, 1))
    expect(ILLEGAL_ADDRESS, lambda: cuda("cuCtxSynchronize"))


@on_device()
def test_destroyed_while_kernels_run(cuda: Device) -> None:
    """Kernels that were launched before find their object; its slot is used again and again."""
    run, array, _ = _ready(cuda)
    resource, wanted = textures.in_array(array), textures.texture()
    streams = [cuda.stream(1) for _ in range(4)]
    for turn in range(200):
        made = textures.create(cuda, resource, wanted)
        run.launch("words_2d", made, (8, 8, 1), streams[turn % 4])
        cuda("cuTexObjectDestroy", made)
    cuda("cuCtxSynchronize")
    _is_illegal(cuda, run, "words_2d", made)
