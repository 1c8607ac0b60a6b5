"""Arrays and textures at the worker: charges, copies of boxes, and clients that follow no rule."""

from __future__ import annotations

import random
import struct

import pytest

from cudaspec.load import load
from worker.client import LEGACY, Client, session
from worker.leased import LIMIT, MIB, OUT_OF_MEMORY, held, leased, until_refused

INVALID_VALUE, INVALID_CONTEXT, INVALID_HANDLE, NOT_SUPPORTED = 1, 201, 400, 801
U8, U32 = 1, 3
LAYERED, SURFACE, SPARSE = 1, 2, 0x40
TEXTURE = {
    field.name: 0.0 if field.kind == "f32" else 0
    for field in load().commands["rgpuTextureCreate"].request
}


def create(
    client: Client, array: int, width: int, height: int = 0, depth: int = 0, **more: int
) -> int:
    """Makes an array of bytes; its status."""
    fields = {"format": U8, "channels": 1, "flags": 0, **more}
    answer = client.result(
        "rgpuArrayCreate", array=array, width=width, height=height, depth=depth, **fields
    )
    return answer.status


def box(
    array: int = 0, at: int = 0, size: tuple[int, int, int] = (1, 1, 1), **more: int
) -> dict[str, int]:
    """The fields of a command for a box; `size`: width, height, depth."""
    width, height, depth = size
    return {
        "array": array, "at": at, "pitch": 0, "rows": 0, "x": 0, "y": 0, "z": 0, "width": width,
        "height": height, "depth": depth, "stream": LEGACY, **more,
    }  # fmt: skip


def texture(client: Client, **fields: int) -> tuple[int, int]:
    answer = client.result("rgpuTextureCreate", **{**TEXTURE, "flags": 1, **fields})
    return answer.status, int(answer.values.get("texture", 0))


@pytest.mark.parametrize(
    ("size", "limit"),
    [((4096, 0, 0), LIMIT // 16), ((1000, 50, 20), LIMIT), ((64, 3000, 0), LIMIT)],
)
def test_arrays_are_charged_exactly(size: tuple[int, int, int], limit: int) -> None:
    width, height, depth = size
    pitch = (width + 63) // 64 * 64
    taken = (pitch * max(1, height) * max(1, depth) + 4095) // 4096 * 4096
    with leased(limit) as (client, page):
        count = until_refused(lambda n: create(client, 50 + n, *size))
        assert count == limit // taken
        assert held(client, page, limit) == page.used() == count * taken
        client.post("rgpuArrayDestroy", array=50)
        assert create(client, 50, *size) == 0, "its memory is there again"
        for n in range(count):
            client.post("rgpuArrayDestroy", array=50 + n)
        client.call("rgpuMemGetInfo")
        assert held(client, page, limit) == page.used() == 0


def test_mipmapped_arrays_are_charged_once_with_all_levels() -> None:
    shape = {"width": 512, "height": 512, "depth": 0, "format": U8, "channels": 4, "flags": 0}
    with leased() as (client, page):
        count = until_refused(
            lambda n: (
                client.result("rgpuMipmappedArrayCreate", mipmap=50 + n, levels=10, **shape).status
            )
        )
        assert MIB * 4 // 3 <= page.used() // count <= MIB * 4 // 3 + 16384
        assert held(client, page) == page.used() <= LIMIT
        used = page.used()
        for number in range(10):
            client.call("rgpuMipmapLevel", array=1000 + number, mipmap=50, level=number)
        assert page.used() == used, "levels take no memory of their own"
        client.post("rgpuMipmappedArrayDestroy", mipmap=50)
        assert client.result("rgpuCopyBoxOut", **box(1000)).status == INVALID_HANDLE
        assert page.used() == used - used // count


def test_an_array_is_charged_until_the_work_before_is_complete() -> None:
    with leased() as (client, page):
        flag = client.alloc(512)
        client.upload(flag, struct.pack("<I", 0))
        for stream in (20, 21):
            client.post("rgpuStreamCreate", stream=stream, flags=1, priority=0)
        assert create(client, 50, 1024, 1024) == 0
        client.wait_value(20, flag, 1)
        client.post("rgpuArrayDestroy", array=50)
        assert page.used() == MIB + 4096
        client.write_value(21, flag, 1)
        assert client.result("rgpuStreamSynchronize", stream=20).status == 0
        assert create(client, 51, 8192, 8191) == 0, "waits until the memory is free"


def test_the_end_of_a_context_gives_everything_back() -> None:
    with leased() as (client, page):
        client.call("rgpuContextCreate", ctx=11, device=0, flags=0)
        client.context = 11
        assert create(client, 50, 1024, 1024) == 0
        assert texture(client, kind=0, array=50)[0] == 0
        client.call("rgpuContextDestroy", ctx=11)
        client.context = 10
        assert held(client, page) == page.used() == 0
        assert create(client, 50, 16) == 0, "the id is free"


def test_boxes_in_both_directions() -> None:
    """Pieces, rows with gaps and slices; more than fits one frame."""
    with session() as client:
        width, height, depth = 700, 300, 20
        data = random.Random(1).randbytes(width * height * depth)
        assert create(client, 50, width + 9, height + 2, depth + 1) == 0
        slices = MIB // (width * height)
        for first in range(0, depth, slices):
            count = min(slices, depth - first)
            begin = first * width * height
            client.post(
                "rgpuCopyBoxIn",
                bulk=data[begin : begin + count * width * height],
                synchronous=1,
                **box(50, size=(width, height, count), x=5, y=2, z=first + 1),
            )
        answer = client.result(
            "rgpuCopyBoxOut", **box(50, size=(width, height, depth), x=5, y=2, z=1)
        )
        assert (answer.status, answer.data == data) == (0, True)
        memory = client.alloc(MIB * 8)
        place = {"pitch": 704, "rows": 310}
        client.post(
            "rgpuCopyBoxWithin",
            dst_array=0, dst=memory + 3, dst_pitch=704, dst_rows=310, dst_x=0, dst_y=0, dst_z=0,
            src_array=50, src=0, src_pitch=0, src_rows=0, src_x=5, src_y=2, src_z=1,
            width=width, height=height, depth=depth, stream=LEGACY, synchronous=1,
        )  # fmt: skip
        later = client.post(
            "rgpuCopyBoxOutLater", **box(at=memory + 3, size=(width, height, depth), **place)
        )
        assert client.result("rgpuContextSynchronize", ctx=10).status == 0
        assert client.deliveries[later] == data


def test_boxes_outside_are_refused() -> None:
    with session() as client:
        assert create(client, 50, 16, 8, 4, format=U32) == 0
        memory = client.alloc(4096)
        for fields, result in (
            (box(50, size=(64, 8, 4)), 0),
            (box(50, size=(68, 8, 4)), 1),
            (box(50, size=(64, 9, 4)), 1),
            (box(50, size=(64, 8, 5)), 1),
            (box(50, size=(4, 1, 1), x=62), 1),
            (box(50, size=(4, 1, 1), x=64), 1),
            (box(50, size=(4, 1, 1), x=(1 << 64) - 4), 1),
            (box(50, size=(4, 1, 1), z=1 << 63), 1),
            (box(50, size=(1 << 32, 1 << 32, 1 << 32)), 1),
            (box(50, size=(0, 8, 4)), 0),
            (box(51), 400),
            (box(at=memory, size=(16, 2, 2), pitch=64, rows=16), 0),
            (box(at=memory, size=(16, 2, 2), pitch=64, rows=1), 1),
            (box(at=memory, size=(16, 2, 2), pitch=8, rows=2), 1),
            (box(at=memory, size=(16, 2, 5), pitch=64, rows=16), 1),
            (box(at=memory, size=(16, 2, 2), pitch=1 << 40, rows=1 << 40), 1),
            (box(at=memory, size=(1, 1, 1 << 63), pitch=1, rows=1 << 63), 1),
            (box(at=memory, size=(16, 1, 1), x=1), 1),
            (box(at=0, size=(16, 1, 1)), 1),
        ):
            answer = client.result("rgpuCopyBoxOut", **fields)
            assert answer.status == result, (fields, answer.status)
        wrong = client.post("rgpuCopyBoxIn", bulk=b"abc", synchronous=0, **box(50, size=(4, 1, 1)))
        assert wrong
        assert client.result("rgpuMemGetInfo").status == INVALID_VALUE, "the bulk has other bytes"
        assert client.result("rgpuCopyBoxOut", **box(50)).status == INVALID_VALUE


def test_what_cannot_be_made() -> None:
    with session() as client:
        assert create(client, 50, 16) == 0
        for fields, result in (
            ({"array": 50, "width": 16}, INVALID_HANDLE),
            ({"array": 0, "width": 16}, INVALID_HANDLE),
            ({"array": 51, "width": 0}, INVALID_VALUE),
            ({"array": 51, "width": 1 << 62}, INVALID_VALUE),
            ({"array": 51, "width": 16, "height": 1 << 62}, INVALID_VALUE),
            ({"array": 51, "width": 16, "format": 77}, INVALID_VALUE),
            ({"array": 51, "width": 16, "flags": 1 << 31}, INVALID_VALUE),
            ({"array": 51, "width": 16, "flags": SPARSE}, NOT_SUPPORTED),
            ({"array": 51, "width": 16384, "height": 16384, "depth": 16384}, OUT_OF_MEMORY),
        ):
            assert create(client, **fields) == result, fields  # type: ignore[arg-type]
        answer = client.result("rgpuArrayPlane", array=51, whole=50, plane=0)
        assert answer.status == INVALID_VALUE
        answer = client.result("rgpuMipmapLevel", array=51, mipmap=50, level=0)
        assert answer.status == INVALID_HANDLE


def test_textures_of_foreign_memory_are_refused() -> None:
    with session() as client:
        assert create(client, 50, 16, 16, flags=SURFACE) == 0
        memory = client.alloc(4096)
        for fields, result in (
            ({"kind": 0, "array": 50}, 0),
            ({"kind": 0, "array": 51}, INVALID_HANDLE),
            ({"kind": 1, "mipmap": 50}, INVALID_HANDLE),
            ({"kind": 2, "dptr": memory, "bytes": 4096, "format": U8, "channels": 1}, 0),
            ({"kind": 2, "dptr": memory, "bytes": 4097, "format": U8, "channels": 1}, 1),
            ({"kind": 2, "dptr": memory - 512, "bytes": 64, "format": U8, "channels": 1}, 1),
            ({"kind": 2, "dptr": 0x1000, "bytes": 64, "format": U8, "channels": 1}, 1),
            ({"kind": 9}, 1),
        ):
            assert texture(client, **fields)[0] == result, fields
        pitched = {"kind": 3, "dptr": memory, "format": U32, "channels": 1}
        for width, height, pitch, result in (
            (16, 64, 64, 0),
            (16, 65, 64, 1),
            (1 << 62, 1, 64, 1),
            (16, 1 << 40, 64, 1),
        ):
            got, _ = texture(client, width=width, height=height, pitch=pitch, **pitched)
            assert got == result, (width, height, pitch)
        made = int(client.call("rgpuSurfaceCreate", array=50)["surface"])
        client.post("rgpuTextureDestroy", texture=made)
        assert client.result("rgpuMemGetInfo").status == INVALID_HANDLE
        client.post("rgpuSurfaceDestroy", surface=made)
        assert client.result("rgpuMemGetInfo").status == 0


def test_objects_end_behind_running_work() -> None:
    with session() as client:
        assert create(client, 50, 16) == 0
        flag = client.alloc(512)
        client.upload(flag, struct.pack("<I", 0))
        for stream in (20, 21):
            client.post("rgpuStreamCreate", stream=stream, flags=1, priority=0)
        client.wait_value(20, flag, 1)
        values = set()
        for _ in range(2000):
            made = texture(client, kind=0, array=50)[1]
            values.add(made)
            client.post("rgpuTextureDestroy", texture=made)
        assert len(values) == 2000
        client.write_value(21, flag, 1)
        assert client.result("rgpuContextSynchronize", ctx=10).status == 0
        client.post("rgpuTextureDestroy", texture=made)
        assert client.result("rgpuMemGetInfo").status == INVALID_HANDLE


def test_tensor_maps_need_another_device() -> None:
    with session() as client:
        common = {
            "data_type": 7, "rank": 2, "dptr": 4096, "interleave": 0, "swizzle": 0, "promotion": 0,
            "fill": 0, "sizes": bytes(16), "strides": bytes(8), "element_strides": bytes(8),
        }  # fmt: skip
        assert client.result("rgpuTensorMapTiled", box=bytes(8), **common).status == NOT_SUPPORTED
        for wrong in (
            {"rank": 0}, {"rank": 6}, {"rank": 1 << 31}, {"sizes": b""}, {"strides": bytes(16)},
            {"element_strides": bytes(7)}, {"box": bytes(4096)},
        ):  # fmt: skip
            fields = {"box": bytes(8), **common, **wrong}
            assert client.result("rgpuTensorMapTiled", **fields).status == INVALID_VALUE, wrong
        answer = client.result("rgpuTensorMapReplaceAddress", dptr=0, map=bytes(127))
        assert answer.status == INVALID_VALUE


def test_a_client_that_sends_random_fields_harms_only_itself() -> None:
    """Commands of arrays, boxes and textures with numbers that mean little."""
    rng = random.Random(7)
    spec = load()
    names = [n for n, c in spec.commands.items() if 0x0420 <= c.opcode < 0x0450]
    numbers = (0, 1, 2, 3, 16, 50, 51, 52, 64, 1 << 31, (1 << 32) - 1)
    with session() as client:
        memory = client.alloc(1 << 16)
        for _ in range(1500):
            name = rng.choice(names)
            row = spec.commands[name]
            fields = {}
            for field in row.request:
                value = rng.choice((*numbers, memory, (1 << 64) - 1, 1 << 40))
                if field.kind == "bytes":
                    fields[field.name] = rng.randbytes(rng.choice((0, 8, 16, 128)))
                elif field.kind == "f32":
                    fields[field.name] = rng.choice((0.0, float("inf"), -1.5, float("nan")))
                else:
                    bits = {"u8": 8, "u32": 32, "i32": 31}.get(field.kind, 64)
                    fields[field.name] = value & ((1 << bits) - 1)
            if "stream" in fields:
                fields["stream"] = LEGACY
            if row.is_call:
                client.result(name, **fields)
            elif name != "rgpuCopyBoxInPull":
                bulk = {"bulk": rng.randbytes(16)} if row.row.bulk == "request" else {}
                client.post(name, **bulk, **fields)
        while client.result("rgpuContextSynchronize", ctx=10).status != 0:
            pass
        client.upload(memory, b"still alive")
        assert client.download(memory, 11) == b"still alive"
