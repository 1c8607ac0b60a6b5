"""Texture and surface objects in process: which can be made, and what is remembered about them."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_ulonglong

from helpers import boxes, textures
from helpers.boxes import BC1, CUBEMAP, F32, LAYERED, NV12, SURFACE, U8, U32, shape
from helpers.textures import (
    AS_INTEGER,
    IN_MIPMAPPED_ARRAY,
    LINEAR_FILTER,
    NORMALIZED,
    SEAMLESS,
    Resource,
    Texture,
    View,
)

from emu.device import Device, expect, on_device

INVALID_VALUE, NOT_SUPPORTED = 1, 801


@on_device()
def test_descriptions_are_remembered(cuda: Device) -> None:
    cuda.open()
    array = boxes.create(cuda, shape(8, 8, format=F32))
    resource = textures.in_array(array)
    wanted = textures.texture(NORMALIZED, filter=LINEAR_FILTER, bias=2)
    view = View(format=22, width=8, height=8)
    with_view = textures.create(cuda, resource, wanted, view)
    without = textures.create(cuda, resource, wanted)
    assert with_view not in (0, without)
    for made in (with_view, without):
        for call, given in (
            ("cuTexObjectGetResourceDesc", resource),
            ("cuTexObjectGetTextureDesc", wanted),
        ):
            found = type(given)()
            cuda(call, byref(found), made)
            assert bytes(found) == bytes(given)
    found_view = View()
    cuda("cuTexObjectGetResourceViewDesc", byref(found_view), with_view)
    assert bytes(found_view) == bytes(view)
    expect(
        INVALID_VALUE, lambda: cuda("cuTexObjectGetResourceViewDesc", byref(found_view), without)
    )
    cuda("cuTexObjectDestroy", with_view)
    for gone in (with_view, 0, 1, without ^ (1 << 20)):
        expect(INVALID_VALUE, lambda gone=gone: cuda("cuTexObjectDestroy", gone))
        expect(
            INVALID_VALUE,
            lambda gone=gone: cuda("cuTexObjectGetTextureDesc", byref(Texture()), gone),
        )


@on_device()
def test_a_value_is_used_once(cuda: Device) -> None:
    cuda.open()
    resource = textures.in_array(boxes.create(cuda, shape(8)))
    seen = set()
    for _ in range(3000):
        made = textures.create(cuda, resource, textures.texture())
        assert made not in seen
        seen.add(made)
        cuda("cuTexObjectDestroy", made)


@on_device()
def test_textures_of_linear_memory(cuda: Device) -> None:
    cuda.open()
    memory = cuda.alloc(1 << 16)
    for resource, result in (
        (textures.linear(memory, 1 << 16, F32), 0),
        (textures.linear(memory, 1 << 16, U8, 4), 0),
        (textures.linear(memory + 512, 100, U8), 0),
        (textures.linear(memory + 16, 64, U8), 1),
        (textures.linear(memory, (1 << 16) + 1, U8), 1),
        (textures.linear(memory, 0, U8), 1),
        (textures.linear(memory, 64, U8, 3), 1),
        (textures.linear(memory, 64, BC1, 4), 1),
        (textures.linear(0, 64, U8), 1),
        (textures.linear(1 << 63, 64, U8), 1),
        (textures.pitched(memory, (64, 64, 1024), U32), 0),
        (textures.pitched(memory, (256, 65, 1024), U32), 1),
        (textures.pitched(memory, (257, 4, 1024), U32), 1),
        (textures.pitched(memory, (16, 4, 1000), U8), 1),
        (textures.pitched(memory, (1 << 60, 4, 1024), U32), 1),
        (textures.pitched(memory, (0, 4, 1024), U32), 1),
    ):
        got, made = textures.result(cuda, resource, textures.texture())
        assert got == result, (bytes(resource), got)
        if got == 0:
            cuda("cuTexObjectDestroy", made)
        else:
            assert made == 7, "nothing is written"
    view = View(format=0, width=64)
    assert textures.result(cuda, textures.linear(memory, 64, U8), Texture(), view)[0] == 1


@on_device()
def test_what_contradicts_itself_is_refused(cuda: Device) -> None:
    cuda.open()
    floats = textures.in_array(boxes.create(cuda, shape(8, 8, format=F32)))
    bytes_ = textures.in_array(boxes.create(cuda, shape(8, 8)))
    cube = textures.in_array(boxes.create(cuda, shape(8, 8, 6, format=F32, flags=CUBEMAP)))
    video = textures.in_array(boxes.create(cuda, shape(8, 8, format=NV12, channels=3)))
    mipmapped = textures.in_array(
        boxes.create_mipmapped(cuda, shape(8, 8, format=F32), 4), IN_MIPMAPPED_ARRAY
    )
    flagged = textures.in_array(floats.of.array)
    flagged.flags = 1
    for resource, wanted, result in (
        (floats, textures.texture(0, filter=LINEAR_FILTER), 0),
        (bytes_, textures.texture(0, filter=LINEAR_FILTER), 0),
        (bytes_, textures.texture(AS_INTEGER, filter=LINEAR_FILTER), 1),
        (floats, textures.texture(0, filter=2), 1),
        (floats, textures.texture(0, mip_filter=2), 1),
        (floats, textures.texture(1 << 9), 1),
        (floats, textures.texture(SEAMLESS), 1),
        (cube, textures.texture(SEAMLESS | NORMALIZED), 0),
        (mipmapped, textures.texture(NORMALIZED), 0),
        (mipmapped, textures.texture(0), 1),
        (video, textures.texture(), 1),
        (flagged, textures.texture(), 1),
        (textures.in_array(99), textures.texture(), 1),
        (textures.in_array(floats.of.array, IN_MIPMAPPED_ARRAY), textures.texture(), 1),
        (Resource(kind=4), textures.texture(), 1),
    ):
        assert textures.result(cuda, resource, wanted)[0] == result, (bytes(wanted), result)
    wrong = textures.texture()
    wrong.address = (0, 4, 0)
    assert textures.result(cuda, floats, wrong)[0] == 1


@on_device()
def test_views(cuda: Device) -> None:
    cuda.open()
    pairs = textures.in_array(boxes.create(cuda, shape(8, 4, format=U32, channels=2)))
    layers = textures.in_array(boxes.create(cuda, shape(8, 4, 5, format=U32, flags=LAYERED)))
    levels = textures.in_array(
        boxes.create_mipmapped(cuda, shape(8, 4, format=U32), 4), IN_MIPMAPPED_ARRAY
    )
    flags = NORMALIZED | AS_INTEGER
    for resource, view, result in (
        (pairs, View(format=14, width=8, height=4), 0),
        (pairs, View(format=0, width=8, height=4), 0),
        (pairs, View(format=21, width=8, height=4), 0),  # four halves
        (pairs, View(format=25, width=32, height=16), 0),  # BC1
        (pairs, View(format=28, width=32, height=16), 0),  # BC4
        (pairs, View(format=26, width=32, height=16), 1),  # BC2 has blocks of 16 bytes
        (pairs, View(format=25, width=8, height=4), 1),
        (pairs, View(format=13, width=8, height=4), 1),
        (pairs, View(format=35, width=8, height=4), 1),
        (pairs, View(format=14, width=7, height=4), 1),
        (pairs, View(format=14, width=8, height=4, last_level=1), 1),
        (pairs, View(format=14, width=8, height=4, last_layer=1), 1),
        (layers, View(format=13, width=8, height=4, depth=5, first_layer=1, last_layer=4), 0),
        (layers, View(format=13, width=8, height=4, depth=5, first_layer=2, last_layer=1), 1),
        (layers, View(format=13, width=8, height=4, depth=5, last_layer=5), 1),
        (levels, View(format=13, width=8, height=4, first_level=1, last_level=3), 0),
        (levels, View(format=13, width=8, height=4, last_level=4), 1),
    ):
        got = textures.result(cuda, resource, textures.texture(flags), view)[0]
        assert got == result, (view.format, view.width, view.last_layer, got)


@on_device()
def test_surfaces(cuda: Device) -> None:
    cuda.open()
    array = boxes.create(cuda, shape(8, 8, format=F32, flags=SURFACE))
    status, made = textures.surface(cuda, array)
    assert status == 0
    found = Resource()
    cuda("cuSurfObjectGetResourceDesc", byref(found), made)
    assert (found.kind, found.of.array) == (0, array)
    assert textures.surface(cuda, boxes.create(cuda, shape(8, 8)))[0] == INVALID_VALUE
    assert textures.surface(cuda, 99)[0] == INVALID_VALUE
    memory = textures.linear(cuda.alloc(64), 64, U8)
    out = c_ulonglong()
    assert cuda.result("cuSurfObjectCreate", byref(out), byref(memory)) == INVALID_VALUE
    expect(INVALID_VALUE, lambda: cuda("cuTexObjectDestroy", made))
    cuda("cuSurfObjectDestroy", made)
    expect(INVALID_VALUE, lambda: cuda("cuSurfObjectDestroy", made))
    mipmapped = boxes.create_mipmapped(cuda, shape(8, 8, format=F32, flags=SURFACE), 3)
    assert textures.surface(cuda, boxes.level(cuda, mipmapped, 1))[0] == 0


@on_device()
def test_there_are_no_tensor_maps(cuda: Device) -> None:
    cuda("cuInit", 0)
    assert cuda.attribute(127) == 0
    words = (ctypes.c_uint64 * 16)()
    tiled = (words, 7, 2, 4096, words, words, words, words, 0, 0, 0, 0)
    column = (words, 7, 3, 4096, words, words, words, words, 1, 1, words, 0, 0, 0, 0)
    wide = (words, 7, 3, 4096, words, words, 0, 0, 1, 1, words, 0, 0, 0, 0, 0)
    for call, arguments in (
        ("cuTensorMapEncodeTiled", tiled),
        ("cuTensorMapEncodeIm2col", column),
        ("cuTensorMapEncodeIm2colWide", wide),
        ("cuTensorMapReplaceAddress", (words, 4096)),
    ):
        expect(NOT_SUPPORTED, lambda c=call, a=arguments: cuda(c, *a))


@on_device()
def test_the_width_of_a_linear_texture(cuda: Device) -> None:
    cuda.open()
    assert (
        cuda.out("cuDeviceGetTexture1DLinearMaxWidth", F32, 4, 0) == cuda.attribute(69) == 1 << 28
    )
    for channels in (0, 3):
        expect(
            INVALID_VALUE,
            lambda n=channels: cuda.out("cuDeviceGetTexture1DLinearMaxWidth", F32, n, 0),
        )
    expect(101, lambda: cuda.out("cuDeviceGetTexture1DLinearMaxWidth", F32, 4, 1))
