"""Events of contexts and copies between contexts, from clients that follow no rule."""

import struct

from worker.client import LEGACY, session

INVALID_VALUE, OUT_OF_MEMORY, INVALID_CONTEXT, INVALID_HANDLE = 1, 2, 201, 400


def test_contexts_and_events_that_do_not_belong_together() -> None:
    with session() as client:
        client.call("rgpuContextCreate", ctx=11, device=0, flags=0)
        client.post("rgpuEventCreate", event=30, flags=0)
        memory = client.alloc(64)
        sides = {"dst": memory, "src": memory, "bytes": 64, "stream": LEGACY, "serial": 1}
        for name, values, status in (
            ("rgpuContextRecordEvent", {"ctx": 11, "event": 30, "version": 1}, INVALID_HANDLE),
            ("rgpuContextRecordEvent", {"ctx": 12, "event": 30, "version": 1}, INVALID_CONTEXT),
            ("rgpuContextRecordEvent", {"ctx": 10, "event": 31, "version": 1}, INVALID_HANDLE),
            ("rgpuContextWaitEvent", {"ctx": 12, "event": 30}, INVALID_CONTEXT),
            ("rgpuContextWaitEvent", {"ctx": 10, "event": 31}, INVALID_HANDLE),
            ("rgpuCopyPeer", {**sides, "dst_context": 12, "src_context": 10}, INVALID_CONTEXT),
            ("rgpuCopyPeer", {**sides, "dst_context": 10, "src_context": 12}, INVALID_CONTEXT),
            (
                "rgpuCopyPeer",
                {**sides, "dst_context": 10, "src_context": 11, "bytes": 65},
                INVALID_VALUE,
            ),
            (
                "rgpuCopyPeer",
                {**sides, "dst_context": 10, "src_context": 11, "bytes": (1 << 64) - 1},
                INVALID_VALUE,
            ),
            (
                "rgpuCopyPeer",
                {**sides, "dst_context": 10, "src_context": 11, "src": 77},
                INVALID_VALUE,
            ),
        ):
            client.post(name, **values)
            assert client.result("rgpuMemGetInfo").status == status, (name, values)


def test_a_context_that_is_destroyed_takes_its_observer_along() -> None:
    with session() as client:
        for round_ in range(5):
            context = 20 + round_
            client.call("rgpuContextCreate", ctx=context, device=0, flags=0)
            client.post("rgpuEventCreate", event=50 + round_, flags=0, context=context)
            client.post(
                "rgpuContextRecordEvent", ctx=context, event=50 + round_, version=1, context=context
            )
            client.post("rgpuContextWaitEvent", ctx=10, event=50 + round_)
            client.call("rgpuContextDestroy", ctx=context)
        memory = client.alloc(64)
        client.upload(memory, b"after")
        assert client.download(memory, 5) == b"after"


def test_waits_for_events_have_a_limit() -> None:
    with session() as client:
        flag = client.alloc(512)
        client.upload(flag, struct.pack("<I", 0))
        for stream in range(20, 26):
            client.post("rgpuStreamCreate", stream=stream, flags=1, priority=0)
        client.call("rgpuContextCreate", ctx=11, device=0, flags=0)
        client.post("rgpuEventCreate", event=30, flags=0)
        for stream in range(20, 25):
            client.wait_value(stream, flag, 1)
            for version in range(1, 20):
                client.post("rgpuEventRecord", event=30, stream=stream, version=version, flags=0)
                client.post("rgpuContextWaitEvent", ctx=11, event=30)
        assert client.result("rgpuMemGetInfo").status == OUT_OF_MEMORY
        client.write_value(25, flag, 1)
        client.call("rgpuContextSynchronize", ctx=10)
