"""Streams that wait, by an event or by the device's own order, for a stream that waits for its
client.
"""

from __future__ import annotations

import struct
import threading

import pytest
from helpers.server import Server
from worker.client import LEGACY
from worker.graphs import (
    Node,
    chain,
    child,
    instantiate,
    kernel,
    node,
    put,
    wait_value,
    write_value,
)

from quota.tenant import HOLD, MS, Tenant, in_thread, overlap, tenants
from quota.waits.slow import HOLDS, MIB, SLOW, VICTIM, answer, ask_for_bytes, holds, works

EVENT = 60
GRAPH, IMAGE = 50, 51
INVALID_VALUE = 1
NOT_SUPPORTED = 801
LONG = 72 * MIB
QUEUE = 1100  # more commands than a stream of the emulated device holds


def record(slow: Tenant, stream: int, event: int = EVENT) -> int:
    """Records an event at the end of `stream`."""
    slow.post("rgpuEventCreate", event=event, flags=2)
    slow.post("rgpuEventRecord", event=event, stream=stream, version=1, flags=0)
    return event


def wait(slow: Tenant, stream: int, event: int = EVENT) -> None:
    slow.post("rgpuStreamWaitEvent", stream=stream, event=event, flags=0)


def streams_of_kind(slow: Tenant, first: int, count: int) -> list[int]:
    """Streams that are ordered with the legacy one."""
    made = list(range(first, first + count))
    for stream in made:
        slow.post("rgpuStreamCreate", stream=stream, flags=0, priority=0)
    return made


def seems_short(slow: Tenant) -> None:
    """Makes the worker learn that the kernel is very short, so that it sets no markers between its
    runs.
    """
    for _ in range(20):
        slow.hold(MS // 100)
        slow.synchronize()


def turns(victim: Tenant, slow: Tenant, copy: int) -> None:
    """Asserts that the victim works while `slow` waits for a copy, before and after the copy's
    bytes.
    """
    assert works(victim, 0.5) > 0
    answer(slow, bytes(MIB), copy)
    assert works(victim, 0.2) > 0


def ran(victim: Tenant, slow: Tenant, count: int) -> None:
    theirs = slow.runs()
    assert len(theirs) == count
    assert overlap(victim.runs(), theirs) == 0


def test_a_stream_that_waits_for_an_event(server: Server) -> None:
    """Bytes come in one stream and are used in another, as data loaders do it."""
    with tenants(server, VICTIM, SLOW) as (victim, slow):
        at = slow.alloc(MIB)
        loading, using = slow.streams(2)
        for round_ in range(3):
            copy = ask_for_bytes(slow, at, loading)
            wait(slow, using, record(slow, loading, EVENT + round_))
            holds(slow, using)
            turns(victim, slow, copy)
        ran(victim, slow, 3 * HOLDS)


def test_streams_in_a_chain(server: Server) -> None:
    with tenants(server, VICTIM, SLOW) as (victim, slow):
        at = slow.alloc(MIB)
        made = slow.streams(5)
        copy = ask_for_bytes(slow, at, made[0])
        for i in range(4):
            wait(slow, made[i + 1], record(slow, made[i], EVENT + i))
            holds(slow, made[i + 1])
        turns(victim, slow, copy)
        ran(victim, slow, 4 * HOLDS)


def test_the_order_of_the_legacy_stream(server: Server) -> None:
    """The legacy stream waits for all blocking streams, and they wait for it."""
    with tenants(server, VICTIM, SLOW) as (victim, slow):
        at = slow.alloc(MIB)
        loading, using = streams_of_kind(slow, 100, 2)
        for first, then in ((loading, LEGACY), (LEGACY, using), (loading, using)):
            copy = ask_for_bytes(slow, at, first)
            holds(slow, LEGACY)
            holds(slow, then)
            turns(victim, slow, copy)
        ran(victim, slow, 6 * HOLDS)


def test_the_legacy_stream_waits_for_an_event(server: Server) -> None:
    """Blocking streams wait with the legacy stream. Their earlier work runs on undisturbed."""
    with tenants(server, VICTIM, SLOW) as (victim, slow):
        at = slow.alloc(MIB)
        (loading,) = slow.streams(1)
        (using,) = streams_of_kind(slow, 200, 1)
        seems_short(slow)
        copy = ask_for_bytes(slow, at, loading)
        slow.hold(100 * MS, stream=using)
        wait(slow, LEGACY, record(slow, loading))
        holds(slow, using)
        holds(slow, LEGACY)
        turns(victim, slow, copy)
        ran(victim, slow, 20 + 1 + 2 * HOLDS)


def test_what_was_there_before_the_legacy_stream(server: Server) -> None:
    """Work before the legacy stream's is distinguished from work after it, which waits for the
    copy.
    """
    with tenants(server, VICTIM, SLOW) as (victim, slow):
        at = slow.alloc(MIB)
        loading, using = streams_of_kind(slow, 100, 2)
        seems_short(slow)
        copy = ask_for_bytes(slow, at, loading)
        slow.hold(200 * MS, stream=using)
        holds(slow, LEGACY)
        holds(slow, using)
        turns(victim, slow, copy)
        ran(victim, slow, 20 + 1 + 2 * HOLDS)


def test_what_was_there_before_a_copy_in_the_legacy_stream(server: Server) -> None:
    with tenants(server, VICTIM, SLOW) as (victim, slow):
        at = slow.alloc(MIB)
        (using,) = streams_of_kind(slow, 100, 1)
        seems_short(slow)
        slow.hold(MS // 100, stream=using)
        copy = ask_for_bytes(slow, at, LEGACY)
        slow.hold(MS // 100, stream=using)
        turns(victim, slow, copy)
        ran(victim, slow, 20 + 2)


def test_refused_work_orders_nothing(server: Server) -> None:
    """Blocking streams do not wait for the refused work of the legacy stream."""
    with tenants(server, VICTIM, SLOW) as (victim, slow):
        at = slow.alloc(MIB)
        loading, using = streams_of_kind(slow, 100, 2)
        copy = ask_for_bytes(slow, at, loading)
        slow.hold(MS, stream=LEGACY, threads=4096)
        assert slow.result("rgpuStreamSynchronize", stream=using).status == INVALID_VALUE
        for _ in range(3):
            slow.hold(100 * MS, stream=using)
            assert works(victim, 0.2) > 0
        turns(victim, slow, copy)
        ran(victim, slow, 3)


def test_what_was_there_before_the_wait(server: Server) -> None:
    """Earlier work runs, so the session keeps the device until that work is complete, and no
    longer.
    """
    with tenants(server, VICTIM, SLOW) as (victim, slow):
        at = slow.alloc(MIB)
        loading, using = slow.streams(2)
        seems_short(slow)
        copy = ask_for_bytes(slow, at, loading)
        slow.hold(200 * MS, stream=using)
        wait(slow, using, record(slow, loading))
        holds(slow, using)
        turns(victim, slow, copy)
        ran(victim, slow, 20 + 1 + HOLDS)


def test_a_stream_that_waits_for_two(server: Server) -> None:
    with tenants(server, VICTIM, SLOW) as (victim, slow):
        at, other = slow.alloc(MIB), slow.alloc(MIB)
        one, two, using = slow.streams(3)
        first = ask_for_bytes(slow, at, one)
        second = ask_for_bytes(slow, other, two)
        wait(slow, using, record(slow, one, EVENT))
        wait(slow, using, record(slow, two, EVENT + 1))
        holds(slow, using)
        turns(victim, slow, first)
        turns(victim, slow, second)
        ran(victim, slow, HOLDS)


def test_a_stream_that_waits_for_one_that_comes_later(server: Server) -> None:
    """Work that was set aside for one copy stays set aside for another, which its stream had not
    reached.
    """
    with tenants(server, VICTIM, SLOW) as (victim, slow):
        at, other, flag = slow.alloc(MIB), slow.alloc(LONG), slow.alloc(8)
        slow.upload(flag, bytes(8))
        one, two, using, writing = slow.streams(4)
        first = ask_for_bytes(slow, at, one)
        slow.post("rgpuStreamWaitValue", stream=two, address=flag, value=1, width=4, flags=0)
        # So long that no work is counted for it: it is what goes through a stream of its own.
        second = ask_for_bytes(slow, other, two, LONG)
        wait(slow, using, record(slow, one, EVENT))
        wait(slow, using, record(slow, two, EVENT + 1))
        holds(slow, using)
        assert works(victim, 0.2) > 0
        slow.post("rgpuStreamWriteValue", stream=writing, address=flag, value=1, width=4, flags=0)
        turns(victim, slow, first)
        assert works(victim, 0.2) > 0
        answer(slow, bytes(LONG), second)
        assert works(victim, 0.2) > 0
        ran(victim, slow, HOLDS)


def test_a_stream_that_waits_for_a_value(server: Server) -> None:
    """Its work needs no device meanwhile, and runs in a turn of its own when the value is there."""
    with tenants(server, VICTIM, SLOW) as (victim, slow):
        flag = slow.alloc(8)
        slow.upload(flag, bytes(8))
        using, behind, writing = slow.streams(3)
        for round_ in range(1, 4):
            slow.post(
                "rgpuStreamWaitValue", stream=using, address=flag, value=round_, width=4, flags=0
            )
            holds(slow, using)
            wait(slow, behind, record(slow, using, EVENT + round_))
            holds(slow, behind)
            assert works(victim, 0.5) > 0
            slow.post(
                "rgpuStreamWriteValue", stream=writing, address=flag, value=round_, width=4, flags=0
            )
            assert works(victim, 0.2) > 0
        ran(victim, slow, 6 * HOLDS)


def held_in_graph(slow: Tenant) -> Node:
    """A kernel of a millisecond in a graph."""
    return kernel(HOLD, params=struct.pack("<QQ", MS, slow.log))


def launch(slow: Tenant, stream: int) -> None:
    slow.post("rgpuGraphLaunch", exec=GRAPH, stream=stream, delivers=0)


def build_waiting(slow: Tenant, flag: int, how: str) -> None:
    """A graph of two kernels, the second behind a wait until the value at `flag` is 1."""
    one, wait_here = held_in_graph(slow), wait_value(flag, 1)
    if how == "inside":
        # Nothing joins the two nodes of the graph inside. The kernel may as well write the value.
        assert instantiate(slow, GRAPH, chain(child([wait_here, one]), one)) == 0
        return
    built = chain(one, wait_here, one)
    if how == "built":
        assert instantiate(slow, GRAPH, built) == 0
        return
    assert instantiate(slow, GRAPH, chain(one, write_value(flag, 0), one)) == 0
    change = {"exec": GRAPH, "node": 1, "parameters": node(wait_here)}
    assert slow.result("rgpuGraphSetNode", **change).status == NOT_SUPPORTED  # type: ignore[arg-type]
    put(slow, IMAGE, built)
    assert slow.result("rgpuGraphUpdate", exec=GRAPH, image=IMAGE).status == 0


@pytest.mark.parametrize("how", ["built", "inside", "changed"])
def test_a_graph_that_waits_for_a_value(server: Server, how: str) -> None:
    """What the graph has before the wait and behind it, and what comes behind the graph, runs in
    turns of its own.
    """
    with tenants(server, VICTIM, SLOW) as (victim, slow):
        flag = slow.alloc(8)
        slow.upload(flag, bytes(8))
        build_waiting(slow, flag, how)
        using, behind, writing = slow.streams(3)
        for round_ in range(3):
            launch(slow, using)
            holds(slow, using)
            wait(slow, behind, record(slow, using, EVENT + round_))
            slow.write_value(behind, flag, 0)
            holds(slow, behind)
            assert works(victim, 0.5) > 0
            slow.write_value(writing, flag, 1)
            assert works(victim, 0.2) > 0
            slow.call("rgpuStreamSynchronize", stream=behind)
        ran(victim, slow, 3 * (2 + 2 * HOLDS))


@pytest.mark.parametrize("in_graph", [False, True], ids=["stream", "graph"])
def test_a_value_that_is_written_by_work_that_is_held_back(server: Server, in_graph: bool) -> None:
    """So much work is set aside that a session whose client is slow would add nothing to it."""
    with tenants(server, VICTIM, SLOW) as (victim, slow):
        flag, source = slow.alloc(8), slow.alloc(8)
        slow.upload(flag, bytes(8))
        slow.upload(source, (1).to_bytes(8, "little"))
        using, writing = slow.streams(2)
        if in_graph:
            assert instantiate(slow, GRAPH, chain(wait_value(flag, 1))) == 0
            launch(slow, using)
        else:
            slow.wait_value(using, flag, 1)
        for _ in range(60):
            slow.hold(4 * MS, stream=using)
        slow.post(
            "rgpuCopyDtoD", dst=flag, dst_pitch=0, src=source, src_pitch=0, width=8, height=1,
            stream=writing, synchronous=0,
        )  # fmt: skip
        served = works(victim, 0.2)
        while slow.result("rgpuStreamQuery", stream=using, notify=0, version=1).status != 0:
            served += works(victim, 0.2)
        assert served > 0
        ran(victim, slow, 60)


def test_a_full_queue_of_the_driver(server: Server) -> None:
    """A client that issues more after the copy than fits waits in the driver; the stream
    goes on.
    """
    with tenants(server, VICTIM, SLOW) as (victim, slow):
        at = slow.alloc(MIB)
        loading, using = slow.streams(2)
        copy = ask_for_bytes(slow, at, loading)
        wait(slow, using, record(slow, loading))
        holds(slow, using)
        assert works(victim, 0.2) > 0

        def fill(_: threading.Event) -> None:
            for _ in range(QUEUE):
                wait(slow, using)

        with in_thread(fill):
            turns(victim, slow, copy)
        assert len(slow.runs()) == HOLDS
        assert works(victim, 0.1) > 0


def test_an_event_from_before_the_copy(server: Server) -> None:
    """A stream that waits for this event does not wait for the client."""
    with tenants(server, VICTIM, SLOW) as (victim, slow):
        at = slow.alloc(MIB)
        loading, using = slow.streams(2)
        holds(slow, loading)
        record(slow, loading)
        copy = ask_for_bytes(slow, at, loading)
        for _ in range(3):
            wait(slow, using)
            holds(slow, using)
            slow.call("rgpuStreamSynchronize", stream=using)
            assert works(victim, 0.1) > 0
        turns(victim, slow, copy)
        ran(victim, slow, 4 * HOLDS)


def test_the_stream_with_the_copy_is_destroyed(server: Server) -> None:
    with tenants(server, VICTIM, SLOW) as (victim, slow):
        at = slow.alloc(MIB)
        loading, using = slow.streams(2)
        # It comes to the copy when its handle is gone already.
        slow.hold(100 * MS, stream=loading)
        copy = ask_for_bytes(slow, at, loading)
        wait(slow, using, record(slow, loading))
        slow.post("rgpuStreamDestroy", stream=loading)
        holds(slow, using)
        turns(victim, slow, copy)
        ran(victim, slow, 1 + HOLDS)
