"""Bytes in both directions: split, strided, delivered later, pulled, fenced."""

import hashlib
import random
import struct

import pytest

from rgpu_common.wire.frame import Flags
from rgpu_common.wire.messages import Control, Notice, encode_message
from worker.client import LEGACY, PER_THREAD, SECONDS, Client, session

MIB = 1 << 20
PIECE = 256 << 10  # what copies are cut into


def noise(count: int) -> bytes:
    return random.Random(count).randbytes(count)


@pytest.mark.parametrize("count", [1, 255, 64 << 10, (64 << 10) + 1, MIB, 3 * MIB + 5, 17 * MIB])
def test_what_goes_in_comes_out(count: int) -> None:
    with session() as client:
        data = noise(count)
        address = client.alloc(count)
        client.upload(address, data)
        assert client.download(address, count) == data


@pytest.mark.parametrize(("width", "height"), [(7, 5), (1000, 300), (3000, 2000), (MIB + 10, 3)])
def test_rows_are_packed_and_the_gaps_are_left_alone(width: int, height: int) -> None:
    with session() as client:
        pitch = width + 96
        size = pitch * height
        address = client.alloc(size)
        client.upload(address, b"\xee" * size)
        rows = [noise(width + i)[:width] for i in range(height)]
        fits = max(1, MIB // width)
        for first in range(0, height, fits):
            packed = b"".join(rows[first : first + fits])
            if len(packed) > MIB:  # one row is more than a frame: the client splits it
                row = address + first * pitch
                client.upload(row, packed)
            else:
                client.post(
                    "rgpuCopyHtoD",
                    dst=address + first * pitch,
                    pitch=pitch,
                    width=width,
                    height=len(packed) // width,
                    stream=LEGACY,
                    synchronous=1,
                    bulk=packed,
                )
        packed = client.result(
            "rgpuCopyDtoH", src=address, pitch=pitch, width=width, height=height, stream=LEGACY
        )
        assert packed.status == 0
        assert packed.data == b"".join(rows)
        whole = client.download(address, size)
        assert all(
            whole[i * pitch + width : (i + 1) * pitch] == b"\xee" * 96 for i in range(height)
        )


def test_within_the_device_and_sets() -> None:
    with session() as client:
        one, two = client.alloc(4096), client.alloc(4096)
        client.upload(one, noise(4096))
        common = {"width": 100, "height": 4, "stream": LEGACY, "synchronous": 0}
        client.post("rgpuCopyDtoD", dst=two, dst_pitch=128, src=one, src_pitch=1024, **common)
        got, source = client.download(two, 512), noise(4096)
        assert all(
            got[i * 128 : i * 128 + 100] == source[i * 1024 : i * 1024 + 100] for i in range(4)
        )
        for element in (1, 2, 4):
            client.post(
                "rgpuMemset",
                dst=one,
                pitch=0,
                element_bytes=element,
                value=0x01020304,
                width=10,
                height=1,
                stream=LEGACY,
                synchronous=1,
            )
            wanted = (0x01020304).to_bytes(4, "little")[:element] * 10
            assert client.download(one, element * 10) == wanted
        client.post(
            "rgpuMemset",
            dst=one,
            pitch=64,
            element_bytes=4,
            value=7,
            width=3,
            height=5,
            stream=LEGACY,
            synchronous=1,
        )
        assert struct.unpack_from("<3I", client.download(one, 1024), 64 * 4) == (7, 7, 7)


def test_nothing_is_copied_by_empty_copies() -> None:
    with session() as client:
        address = client.alloc(512)
        for width, height in ((0, 1), (0, 0), (16, 0)):
            sizes = {"pitch": 16, "width": width, "height": height, "stream": LEGACY}
            client.post("rgpuCopyHtoD", dst=address, synchronous=1, **sizes)
            assert client.result("rgpuCopyDtoH", src=address, **sizes).status == 0
            later = client.post("rgpuCopyDtoHLater", src=address, **sizes)
            assert client.result("rgpuContextSynchronize", ctx=10).status == 0
            assert client.deliveries[later] == b""


def test_a_synchronous_copy_is_there_for_streams_that_wait_for_nobody() -> None:
    """Only the worker's fence orders this stream after the copy's stream."""
    with session() as client:
        big = 16 * MIB
        source, target = client.alloc(big), client.alloc(big)
        client.post("rgpuStreamCreate", stream=20, flags=1, priority=0)
        for turn in range(3):
            data = noise(big + turn)[:big]
            client.upload(source, data)
            client.post(
                "rgpuCopyDtoD",
                dst=target,
                dst_pitch=0,
                src=source,
                src_pitch=0,
                width=big,
                height=1,
                stream=20,
                synchronous=0,
            )
            assert client.result("rgpuStreamSynchronize", stream=20).status == 0
            got = client.download(target, big, stream=20)
            assert hashlib.sha256(got).digest() == hashlib.sha256(data).digest()


def test_a_synchronous_copy_on_a_per_thread_stream_is_fenced_too() -> None:
    with session() as client:
        big = 8 * MIB
        source, target = client.alloc(big), client.alloc(big)
        data = noise(big)
        client.upload(source, data, stream=PER_THREAD)
        client.post(
            "rgpuCopyDtoD",
            dst=target,
            dst_pitch=0,
            src=source,
            src_pitch=0,
            width=big,
            height=1,
            stream=PER_THREAD,
            synchronous=0,
            thread=2,
        )
        rows = {"pitch": 0, "width": big, "height": 1}
        assert (
            client.result("rgpuCopyDtoH", src=target, stream=PER_THREAD, thread=2, **rows).data
            == data
        )


def deliver(client: Client, src: int, count: int, stream: int) -> int:
    return client.post("rgpuCopyDtoHLater", src=src, pitch=0, width=count, height=1, stream=stream)


@pytest.mark.parametrize("how", ["stream", "context", "event", "query", "other stream"])
def test_a_wait_that_reports_completion_comes_behind_the_delivery(how: str) -> None:
    """The deliveries have come before the answer, and its watermark counts them."""
    with session() as client:
        count = 5 * MIB + 3
        address, flag = client.alloc(count), client.alloc(512)
        data = noise(count)
        client.upload(address, data)
        client.upload(flag, struct.pack("<I", 0))
        for stream in (20, 21, 22):
            client.post("rgpuStreamCreate", stream=stream, flags=1, priority=0)
        client.post("rgpuEventCreate", event=30, flags=2)
        client.wait_value(20, flag, 1)
        later = deliver(client, address, count, 20)
        client.post("rgpuEventRecord", event=30, stream=20, version=1, flags=0)
        client.post("rgpuStreamWaitEvent", stream=21, event=30, flags=0)
        if how == "query":
            assert client.result("rgpuEventQuery", event=30, version=1, notify=1).status == 600
            client.write_value(22, flag, 1)
            fields, frame = client.notice(Notice.COMPLETED)
            assert (fields["object"], fields["version"]) == (30, 1)
            watermark = frame.header.watermark
        else:
            waits = {
                "stream": ("rgpuStreamSynchronize", {"stream": 20}),
                "context": ("rgpuContextSynchronize", {"ctx": 10}),
                "event": ("rgpuEventSynchronize", {"event": 30}),
                "other stream": ("rgpuStreamSynchronize", {"stream": 21}),
            }
            name, operands = waits[how]
            waiting = client.post(name, thread=2, **operands)
            client.write_value(22, flag, 1)
            answer = client.wait(waiting)
            assert answer.status == 0
            watermark = answer.watermark
        assert client.deliveries[later] == data, "landed before the answer"
        assert watermark == client.delivered == -(-len(data) // PIECE)


def test_a_delivery_that_cannot_be_made_says_so() -> None:
    with session() as client:
        seq = deliver(client, 0x1234, 100, LEGACY)
        client.call("rgpuPing", echo=1)
        while seq not in client.deliveries:
            client.take(client.frame())
        assert client.deliveries[seq] == b""
        assert client.result("rgpuMemGetInfo").status == 1


def test_a_pull_that_cannot_be_made_says_so() -> None:
    with session() as client:
        seq = client.post(
            "rgpuCopyHtoDPull", dst=0x1234, pitch=0, width=100, height=1, stream=LEGACY
        )
        client.call("rgpuPing", echo=1)
        while seq not in client.deliveries:
            client.take(client.frame())
        assert client.deliveries[seq] == b""
        assert client.result("rgpuMemGetInfo").status == 1


def test_host_bytes_are_pulled_when_the_stream_has_come_to_the_copy() -> None:
    with session() as client:
        count = 2 * MIB + 100
        address, flag = client.alloc(count), client.alloc(512)
        client.upload(flag, struct.pack("<I", 0))
        for stream in (20, 21):
            client.post("rgpuStreamCreate", stream=stream, flags=1, priority=0)
        client.wait_value(20, flag, 1)
        seq = client.post(
            "rgpuCopyHtoDPull", dst=address, pitch=0, width=count, height=1, stream=20
        )
        client.call("rgpuPing", echo=1)
        assert not any(notice is Notice.PULL for notice, _, _ in client.notices), (
            "not before its turn"
        )
        waiting = client.post("rgpuStreamSynchronize", stream=20, thread=2)
        client.write_value(21, flag, 1)
        data = noise(count)
        left = count
        while left:
            fields, frame = client.notice(Notice.PULL)
            assert frame.header.seq == seq
            offset, size = int(fields["offset"]), int(fields["bytes"])
            pull = {"pull": int(fields["pull"]), "offset": offset}
            client.control.send(
                encode_message(Control.PULL_DATA, pull, bulk=data[offset : offset + size])
            )
            left -= size
        assert client.wait(waiting).status == 0
        assert client.download(address, count) == data


def test_rows_are_pulled_in_portions_that_end_with_a_row() -> None:
    with session() as client:
        width, height = 1000, 900
        address = client.alloc(width * height)
        client.post(
            "rgpuCopyHtoDPull", dst=address, pitch=width, width=width, height=height, stream=LEGACY
        )
        data = noise(width * height)
        left = width * height
        while left:
            fields, _ = client.notice(Notice.PULL)
            offset, size = int(fields["offset"]), int(fields["bytes"])
            assert offset % width == size % width == 0
            pull = {"pull": int(fields["pull"]), "offset": offset}
            client.control.send(
                encode_message(Control.PULL_DATA, pull, bulk=data[offset : offset + size])
            )
            left -= size
        assert client.download(address, width * height) == data


def test_a_long_copy_is_one_step_of_its_stream() -> None:
    """The copy is too long to fit into the staging memory at once."""
    with session() as client:
        width, height = 300_000, 240
        pitch = width + 96
        rows = {"pitch": pitch, "width": width, "height": height, "stream": 20}
        address = client.alloc(pitch * height)
        data = noise(width * height)
        for row in range(height):
            client.upload(address + row * pitch, data[row * width : (row + 1) * width])
        client.post("rgpuStreamCreate", stream=20, flags=1, priority=0)
        later = client.post("rgpuCopyDtoHLater", src=address, **rows)
        zeros = {"dst": address, "element_bytes": 1, "value": 0, "synchronous": 0}
        client.post("rgpuMemset", **zeros, **rows)
        assert client.result("rgpuStreamSynchronize", stream=20).status == 0
        assert client.deliveries.pop(later) == data
        client.post("rgpuCopyHtoDPull", dst=address, **rows)
        later = client.post("rgpuCopyDtoHLater", src=address, **rows)
        left = width * height
        while left:
            fields, _ = client.notice(Notice.PULL)
            offset, size = int(fields["offset"]), int(fields["bytes"])
            pull = {"pull": int(fields["pull"]), "offset": offset}
            client.control.send(
                encode_message(Control.PULL_DATA, pull, bulk=data[offset : offset + size])
            )
            left -= size
        assert client.result("rgpuContextDestroy", ctx=10).status == 0
        assert client.deliveries[later] == data


def test_a_client_that_never_answers_a_pull_can_still_go() -> None:
    with session() as client:
        address = client.alloc(4096)
        client.post("rgpuCopyHtoDPull", dst=address, pitch=0, width=4096, height=1, stream=LEGACY)
        client.notice(Notice.PULL)
        client.bye()
        assert client.process.wait(SECONDS) == 0


def test_the_last_frame_of_a_delivery_is_marked() -> None:
    with session() as client:
        address = client.alloc(3 * PIECE)
        seq = deliver(client, address, 3 * PIECE, LEGACY)
        flags = []
        while len(flags) < 3:
            frame = client.frame()
            if frame.header.seq == seq and frame.bulk:
                flags.append(frame.header.flags)
                assert frame.header.watermark == len(flags)
        assert flags == [Flags.NONE, Flags.NONE, Flags.LAST]
