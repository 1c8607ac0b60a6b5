"""Graphs at the gate: a launch is one piece of work, and a graph that waits for its client keeps
the device from nobody.
"""

import struct
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from helpers.waiting import wait_until

from rgpu_common.wire.codec import Value, encode_command
from rgpu_common.wire.messages import Control, Notice, encode_message
from worker.client import Client
from worker.graphs import (
    EMPTY,
    HOST,
    MAGIC,
    Node,
    chain,
    fill,
    graph,
    instantiate,
    kernel,
    record,
    wait_value,
)
from worker.images import PTX
from worker.leased import leased, load
from worker.token_page import LONG_NS, OPEN, RECALLED, SLICE, TokenPage
from worker.warm import open_session, pooled

EXEC, STREAM, OTHER, MODULE, FUNCTION = 50, 70, 71, 40, 41


@contextmanager
def launched(*nodes: Node) -> Iterator[tuple[TokenPage, Client, int]]:
    """A graph of these nodes behind memory, and its memory: not launched yet."""
    page = TokenPage()
    with pooled() as warm:
        warm.hear()
        client = open_session(warm, page)
        client.post("rgpuStreamCreate", stream=STREAM, flags=1, priority=0)
        memory = client.alloc(4096)
        assert instantiate(client, EXEC, chain(*nodes, fill(memory, 7, 4))) == 0
        yield page, client, memory


def _launch(client: Client, delivers: int = 0, stream: int = STREAM) -> None:
    client.post("rgpuGraphLaunch", exec=EXEC, stream=stream, delivers=delivers)


def _set(client: Client, memory: int, times: int) -> None:
    """Many sets in one write, so that the connection takes them all."""
    values: dict[str, Value] = {"dst": memory, "pitch": 0, "element_bytes": 1, "value": 1}
    values |= {"width": 64, "height": 1, "stream": STREAM, "synchronous": 0}
    first, client.seq = client.seq + 1, client.seq + times
    ids = {"thread": 1, "context": client.context}
    sets = [encode_command("rgpuMemset", values, seq=first + i, **ids) for i in range(times)]
    client.send(b"".join(sets))


def _answer(client: Client) -> None:
    fields, _ = client.notice(Notice.GRAPH_CALLBACK)
    done = {"callback": fields["callback"]}
    client.control.send(encode_message(Control.CALLBACK_DONE, done))


def test_a_launch_waits_for_the_token() -> None:
    with launched() as (page, client, memory):
        _launch(client)
        sync = client.post("rgpuStreamSynchronize", stream=STREAM)
        assert page.until(wanting=1)["active"] == 0
        assert client.call("rgpuMemGetInfo")["total"]
        assert sync not in client.replies
        page.grant(SLICE, LONG_NS)
        assert client.wait(sync).status == 0
        assert page.until(active=0, wanting=0)["busy_ns"] > 0
        page.grant(OPEN)
        assert client.download(memory, 4) == b"\7\0\0\0"


def test_others_have_the_device_while_a_graph_waits_for_its_client() -> None:
    with launched(HOST, HOST) as (page, client, _):
        page.grant(SLICE, LONG_NS)
        _launch(client, 1)
        sync = client.post("rgpuStreamSynchronize", stream=STREAM)
        fields, _frame = client.notice(Notice.GRAPH_CALLBACK)
        page.say(RECALLED)
        page.until(active=0)
        done = {"callback": fields["callback"]}
        client.control.send(encode_message(Control.CALLBACK_DONE, done))
        # The rest of the graph asks for the token before it runs.
        page.until(wanting=1)
        assert sync not in client.replies
        page.grant(SLICE, LONG_NS)
        _answer(client)
        assert client.wait(sync).status == 0
        page.until(active=0, wanting=0)


@pytest.mark.parametrize("steps", [(HOST,), ()], ids=["its own step", "the stream's function"])
def test_a_launch_in_another_stream_waits_for_the_client_with_the_first(
    steps: tuple[Node, ...],
) -> None:
    """The driver runs one launch of a graph after the other, so the second cannot be running while
    the first one waits for the client.
    """
    with launched(*steps) as (page, client, _):
        client.post("rgpuStreamCreate", stream=OTHER, flags=1, priority=0)
        page.grant(SLICE, LONG_NS)
        if not steps:
            client.post("rgpuHostFunction", stream=STREAM)
        _launch(client, len(steps))
        told = Notice.GRAPH_CALLBACK if steps else Notice.CALLBACK
        fields, _frame = client.notice(told)
        _launch(client, len(steps), OTHER)
        sync = client.post("rgpuStreamSynchronize", stream=OTHER)
        assert client.call("rgpuMemGetInfo")["total"]
        page.say(RECALLED)
        page.until(active=0)
        done = {"callback": fields["callback"]}
        client.control.send(encode_message(Control.CALLBACK_DONE, done))
        page.until(wanting=1)
        assert sync not in client.replies
        page.grant(SLICE, LONG_NS)
        if steps:
            _answer(client)
        assert client.wait(sync).status == 0
        page.until(active=0, wanting=0)


def test_a_graph_that_only_waits_for_a_value_does_not_keep_the_device() -> None:
    with launched() as (page, client, memory):
        page.grant(OPEN)
        client.upload(memory, bytes(4))
        assert instantiate(client, EXEC + 1, chain(wait_value(memory, 1), EMPTY)) == 0
        page.grant(SLICE, LONG_NS)
        client.post("rgpuGraphLaunch", exec=EXEC + 1, stream=STREAM, delivers=0)
        sync = client.post("rgpuStreamSynchronize", stream=STREAM)
        assert client.call("rgpuMemGetInfo")["total"]
        page.say(RECALLED)
        page.until(active=0)
        page.grant(OPEN)
        assert sync not in client.replies
        client.post("rgpuStreamCreate", stream=OTHER, flags=1, priority=0)
        client.write_value(OTHER, memory, 1)
        assert client.wait(sync).status == 0


def test_waits_for_values_whose_order_is_open_keep_it() -> None:
    """The program writes the value of the one only when it has seen what is behind the other."""
    with launched() as (page, client, memory):
        page.grant(OPEN)
        client.upload(memory, bytes(64))
        client.post("rgpuStreamCreate", stream=OTHER, flags=1, priority=0)
        branches = [
            wait_value(memory, 1),
            fill(memory + 16, 7, 1),
            wait_value(memory + 4, 1),
            fill(memory + 20, 8, 1),
        ]
        assert instantiate(client, EXEC + 1, MAGIC + graph(branches, [(0, 1), (2, 3)])) == 0
        client.post("rgpuGraphLaunch", exec=EXEC + 1, stream=STREAM, delivers=0)
        for flag, seen in ((4, b"\0\0\0\0\x08\0\0\0"), (0, b"\7\0\0\0\x08\0\0\0")):
            client.write_value(OTHER, memory + flag, 1)

            def arrived(wanted: bytes = seen) -> bool:
                return client.download(memory + 16, 8, stream=OTHER) == wanted

            wait_until(arrived)
        assert client.result("rgpuStreamSynchronize", stream=STREAM).status == 0


def test_a_full_queue_does_not_keep_the_device() -> None:
    """A client that puts more into a stream than it has credits for waits by itself: no thread of
    the worker gets stuck in the driver with the lock.
    """
    with launched(HOST) as (page, client, memory):
        page.grant(OPEN)
        _launch(client, 1)
        fields, _frame = client.notice(Notice.GRAPH_CALLBACK)
        _set(client, memory, 1200)
        sync = client.post("rgpuStreamSynchronize", stream=STREAM)
        page.until_nothing_moves()
        page.say(RECALLED)
        page.until(active=0)
        done = {"callback": fields["callback"]}
        client.control.send(encode_message(Control.CALLBACK_DONE, done))
        page.until(wanting=1)
        page.grant(OPEN)
        assert client.wait(sync).status == 0


def test_a_graph_is_predicted_by_its_last_launch() -> None:
    """The first launch counts as much as kernels that were never measured, so it goes alone; later
    ones count as what it took.
    """
    page = TokenPage()
    with leased(page=page) as (client, _):
        client.post("rgpuStreamCreate", stream=STREAM, flags=1, priority=0)
        memory = client.alloc(4096)
        page.grant(OPEN)
        assert load(client, MODULE, PTX) == 0
        client.call("rgpuModuleGetFunction", module=MODULE, name=b"add", function=FUNCTION)
        params = struct.pack("<QI", memory, 0)
        assert instantiate(client, EXEC + 1, chain(*[kernel(FUNCTION, params=params)] * 20)) == 0
        for _ in range(3):
            client.post("rgpuGraphLaunch", exec=EXEC + 1, stream=STREAM, delivers=0)
            assert client.result("rgpuStreamSynchronize", stream=STREAM).status == 0
        page.until(active=0)
        page.grant(SLICE, LONG_NS)
        for _ in range(20):
            client.post("rgpuGraphLaunch", exec=EXEC + 1, stream=STREAM, delivers=0)
        said = page.demand()
        # 20 launches of 20 kernels that were never measured would be a second.
        assert said["in_flight_ns"] < 500_000_000
        assert client.result("rgpuStreamSynchronize", stream=STREAM).status == 0


def test_questions_pass_a_held_launch_only_if_it_does_not_record_the_event() -> None:
    with launched(EMPTY) as (page, client, _):
        client.post("rgpuEventCreate", event=60, flags=0)
        assert instantiate(client, EXEC + 1, chain(record(60))) == 0
        _launch(client)
        page.until(wanting=1)
        assert client.result("rgpuEventQuery", event=60, version=0, notify=0).status == 0
        client.post("rgpuGraphLaunch", exec=EXEC + 1, stream=STREAM, delivers=0)
        question = client.post("rgpuEventQuery", event=60, version=1, notify=0)
        assert client.call("rgpuMemGetInfo")["total"]
        assert question not in client.replies
        page.grant(SLICE, LONG_NS)
        assert client.wait(question).status in (0, 600)
        assert client.result("rgpuStreamSynchronize", stream=STREAM).status == 0
