"""Waits, polls, credits, threads: nothing blocks the decoder, and a wait covers only
earlier work.
"""

import struct

from rgpu_common.wire.messages import Notice
from worker.client import LEGACY, PER_THREAD, Client, session

NOT_READY = 600


def blocked(client: Client, *streams: int) -> int:
    """Makes streams that wait for a flag; returns the flag's address. Stream 90 is free to
    set it.
    """
    flag = client.alloc(512)
    client.upload(flag, struct.pack("<I", 0))
    client.post("rgpuStreamCreate", stream=90, flags=1, priority=0)
    for stream in streams:
        client.post("rgpuStreamCreate", stream=stream, flags=1, priority=0)
        client.wait_value(stream, flag, 1)
    return flag


def test_a_parked_wait_lets_everybody_else_go_on() -> None:
    with session() as client:
        flag = blocked(client, 20)
        waits = [client.post("rgpuStreamSynchronize", stream=20, thread=n) for n in range(2, 40)]
        waits += [client.post("rgpuContextSynchronize", ctx=10, thread=n) for n in range(40, 60)]
        assert client.call("rgpuPing", echo=5)["echo"] == 5
        assert client.replies == {}
        client.write_value(90, flag, 1)
        assert [client.wait(seq).status for seq in waits] == [0] * len(waits)


def test_an_event_wait_is_for_the_record_that_was_in_force() -> None:
    """The event is recorded again after work that never ends."""
    with session() as client:
        flag = blocked(client, 20)
        client.post("rgpuEventCreate", event=30, flags=2)
        client.post("rgpuEventRecord", event=30, stream=90, version=1, flags=0)
        first = client.post("rgpuEventSynchronize", event=30, thread=2)
        client.post("rgpuEventRecord", event=30, stream=20, version=2, flags=0)
        assert client.wait(first).status == 0
        assert client.result("rgpuEventQuery", event=30, version=2, notify=0).status == NOT_READY
        client.write_value(90, flag, 1)
        assert client.result("rgpuEventSynchronize", event=30).status == 0


def test_a_stream_wait_does_not_wait_for_what_comes_later() -> None:
    with session() as client:
        flag = blocked(client)
        client.post("rgpuStreamCreate", stream=20, flags=1, priority=0)
        client.upload(client.alloc(4096), bytes(4096), stream=20, synchronous=0)
        seq = client.post("rgpuStreamSynchronize", stream=20, thread=2)
        client.wait_value(20, flag, 1)
        assert client.wait(seq).status == 0
        client.write_value(90, flag, 1)


def test_events_that_were_never_recorded_are_complete() -> None:
    with session() as client:
        client.post("rgpuEventCreate", event=30, flags=0)
        assert client.result("rgpuEventQuery", event=30, version=0, notify=1).status == 0
        assert client.result("rgpuEventSynchronize", event=30).status == 0
        client.post("rgpuStreamWaitEvent", stream=LEGACY, event=30, flags=0)
        assert client.result("rgpuStreamSynchronize", stream=LEGACY).status == 0


def test_elapsed_time() -> None:
    with session() as client:
        for event in (30, 31):
            client.post("rgpuEventCreate", event=event, flags=0)
            client.post("rgpuEventRecord", event=event, stream=LEGACY, version=1, flags=0)
        client.post("rgpuEventCreate", event=32, flags=2)
        client.post("rgpuEventRecord", event=32, stream=LEGACY, version=1, flags=0)
        assert client.result("rgpuEventElapsedTime", start=30, end=31).status in (0, NOT_READY)
        assert client.result("rgpuContextSynchronize", ctx=10).status == 0
        assert float(client.call("rgpuEventElapsedTime", start=30, end=31)["milliseconds"]) >= 0
        assert client.result("rgpuEventElapsedTime", start=30, end=32).status == 400, (
            "it has no time"
        )


def test_a_poll_asks_once_and_is_told() -> None:
    with session() as client:
        flag = blocked(client, 20)
        asked = client.result("rgpuStreamQuery", stream=20, version=7, notify=1)
        assert asked.status == NOT_READY
        assert client.result("rgpuStreamQuery", stream=20, version=8, notify=1).status == NOT_READY
        client.write_value(90, flag, 1)
        fields, frame = client.notice(Notice.COMPLETED)
        assert fields == {"object": 20, "version": 8, "time_ns": 0}, (
            "one notice per object, the last"
        )
        assert frame.header.context == 10
        assert client.result("rgpuStreamQuery", stream=20, version=8, notify=1).status == 0


def test_credits_come_back_in_batches() -> None:
    with session() as client:
        block = client.alloc(4096)
        client.post("rgpuStreamCreate", stream=20, flags=1, priority=0)
        for _ in range(320):
            client.post(
                "rgpuMemset",
                dst=block,
                pitch=0,
                element_bytes=1,
                value=0,
                width=4096,
                height=1,
                stream=20,
                synchronous=0,
            )
        counts = []
        while not counts or counts[-1] < 320:
            fields, frame = client.notice(Notice.CREDIT)
            if fields["stream"] == 20:
                counts.append(int(fields["completed"]))
                assert frame.header.context == 10
        assert counts == sorted(counts)
        assert len(counts) <= 10, "never one per command"


def test_commands_that_fail_give_their_credits_back_as_well() -> None:
    with session() as client:
        client.post("rgpuStreamCreate", stream=20, flags=1, priority=0)
        for _ in range(65):
            client.post(
                "rgpuMemset",
                dst=0x1000,
                pitch=0,
                element_bytes=1,
                value=0,
                width=1,
                height=1,
                stream=20,
                synchronous=0,
            )
        while int(client.notice(Notice.CREDIT)[0]["completed"]) < 64:
            pass
        assert client.result("rgpuMemGetInfo").status == 1


def test_large_copies_give_their_memory_back_one_by_one() -> None:
    with session() as client:
        block = client.alloc(1 << 20)
        for _ in range(200):
            client.upload(block, bytes(1 << 20), synchronous=0)
        last = 0
        while last < 200:
            last = int(client.notice(Notice.CREDIT)[0]["completed"])


def test_two_threads_on_their_own_default_streams() -> None:
    """One stream waits for the value that the other writes."""
    with session() as client:
        flag = client.alloc(512)
        client.upload(flag, struct.pack("<I", 0))
        client.wait_value(PER_THREAD, flag, 5, thread=1)
        one = client.post("rgpuStreamSynchronize", stream=PER_THREAD, thread=1)
        client.write_value(PER_THREAD, flag, 5, thread=2)
        assert client.wait(one).status == 0
        assert client.result("rgpuStreamSynchronize", stream=PER_THREAD, thread=2).status == 0
        client.post("rgpuThreadGone", gone=2)
        assert client.result("rgpuStreamSynchronize", stream=PER_THREAD, thread=1).status == 0


def test_a_destroyed_stream_finishes_its_work() -> None:
    with session() as client:
        flag = blocked(client, 20)
        block = client.alloc(512)
        client.post(
            "rgpuMemset",
            dst=block,
            pitch=0,
            element_bytes=1,
            value=7,
            width=512,
            height=1,
            stream=20,
            synchronous=0,
        )
        later = client.post("rgpuCopyDtoHLater", src=block, pitch=0, width=512, height=1, stream=20)
        client.post("rgpuStreamDestroy", stream=20)
        assert client.result("rgpuStreamSynchronize", stream=20).status == 400
        client.write_value(90, flag, 1)
        while later not in client.deliveries:
            client.take(client.frame())
        assert client.deliveries[later] == b"\7" * 512


def _memset(client: Client, block: int, stream: int, thread: int = 1) -> None:
    client.post(
        "rgpuMemset", dst=block, pitch=0, element_bytes=1, value=7, width=512, height=1,
        stream=stream, synchronous=0, thread=thread,
    )  # fmt: skip


def test_a_wait_for_the_context_covers_streams_that_are_destroyed() -> None:
    with session() as client:
        flag = blocked(client, 20)
        client.wait_value(PER_THREAD, flag, 1, thread=2)
        block = client.alloc(512)
        _memset(client, block, 20)
        later = client.post("rgpuCopyDtoHLater", src=block, pitch=0, width=512, height=1, stream=20)
        client.post("rgpuStreamDestroy", stream=20)
        client.post("rgpuThreadGone", gone=2)
        wait = client.post("rgpuContextSynchronize", ctx=10, thread=3)
        assert client.call("rgpuPing", echo=5)["echo"] == 5
        assert client.replies == {}
        client.write_value(90, flag, 1)
        assert client.wait(wait).status == 0
        assert client.deliveries[later] == b"\7" * 512
        assert client.result("rgpuContextSynchronize", ctx=10).status == 0


def test_an_event_of_the_context_covers_streams_that_are_destroyed() -> None:
    with session() as client:
        flag = blocked(client, 20)
        client.post("rgpuEventCreate", event=30, flags=0)
        client.post("rgpuStreamDestroy", stream=20)
        for version in (1, 2):
            client.post("rgpuContextRecordEvent", ctx=10, event=30, version=version)
        query = {"event": 30, "version": 2, "notify": 0}
        assert client.result("rgpuEventQuery", **query).status == NOT_READY
        client.write_value(90, flag, 1)
        assert client.result("rgpuEventSynchronize", event=30).status == 0


def test_a_thousand_streams_and_no_more() -> None:
    with session() as client:
        for stream in range(100, 1124):
            client.post("rgpuStreamCreate", stream=stream, flags=1, priority=0)
        assert client.result("rgpuContextSynchronize", ctx=10).status == 0
        client.post("rgpuStreamCreate", stream=2000, flags=1, priority=0)
        assert client.result("rgpuContextSynchronize", ctx=10).status == 2


def test_thousands_of_events_recorded_and_dropped() -> None:
    with session() as client:
        for i in range(3000):
            client.post("rgpuEventCreate", event=1000 + i, flags=2)
            client.post("rgpuEventRecord", event=1000 + i, stream=LEGACY, version=1, flags=0)
            client.post("rgpuEventDestroy", event=1000 + i)
        assert client.result("rgpuContextSynchronize", ctx=10).status == 0
