"""Large copies are sent from and received in place if the host reaches the device's memory.

In normal timing only: in hostile timing the emulated device says that it does not.
"""

import random

from rgpu_common.wire.frame import MAX_BULK_BYTES, Kind
from rgpu_common.wire.messages import Notice
from worker.client import LEGACY, SECONDS, session

MIB = 1 << 20


def test_pieces_are_frames_of_the_largest_size() -> None:
    with session() as client:
        data = random.Random(1).randbytes(3 * MIB + 5)
        address = client.alloc(len(data))
        client.upload(address, data)
        copy = client.post(
            "rgpuCopyDtoH", src=address, pitch=0, width=len(data), height=1, stream=LEGACY
        )
        sizes = []
        while copy not in client.replies:
            frame = client.frame()
            if frame.header.kind is Kind.DATA:
                sizes.append(len(frame.bulk))
            client.take(frame)
        assert sizes == [MAX_BULK_BYTES] * 3 + [5]
        answer = client.wait(copy)
        assert (answer.status, answer.data) == (0, data)


def test_work_behind_the_copy_waits_for_it() -> None:
    """Another thread fills the memory, in the same stream, while the copy is on its way."""
    with session() as client:
        count = 16 * MIB
        data = random.Random(2).randbytes(count)
        address = client.alloc(count)
        client.upload(address, data)
        rows = {"pitch": 0, "height": 1, "stream": LEGACY, "width": count}
        copy = client.post("rgpuCopyDtoH", src=address, **rows)
        client.post(
            "rgpuMemset", dst=address, element_bytes=1, value=0, synchronous=1, thread=2, **rows
        )
        answer = client.wait(copy)
        assert (answer.status, answer.data) == (0, data)
        assert client.download(address, count) == bytes(count)


def test_memory_that_is_freed_meanwhile_goes_when_the_copy_is_done() -> None:
    with session() as client:
        count = 16 * MIB
        data = random.Random(3).randbytes(count)
        address = client.alloc(count)
        client.upload(address, data)
        copy = client.post(
            "rgpuCopyDtoH", src=address, pitch=0, width=count, height=1, stream=LEGACY
        )
        client.post("rgpuMemFree", dptr=address, thread=2)
        answer = client.wait(copy)
        assert (answer.status, answer.data) == (0, data)
        assert client.result("rgpuContextSynchronize", ctx=10).status == 0


def test_a_client_that_reads_nothing_can_still_go() -> None:
    with session() as client:
        address = client.alloc(16 * MIB)
        client.post("rgpuCopyDtoH", src=address, pitch=0, width=16 * MIB, height=1, stream=LEGACY)
        client.bye()
        assert client.process.wait(SECONDS) == 0


def test_bytes_from_the_host_are_received_where_they_belong() -> None:
    """Whole and ragged pieces, on the legacy stream and on one of the client's own."""
    with session() as client:
        count = 3 * MIB + 7
        data = random.Random(4).randbytes(count)
        address = client.alloc(count)
        client.upload(address, data)
        assert client.download(address, count) == data
        again = random.Random(5).randbytes(count)
        client.upload(address, again, synchronous=1)
        assert client.download(address, count) == again


def test_pieces_do_not_overtake_what_is_on_the_device() -> None:
    """A fill that was posted before the copy is not visible after it."""
    with session() as client:
        count = 32 * MIB
        data = random.Random(6).randbytes(count)
        address = client.alloc(count)
        rows = {"pitch": 0, "height": 1, "stream": LEGACY, "width": count}
        for value in range(8):
            client.post(
                "rgpuMemset", dst=address, element_bytes=1, value=value, synchronous=0, **rows
            )
        client.upload(address, data)
        assert client.download(address, count) == data


def test_credits_of_copies_in_place_come_back() -> None:
    """More than a stream's credit of bytes, with nothing else ever put into the stream."""
    with session() as client:
        data = random.Random(7).randbytes(4 * MIB)
        address = client.alloc(len(data))
        for _ in range(20):
            client.upload(address, data)
        assert client.download(address, len(data)) == data
        while int(client.notice(Notice.CREDIT)[0]["completed"]) < 80:
            pass
