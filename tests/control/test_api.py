"""The control-plane API through the front door, with the client's own code."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from rgpu_client.control import ControlClient, LeaseRequest, ResizeRequest
from rgpu_common.endpoints import Endpoint, parse_endpoint
from rgpu_common.errors import ServerError
from rgpu_common.v1 import observe_pb2, observe_pb2_grpc
from rgpu_common.wire.handshake import Handshake
from rgpu_common.wire.refused import decode_refused
from rgpu_server.config import Limits
from rgpu_server.core.leases import LeaseBook
from rgpu_server.core.policy import Policy
from rgpu_server.core.quota import Quotas
from rgpu_server.service import observing
from rgpu_server.service.control import Control

pytestmark = pytest.mark.asyncio
Serve = Callable[..., Any]
GIB = 1 << 30


async def ask(endpoint: Endpoint, work: Callable[[ControlClient], Any]) -> Any:
    """Runs the blocking client in a thread beside the daemon's loop."""

    def blocking() -> Any:
        with ControlClient(endpoint) as client:
            return work(client)

    return await asyncio.to_thread(blocking)


@pytest.mark.parametrize("transport", ["tcp", "unix"])
async def test_devices(serve: Serve, transport: str) -> None:
    async with serve() as server:
        endpoint = next(
            e for e in server.endpoints if str(e).startswith("unix") == (transport == "unix")
        )
        answer = await ask(endpoint, lambda c: c.devices())
        (device,) = answer.devices
        assert (device.ordinal, device.name, device.memory_bytes) == (0, "fake device", 8 * GIB)
        assert (answer.wire_major, device.leases, device.sessions) == (1, 0, 0)


async def test_a_lease_from_grant_to_revoke(serve: Serve) -> None:
    def life(client: ControlClient) -> tuple[Any, ...]:
        request = LeaseRequest(
            tenant="alice",
            key="job",
            memory_bytes=2 * GIB,
            share_request_ppm=400_000,
            share_limit_ppm=700_000,
            ttl_seconds=60.0,
        )
        lease = client.grant(request)
        again = client.grant(request)
        left = client.keep_alive(lease.lease_id)
        resized = client.resize(lease.lease_id, ResizeRequest(memory_bytes=3 * GIB)).lease
        listed = client.leases("alice")
        others = client.leases("bob")
        usage = client.usage(lease.lease_id)
        ended = client.revoke(lease.lease_id)
        return lease, again, left, resized, listed, others, usage, ended, client.leases()

    async with serve() as server:
        lease, again, left, resized, listed, others, usage, ended, after = await ask(
            server.tcp, life
        )
    assert again.lease_id == lease.lease_id
    assert (lease.tenant, lease.key, lease.explicit) == ("alice", "job", True)
    assert 55 < left <= 60
    assert resized.quota.memory_bytes == 3 * GIB
    assert (resized.quota.share_request_ppm, resized.quota.share_limit_ppm) == (400_000, 700_000)
    assert [entry.lease_id for entry in listed] == [lease.lease_id]
    assert (others, after, ended) == ([], [], 0)
    assert usage[0].memory_limit_bytes == 3 * GIB


async def test_to_keep_a_lease_alive_costs_the_same_among_many(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before: each keep-alive looked at all leases, to say what they borrow: 5 ms among 1,000."""
    looks = []
    borrowing = LeaseBook.borrowing

    def looked(book: LeaseBook) -> Any:
        looks.append(book)
        return borrowing(book)

    async with serve() as server:
        request = LeaseRequest(tenant="alice", key="job", memory_bytes=GIB, ttl_seconds=60.0)
        lease = await ask(server.tcp, lambda c: c.grant(request))
        monkeypatch.setattr(LeaseBook, "borrowing", looked)
        left = await ask(server.tcp, lambda c: c.keep_alive(lease.lease_id))
        assert 55 < left <= 60
        assert looks == []
        await ask(server.tcp, lambda c: c.leases())
        assert looks != []


async def test_loans_are_found_out_once_for_each_change_of_what_leases_hold(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before: each answer about a lease looked at all leases to say what it borrows: 3 ms among
    1,000.
    """
    looks = []
    borrowing = Quotas.borrowing

    def looked(quotas: Quotas, holdings: Any) -> Any:
        looks.append(holdings)
        return borrowing(quotas, holdings)

    async with serve() as server:
        request = LeaseRequest(tenant="alice", key="job", memory_bytes=GIB, ttl_seconds=60.0)
        lease = await ask(server.tcp, lambda c: c.grant(request))
        monkeypatch.setattr(Quotas, "borrowing", looked)
        for _ in range(3):
            await ask(server.tcp, lambda c: c.pause(lease.lease_id))
            await ask(server.tcp, lambda c: c.resume(lease.lease_id))
            await ask(server.tcp, lambda c: c.grant(request))
        assert looks == []
        await ask(server.tcp, lambda c: c.resize(lease.lease_id, ResizeRequest(2 * GIB)))
        assert len(looks) == 1
        await ask(server.tcp, lambda c: c.leases())
        await ask(server.tcp, lambda c: c.revoke(lease.lease_id))
        await ask(server.tcp, lambda c: c.leases())
        assert len(looks) == 2


@pytest.mark.parametrize(
    ("work", "text"),
    [
        (lambda c: c.grant(LeaseRequest(memory_bytes=9 * GIB)), "which has 8 GiB in all"),
        (lambda c: c.grant(LeaseRequest(device=4)), "there is no device 4"),
        (lambda c: c.grant(LeaseRequest(key="line\nbreak")), "printable characters"),
        (lambda c: c.grant(LeaseRequest(key="x" * 300)), "at most 256 printable characters"),
        (lambda c: c.keep_alive("lease-99"), "there is no lease 'lease-99'"),
        (lambda c: c.revoke(""), "there is no lease ''"),
        (lambda c: c.resize("lease-1", ResizeRequest(1)), "there is no lease 'lease-1'"),
        (lambda c: c.usage("lease-1"), "there is no lease 'lease-1'"),
    ],
)
async def test_refusals_are_sentences(
    serve: Serve, work: Callable[[ControlClient], Any], text: str
) -> None:
    async with serve() as server:
        with pytest.raises(ServerError, match=text):
            await ask(server.tcp, work)


async def test_a_session_shows_in_all_lists_and_ends_with_its_lease(serve: Serve) -> None:
    def look(client: ControlClient) -> tuple[Any, ...]:
        return client.sessions("alice"), client.leases("alice"), client.devices().devices[0]

    async with serve() as server:
        await ask(
            server.tcp, lambda c: c.grant(LeaseRequest(tenant="alice", key="job", memory_bytes=GIB))
        )
        lane = await server.hello(tenant="alice", lease_key="job", program="saxpy", pid=77)
        await lane.frame()
        sessions, leases, device = await ask(server.tcp, look)
        assert [(s.program, s.client_pid, s.lease_key) for s in sessions] == [("saxpy", 77, "job")]
        assert sessions[0].usage.memory_used_bytes == 1000
        assert sessions[0].worker_pid > 0
        assert [list(entry.session_ids) for entry in leases] == [[sessions[0].session_id]]
        assert (device.leased_memory_bytes, device.used_memory_bytes, device.sessions) == (
            GIB,
            1000,
            1,
        )
        assert await ask(server.tcp, lambda c: c.revoke(leases[0].lease_id)) == 1
        assert await lane.ended()
        await lane.close()
        node = server.daemon.conductor.node
        await server.until(lambda: not list(node.leases))
        again = await server.hello(tenant="alice", lease_key="job")
        header, head = await again.frame()
        assert (header.opcode, header.status) == (Handshake.REFUSED, 46)
        assert "was revoked" in decode_refused(head).sentence
        await again.close()


async def test_counters_of_ended_sessions_stay_with_the_lease(serve: Serve) -> None:
    async with serve() as server:
        await ask(server.tcp, lambda c: c.grant(LeaseRequest(key="job", memory_bytes=GIB)))
        node = server.daemon.conductor.node
        for _ in range(2):
            lane = await server.hello(lease_key="job")
            await lane.frame()
            await lane.close()
            await server.until(lambda: len(node.sessions) == 0)
        (lease,) = await ask(server.tcp, lambda c: c.usage())
        usage = lease.usage
        assert (usage.memory_used_bytes, usage.memory_peak_bytes) == (0, 2000)
        assert (usage.launches, usage.copied_bytes, usage.refused_allocations) == (6, 8, 12)


async def test_a_lease_that_nobody_keeps_alive_ends_its_session(serve: Serve) -> None:
    async with serve(policy=Policy(warm_workers=1)) as server:
        request = LeaseRequest(key="job", memory_bytes=GIB, ttl_seconds=600)
        lease = await ask(server.tcp, lambda c: c.grant(request))
        lane = await server.hello(lease_key="job")
        await lane.frame()
        # Short only now, so that its session comes before that however busy the machine is.
        Control(server.daemon.conductor).keep_alive(lease.lease_id, 1)
        assert await lane.ended()
        await lane.close()


async def test_nobody_at_the_port() -> None:
    with pytest.raises(ServerError, match=r"nothing listens at 127\.0\.0\.1:1: start"):
        await ask(parse_endpoint("127.0.0.1:1"), lambda c: c.devices())


HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


async def test_api_connections_are_limited(serve: Serve) -> None:
    async with serve(limits=Limits(control_connections=1)) as server:
        with ControlClient(server.tcp) as client:
            await asyncio.to_thread(client.devices)
            # Who has made no call costs others nothing, and makes room for the next such one.
            second, third = await server.lane(HTTP2), await server.lane(HTTP2)
            await second.reader.read()
            await asyncio.to_thread(client.devices)
            assert server.daemon.door.counters.connections == 3
            # The server's own user gets in whoever is there.
            unix = next(e for e in server.endpoints if str(e).startswith("unix"))
            await ask(unix, lambda c: c.devices())
            for lane in (second, third):
                await lane.close()
        assert server.daemon.door.counters.dropped == 1


async def test_who_has_made_no_call_of_the_api_makes_room(serve: Serve) -> None:
    async with serve(limits=Limits(control_connections=2)) as server:
        strangers = []
        for _ in range(2):
            lane = await server.lane(HTTP2)
            assert await lane.reader.read(9)
            strangers.append(lane)
        await ask(server.tcp, lambda c: c.devices())
        await strangers[0].reader.read()  # the oldest is gone
        assert server.daemon.door.counters.dropped == 1
        for lane in strangers:
            await lane.close()


async def test_a_connection_without_a_call_is_dropped_after_the_deadline(serve: Serve) -> None:
    # The client's own first call comes in time, also where the processors are busy.
    async with serve(limits=Limits(handshake_seconds=2)) as server:
        with ControlClient(server.tcp) as client:
            await asyncio.to_thread(client.devices)
            silent = await server.lane(HTTP2)
            assert await silent.reader.read(9)
            await silent.reader.read()
            await asyncio.to_thread(client.devices)
            counters = server.daemon.door.counters
            assert (counters.late, counters.connections) == (1, 2)
        await silent.close()


async def test_the_record_is_read_once_at_a_time(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, go_on, at_once, most = threading.Event(), threading.Event(), [0], [0]

    def slow(*_: object, **__: object) -> list[object]:
        at_once[0] += 1
        most[0] = max(most[0], at_once[0])
        started.set()
        assert go_on.wait(60)
        at_once[0] -= 1
        return []

    monkeypatch.setattr(observing, "lines_of", slow)
    async with serve() as server, grpc.aio.insecure_channel(str(server.tcp)) as channel:
        stub = observe_pb2_grpc.ObserveServiceStub(channel)
        first = asyncio.ensure_future(stub.GetRecord(observe_pb2.GetRecordRequest()))
        assert await asyncio.to_thread(started.wait, 20)
        # A cancelled request has cost as much as one whose answer was read.
        first.cancel()
        others = [
            asyncio.ensure_future(stub.GetRecord(observe_pb2.GetRecordRequest())) for _ in range(3)
        ]
        await stub.GetNow(observe_pb2.GetNowRequest())
        go_on.set()
        await asyncio.gather(*others)
        assert most == [1]


async def http(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


async def test_metrics_and_health(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "rgpu.server")
    async with serve() as server:
        text = next(r.getMessage() for r in caplog.records if "metrics on" in r.getMessage())
        port = int(text.rpartition("/")[0].rpartition(":")[2])
        lane = await server.hello(tenant="alice", lease_key="job", memory_bytes=GIB)
        await lane.frame()
        await server.until(lambda: server.daemon.conductor.counts.opened == 1)
        page = (await http(port, b"GET /metrics HTTP/1.1\r\n\r\n")).decode()
        labels = '{device="0",key="job",lease="lease-1",name="",tenant="alice"}'
        for line in (
            f"rgpu_memory_limit_bytes{labels} 1.073741824e+09",
            f"rgpu_memory_used_bytes{labels} 1000.0",
            f"rgpu_launches_total{labels} 3.0",
            f"rgpu_memory_refused_total{labels} 6.0",
            'rgpu_sessions{state="open"} 1.0',
            "rgpu_sessions_opened_total 1.0",
        ):
            assert line in page.splitlines()
        assert (await http(port, b"GET /health HTTP/1.1\r\n\r\n")).endswith(b"\r\n\r\nok\n")
        assert b"404" in await http(port, b"GET / HTTP/1.1\r\n\r\n")
        assert b"405" in await http(port, b"POST /metrics HTTP/1.1\r\n\r\n")
        await lane.close()
