"""Connections from gateways: a gateway names its client's tenant, and no other connection may do
that.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from helpers.relay import INSIDE

from rgpu_common.v1 import session_pb2, session_pb2_grpc
from rgpu_common.wire.attach import Attach, encode_attach
from rgpu_common.wire.handshake import Handshake
from rgpu_common.wire.hello import Hello, encode_hello
from rgpu_common.wire.preface import Preface, encode_preface
from rgpu_common.wire.refused import decode_refused
from rgpu_common.wire.welcome import decode_welcome
from rgpu_server.service import callers

pytestmark = pytest.mark.asyncio
Serve = Callable[..., Any]
ALICE = Preface("tls", "192.0.2.7:5123", "alice", True)


async def refused(lane: Any) -> str:
    header, head = await lane.frame()
    assert header.opcode == Handshake.REFUSED
    assert await lane.ended()
    await lane.close()
    return decode_refused(head).sentence


async def test_a_session_comes_over_a_gateway(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "rgpu.audit")
    async with serve() as server:
        first = encode_preface(ALICE) + encode_hello(Hello(program="saxpy", tenant="alice"))
        lane = await server.lane(first, INSIDE)
        header, head = await lane.frame()
        assert header.opcode == Handshake.WELCOME
        welcome = decode_welcome(head)
        second = encode_preface(ALICE) + encode_attach(Attach(welcome.session, welcome.secret))
        control = await server.lane(second, INSIDE)
        header, _ = await control.frame()
        assert header.opcode == Handshake.ATTACHED
        (view,) = server.daemon.observer.sessions()
        assert (view.transport, view.peer, view.session.tenant) == ("tls", "192.0.2.7", "alice")
        async with grpc.aio.insecure_channel(str(server.tcp)) as channel:
            stub = session_pb2_grpc.SessionServiceStub(channel)
            answer = await stub.ListSessions(session_pb2.ListSessionsRequest())
        assert [s.transport for s in answer.sessions] == ["tls"]
        assert server.daemon.door.counters.by_transport == {"tls": 2, "tcp": 1}
        await control.close()
        await lane.close()
    lines = [json.loads(record.message) for record in caplog.records]
    (line,) = [line for line in lines if line["event"] == "session_assigned"]
    assert (line["transport"], line["peer"]) == ("tls", "192.0.2.7")


async def test_the_api_is_reached_over_a_gateway(serve: Serve) -> None:
    async with serve() as server:
        lane = await server.lane(
            encode_preface(ALICE) + b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", INSIDE
        )
        # The server's SETTINGS come first: three bytes of length, then type 4.
        assert (await lane.reader.readexactly(9))[3] == 4
        await lane.close()


@pytest.mark.parametrize(
    "first",
    [
        encode_hello(Hello()),
        encode_preface(ALICE) * 2,
        encode_preface(Preface("")),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(40),
        encode_preface(Preface("tls", "p" * 900)),
    ],
    ids=["no preface", "two", "no transport", "http/2", "too long"],
)
async def test_a_gateway_begins_with_one_preface(serve: Serve, first: bytes) -> None:
    async with serve() as server:
        assert "rgpu" in await refused(await server.lane(first, INSIDE))


@pytest.mark.parametrize("transport", ["tcp", "unix"])
async def test_a_client_cannot_say_a_preface(serve: Serve, transport: str) -> None:
    async with serve() as server:
        endpoint = next(
            e for e in server.endpoints if str(e).startswith("unix") == (transport == "unix")
        )
        first = encode_preface(ALICE) + encode_hello(Hello())
        assert "message 8" in await refused(await server.lane(first, endpoint))
        assert list(server.daemon.conductor.node.sessions) == []


async def test_gateways_have_no_socket_that_others_could_connect_to(serve: Serve) -> None:
    async with serve() as server:
        sockets = {p.name for p in server.daemon.state.rglob("*") if p.is_socket()}
        assert sockets <= {"api", "loop"}


async def test_a_peer_is_who_the_kernel_says() -> None:
    here, there = socket.socketpair()
    with here, there:
        assert callers.peer_uid(here) == os.geteuid()
    assert callers.is_own_uid(os.geteuid())
    assert not callers.is_own_uid(os.geteuid() + 1)


@pytest.mark.parametrize(
    ("peer", "name"),
    [
        ("192.0.2.7:5123", "192.0.2.7"),
        ("[2001:db8::1]:5123", "2001:db8::1"),
        ("[::ffff:192.0.2.7]:1", "192.0.2.7"),
        ("127.0.0.1:9", "local"),
        ("[::1]:9", "local"),
        ("", "unknown"),
        ("somewhere", "somewhere"),
    ],
)
async def test_the_peer_of_a_gateway_loses_its_port(peer: str, name: str) -> None:
    assert callers.carried_by(Preface("tls", peer)).peer == name
