"""The front door: sessions are opened, strangers are refused, and no client can block it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from control.conftest import Lane

from rgpu_common.wire.attach import Attach, encode_attach
from rgpu_common.wire.fields import Wish
from rgpu_common.wire.frame import HEADER_BYTES, FrameHeader, Kind, encode_frame, pack_header
from rgpu_common.wire.handshake import Handshake
from rgpu_common.wire.hello import Hello, encode_hello
from rgpu_common.wire.refused import decode_refused
from rgpu_common.wire.welcome import Welcome, decode_welcome
from rgpu_server.config import Limits
from rgpu_server.core.model import SessionState
from rgpu_server.core.policy import Policy
from rgpu_server.service.callers import LOCAL, Caller
from rgpu_server.service.farewells import ENDED

pytestmark = pytest.mark.asyncio
Serve = Callable[..., Any]
GIB = 1 << 30


async def welcome(lane: Any) -> Welcome:
    header, head = await lane.frame()
    assert (header.kind, header.opcode) == (Kind.HANDSHAKE, Handshake.WELCOME)
    return decode_welcome(head)


async def opened(server: Any) -> tuple[Any, Welcome, Any]:
    """Opens the server's only session. Returns its lane, its welcome and its worker."""
    lane = await server.hello()
    answer = await welcome(lane)
    conductor = server.daemon.conductor
    (session,) = conductor.node.sessions
    await server.until(lambda: session.state is SessionState.OPEN)
    return lane, answer, conductor.workers[session.worker]


def kill_unseen(worker: int) -> None:
    """Kills a worker. The daemon runs in this thread, so it does not know of it yet."""
    os.kill(worker, signal.SIGKILL)
    os.waitid(os.P_PID, worker, os.WEXITED | os.WNOWAIT)


async def refused(lane: Any) -> tuple[int, str]:
    header, head = await lane.frame()
    assert (header.kind, header.opcode) == (Kind.HANDSHAKE, Handshake.REFUSED)
    assert await lane.ended()
    await lane.close()
    return header.status, decode_refused(head).sentence


@pytest.mark.parametrize("transport", ["tcp", "unix"])
async def test_hello_is_answered_by_a_worker(serve: Serve, transport: str) -> None:
    async with serve() as server:
        endpoint = next(
            e for e in server.endpoints if str(e).startswith("unix") == (transport == "unix")
        )
        lane = await server.hello(endpoint, memory_bytes=GIB, tenant="alice", program="saxpy")
        answer = await welcome(lane)
        assert answer.memory_limit_bytes == GIB
        assert "COLOUR=blue" in answer.note
        await server.until(
            lambda: [s.state for s in server.daemon.conductor.node.sessions] == [SessionState.OPEN]
        )
        (view,) = server.daemon.observer.sessions()
        assert (view.program, view.peer, view.session.tenant) == ("saxpy", "local", "alice")
        assert (view.counters.used_bytes, view.counters.peak_bytes) == (1000, 2000)
        # The kernel measures the round trip of TCP, and of nothing else.
        assert (view.round_trip_ns > 0) == (transport == "tcp")
        await lane.close()
        await server.until(lambda: not list(server.daemon.conductor.node.sessions))


async def test_the_control_lane_needs_the_secret_and_only_once(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rgpu_server.service.desk._END_SECONDS", 0)
    async with serve() as server:
        lane = await server.hello()
        answer = await welcome(lane)
        wrong = await server.lane(encode_attach(Attach(answer.session, bytes(32))))
        assert (await refused(wrong))[0] == 46
        unknown = await server.lane(encode_attach(Attach(answer.session + 1, answer.secret)))
        assert (await refused(unknown))[0] == 46
        right = await server.lane(encode_attach(Attach(answer.session, answer.secret)))
        header, _ = await right.frame()
        assert header.opcode == Handshake.ATTACHED
        again = await server.lane(encode_attach(Attach(answer.session, answer.secret)))
        assert "already used" in (await refused(again))[1]
        await right.close()
        await lane.close()


@pytest.mark.parametrize("ends", ["is killed", "is deaf"])
async def test_a_control_lane_that_comes_when_the_worker_is_ending_is_told_why(
    serve: Serve, ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rgpu_server.service.desk._END_SECONDS", 60 if ends == "is killed" else 0)
    async with serve() as server:
        lane, answer, worker = await opened(server)
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        if ends == "is killed":
            kill_unseen(worker.pid)
        else:
            monkeypatch.setattr(type(worker), "send", lambda *_: False)
        attach = encode_attach(Attach(answer.session, answer.secret))[HEADER_BYTES:]
        server.daemon.conductor.desk.attach(theirs, attach, Caller("unix", LOCAL, uid=os.getuid()))
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        status, sentence = await refused(Lane(reader, writer))
        why = ": the worker was ended by SIGKILL" if ends == "is killed" else ""
        assert (status, sentence) == (46, f"{ENDED}{why}")
        monkeypatch.undo()
        await lane.close()


async def test_a_control_lane_after_a_worker_that_died_welcoming_is_told_why(serve: Serve) -> None:
    async with serve(mode="die welcomed") as server:
        lane = await server.hello()
        answer = await welcome(lane)
        assert "the worker ended with exit code 4" in (await refused(lane))[1]
        control = await server.lane(encode_attach(Attach(answer.session, answer.secret)))
        assert "the worker ended with exit code 4" in (await refused(control))[1]


async def test_a_client_that_stays_after_its_worker_died_stops_nobody(serve: Serve) -> None:
    async with serve(mode="die") as server:
        first = await server.hello()
        header, _ = await first.frame()
        assert header.opcode == Handshake.REFUSED
        # The daemon still waits for the first client to close.
        assert (await refused(await server.hello()))[0] == 999
        await first.close()


async def test_a_control_lane_that_was_lost_with_its_worker_is_told_why(serve: Serve) -> None:
    """The daemon has passed the first ATTACH on, and the worker dies before it reads that."""
    async with serve() as server:
        lane, answer, worker = await opened(server)
        os.kill(worker.pid, signal.SIGSTOP)
        attach = encode_attach(Attach(answer.session, answer.secret))[HEADER_BYTES:]
        first, again = socket.socketpair(), socket.socketpair()
        for _, theirs in (first, again):
            theirs.setblocking(False)
            server.daemon.conductor.desk.attach(
                theirs, attach, Caller("unix", LOCAL, uid=os.getuid())
            )
            kill_unseen(worker.pid)
        lost = Lane(*await asyncio.open_unix_connection(sock=first[0]))
        assert await lost.ended()
        control = Lane(*await asyncio.open_unix_connection(sock=again[0]))
        assert await refused(control) == (46, f"{ENDED}: the worker was ended by SIGKILL")
        for one in (lost, control, lane):
            await one.close()


def bad(kind: str) -> bytes:
    """Bytes that are not how a session begins."""
    hello = encode_hello(Hello())
    head = hello[HEADER_BYTES:]
    if kind == "noise":
        return bytes(range(256)) * 4
    if kind == "http/1":
        return b"GET / HTTP/1.1\r\nHost: gpu\r\nUser-Agent: none\r\n\r\n"
    if kind == "zeros":
        return bytes(64)
    if kind == "a command":
        return encode_frame(Kind.COMMAND, 1, b"abcd", seq=1)
    if kind == "a welcome":
        return encode_frame(Kind.HANDSHAKE, Handshake.WELCOME, head)
    if kind == "bulk":
        return encode_frame(Kind.HANDSHAKE, Handshake.HELLO, head, b"bulk")
    if kind == "too long":
        return pack_header(FrameHeader((64 << 10) + 1, 0, Handshake.HELLO, Kind.HANDSHAKE))
    if kind == "no magic":
        return encode_frame(Kind.HANDSHAKE, Handshake.HELLO, b"\0" * 4 + head[4:])
    if kind == "cut head":
        return encode_frame(Kind.HANDSHAKE, Handshake.HELLO, head[:-3])
    if kind == "left over":
        return encode_frame(Kind.HANDSHAKE, Handshake.HELLO, head + b"x")
    if kind == "huge count":
        return encode_frame(Kind.HANDSHAKE, Handshake.HELLO, head[:8] + struct.pack("<I", 1 << 31))
    raise ValueError(kind)


@pytest.mark.parametrize(
    "kind",
    [
        "noise",
        "http/1",
        "zeros",
        "a command",
        "a welcome",
        "bulk",
        "too long",
        "no magic",
        "cut head",
        "left over",
        "huge count",
    ],
)
async def test_strangers_are_refused_and_the_door_stays_open(serve: Serve, kind: str) -> None:
    async with serve() as server:
        status, sentence = await refused(await server.lane(bad(kind)))
        assert status == 999
        assert sentence
        lane = await server.hello()
        await welcome(lane)
        await lane.close()


async def test_every_prefix_of_a_hello_is_only_a_hang_up(serve: Serve) -> None:
    hello = encode_hello(Hello(tenant="alice", program="p"))
    async with serve() as server:
        for end in range(len(hello)):
            lane = await server.lane(hello[:end])
            lane.writer.write_eof()
            assert await lane.ended()
            await lane.close()
        assert list(server.daemon.conductor.node.sessions) == []


async def test_another_wire_version_is_refused_with_the_remedy(serve: Serve) -> None:
    async with serve() as server:
        status, sentence = await refused(await server.hello(major=2))
        assert status == 803
        assert "install the same release of rgpu-cuda on both" in sentence


async def test_a_hello_resumes_no_session_and_it_is_not_quietly_replaced(serve: Serve) -> None:
    async with serve() as server:
        status, sentence = await refused(await server.hello(resume_session=7))
        assert status == 46
        assert "resumed by RESUME" in sentence


@pytest.mark.parametrize(
    ("wishes", "text"),
    [
        ([(1, 1_000_001)], "cannot have more than 100% of a device's memory"),
        ([(1, 1 << 63)], "cannot have more than 100% of a device's memory"),
        ([(2, 4)], "the server does not know the policy 4"),
        ([(3, 1 << 63)], "a priority is a number from 0 to 100"),
        ([(4, 0)], "a weight is a number from 1 to 1000, not 0"),
        ([(2, 3), (2, 1)], "the policy fixed needs a share"),
    ],
)
async def test_wishes_that_cannot_be(
    serve: Serve, wishes: list[tuple[int, int]], text: str
) -> None:
    async with serve() as server:
        status, sentence = await refused(
            await server.hello(wishes=tuple(Wish(*wish) for wish in wishes))
        )
        assert status == 46
        assert text in sentence


async def test_wishes_of_a_later_release_and_clients_of_an_earlier_one(serve: Serve) -> None:
    async with serve() as server:
        for fields in ({"wishes": (Wish(999, 5), Wish(1, 500_000))}, {"minor": 0}):
            lane = await server.hello(lease_key=f"k{len(fields)}{fields.keys()}", **fields)
            await welcome(lane)
            await lane.close()
        leases = server.daemon.conductor.node.leases
        assert [lease.quota.memory_bytes for lease in leases] == [4 << 30, 2 << 30]


async def test_who_says_nothing_is_dropped_after_the_deadline(serve: Serve) -> None:
    async with serve(limits=Limits(handshake_seconds=0.2)) as server:
        silent = await server.lane()
        slow = await server.lane(encode_hello(Hello())[:50])
        assert await silent.ended()
        assert await slow.ended()
        assert server.daemon.door.counters.late == 2
        await silent.close()
        await slow.close()


async def test_a_flood_of_silent_connections_does_not_keep_others_out_for_long(
    serve: Serve,
) -> None:
    # All of them come before the first one is too late, also in a process that waits for its turn.
    async with serve(limits=Limits(handshake_seconds=2, handshakes=4)) as server:
        flood = [await server.lane() for _ in range(12)]
        await asyncio.gather(*(lane.ended() for lane in flood))
        assert server.daemon.door.counters.dropped == 8
        lane = await server.hello()
        await welcome(lane)
        for each in (*flood, lane):
            await each.close()


async def test_a_hello_that_comes_byte_by_byte_is_as_good(serve: Serve) -> None:
    async with serve() as server:
        lane = await server.lane()
        for byte in encode_hello(Hello()):
            lane.writer.write(bytes([byte]))
            await lane.writer.drain()
        await welcome(lane)
        await lane.close()


Refusal = Callable[[Any], Awaitable[tuple[int, str]]]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"device": 3}, "there is no device 3: this server offers only device 0"),
        ({"memory_bytes": 9 * GIB}, "which has 8 GiB in all"),
        ({"share_request_ppm": 600_000, "share_limit_ppm": 500_000}, "is above its limit"),
        ({"share_request_ppm": 3_000_000}, "a share is a fraction of one device"),
    ],
)
async def test_a_lease_that_cannot_be(serve: Serve, fields: dict[str, int], text: str) -> None:
    async with serve() as server:
        status, sentence = await refused(await server.hello(**fields))
        assert status == 46
        assert text in sentence


async def test_a_worker_that_dies_while_opening_gives_a_sentence(serve: Serve) -> None:
    async with serve(mode="die") as server:
        status, sentence = await refused(await server.hello())
        assert status == 999
        assert "ended before it was open: the worker ended with exit code 4" in sentence


async def test_what_a_worker_refuses_comes_from_the_worker(serve: Serve) -> None:
    async with serve(mode="refuse") as server:
        assert await refused(await server.hello()) == (46, "the fake worker refuses")
        await server.until(lambda: not list(server.daemon.conductor.node.sessions))


async def test_workers_that_do_not_start_are_said_to_the_client(serve: Serve) -> None:
    async with serve(mode="crash", policy=Policy(warm_workers=1, max_start_failures=2)) as server:
        status, sentence = await refused(await server.hello())
        assert status == 999
        assert "do not start: the worker ended with exit code 3" in sentence


async def test_a_worker_that_is_not_isolated_is_not_used(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(mode="weak", policy=Policy(warm_workers=1, max_start_failures=2)) as server:
        status, sentence = await refused(await server.hello())
        assert status == 999
        assert "it is not isolated as it must be" in sentence
    assert "rgpu does not run without system-calls" in caplog.text


async def test_a_client_that_hangs_up_while_it_waits_is_forgotten(serve: Serve) -> None:
    async with serve(mode="mute") as server:
        lane = await server.hello()
        node = server.daemon.conductor.node
        await server.until(lambda: len(node.sessions) == 1)
        await lane.close()
        await server.until(lambda: len(node.sessions) == 0)


async def test_a_session_that_no_worker_opens_is_refused_in_time(serve: Serve) -> None:
    async with serve(mode="mute", policy=Policy(warm_workers=1, open_seconds=0.3)) as server:
        status, sentence = await refused(await server.hello())
        assert status == 999
        assert "no worker was free; 2 starting, the first for " in sentence


async def test_a_worker_that_does_not_become_ready_is_killed(serve: Serve) -> None:
    policy = Policy(warm_workers=1, start_seconds=0.3, max_start_failures=1)
    async with serve(mode="mute", policy=policy) as server:
        workers = server.daemon.conductor.workers
        await server.until(lambda: len(workers) == 1)
        (worker,) = workers.values()
        _, sentence = await refused(await server.hello())
        assert "do not start: it was not ready after 0.3 s" in sentence
        await server.until(lambda: worker.number not in workers)
        with pytest.raises(ProcessLookupError):
            os.kill(worker.pid, 0)


async def test_a_worker_that_breaks_the_protocol_is_killed(serve: Serve) -> None:
    policy = Policy(warm_workers=1, max_start_failures=1)
    async with serve(mode="garbage", policy=policy) as server:
        node = server.daemon.conductor.node
        await server.until(lambda: node.pools["fake"].broken)
        assert "broke the control protocol" in node.pools["fake"].last_failure


async def test_a_worker_that_ignores_its_end_is_killed(serve: Serve) -> None:
    async with serve(mode="deaf", policy=Policy(warm_workers=1, end_seconds=0.2)) as server:
        lane = await server.hello()
        await welcome(lane)
        node = server.daemon.conductor.node
        server.daemon.stop(end_sessions=True)
        assert await lane.ended()
        await lane.close()
        await server.until(lambda: len(node.sessions) == 0)


async def test_a_worker_that_repeats_itself_is_not_believed(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "rgpu")
    async with serve(mode="eager") as server:
        lane = await server.hello()
        await welcome(lane)
        assert await lane.ended()
        await server.until(lambda: not len(server.daemon.conductor.node.sessions))
        assert server.daemon.conductor.counts.opened == 1
        await lane.close()
    assert "it broke the control protocol: it was ready before" in caplog.text
    assert "a report of its own" not in caplog.text


async def test_a_chatty_worker_neither_blocks_nor_floods_the_log(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "rgpu.worker")
    async with serve(mode="chatty") as server:
        lane = await server.hello()
        await welcome(lane)
        await lane.close()
    lines = [r.getMessage() for r in caplog.records if r.name == "rgpu.worker"]
    assert sum(map(len, lines)) < 200_000
    assert any("prints too much" in line for line in lines)


async def test_a_server_without_descriptors_refuses_and_goes_on(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve() as server:

        def no_page(quota: object) -> None:
            raise OSError(24, "Too many open files")

        with monkeypatch.context() as patch:
            patch.setattr("rgpu_server.lease_pages.LeasePage", no_page)
            status, sentence = await refused(await server.hello(lease_key="one"))
            assert status == 999
            assert "ended before it was open" in sentence
        lane = await server.hello(lease_key="two")
        await welcome(lane)
        await lane.close()
