"""Permissions for sessions and the API, by access tokens, certificates and users of this machine."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from control.conftest import RunningDaemon
from helpers.credentials import NOW, Keys
from helpers.credentials import keys_of_a_test as keys_of_a_test
from helpers.relay import INSIDE

from rgpu_common.clock import FakeClock
from rgpu_common.wire.attach import Attach, encode_attach
from rgpu_common.wire.handshake import Handshake
from rgpu_common.wire.hello import Hello, encode_hello
from rgpu_common.wire.preface import Preface, encode_preface
from rgpu_common.wire.refused import decode_refused
from rgpu_common.wire.welcome import decode_welcome
from rgpu_server.core.identity import Require
from rgpu_server.identity.access_tokens import changing
from rgpu_server.service import callers

pytestmark = pytest.mark.asyncio
Serve = Callable[..., Any]
GIB = 1 << 30
REMOTE = Preface("tls", "192.0.2.7:5123")
DENIED, UNKNOWN = grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED


async def knock(server: Any, hello: Hello, preface: Preface = REMOTE) -> Any:
    """A HELLO through a gateway: WELCOME's tenant, or the sentence of REFUSED."""
    lane = await server.lane(endpoint=None if preface is None else INSIDE)
    lane.writer.write(encode_preface(preface) + encode_hello(hello))
    header, head = await lane.frame()
    if header.opcode == Handshake.REFUSED:
        assert header.status == 46
        await lane.close()
        return decode_refused(head).sentence
    welcome = decode_welcome(head)
    session = server.daemon.conductor.node.sessions.get(welcome.session)
    await lane.close()
    await server.until(lambda: server.daemon.conductor.node.sessions.get(welcome.session) is None)
    return session.tenant


async def test_an_access_token_names_the_tenant_of_a_session(serve: Serve, keys: Keys) -> None:
    async with serve(identity=keys.identity()) as server:
        assert await knock(server, Hello(access_token=keys.alice)) == "alice"
        assert await knock(server, Hello(access_token=keys.alice, tenant="alice")) == "alice"
        assert await knock(server, Hello(access_token=keys.ops, tenant="bob")) == "bob"
        sentence = await knock(server, Hello(access_token=keys.alice, tenant="bob"))
        assert "tenant 'alice'" in sentence
        assert "without an access token" in await knock(server, Hello())
        assert "not valid" in await knock(server, Hello(access_token="rgpu_x"))
        assert "not valid" in await knock(server, Hello(access_token=keys.alice[:-1]))
        authenticator = server.daemon.authenticator
        assert authenticator.admitted == {"token": 4}
        assert authenticator.refused == {"session": 4}


async def test_a_certificate_names_the_tenant_of_a_session(serve: Serve, keys: Keys) -> None:
    alice = REMOTE._replace(tenant="alice", authenticated=True)
    nobody = REMOTE._replace(authenticated=True)
    async with serve(identity=keys.identity()) as server:
        assert await knock(server, Hello(), alice) == "alice"
        assert "tenant 'alice'" in await knock(server, Hello(tenant="bob"), alice)
        assert await knock(server, Hello(access_token=keys.alice), alice) == "alice"
        assert "one of the two" in await knock(server, Hello(access_token=keys.bob), alice)
        assert "without an access token" in await knock(server, Hello(), nobody)
        assert await knock(server, Hello(access_token=keys.bob), nobody) == "bob"


async def test_a_revoked_access_token_is_worthless_at_once(serve: Serve, keys: Keys) -> None:
    access_token, row = keys.add("carol")
    old, _ = keys.add("dave", expires=NOW + 1)
    async with serve(identity=keys.identity()) as server:
        assert await knock(server, Hello(access_token=access_token)) == "carol"
        assert "has expired" in await knock(server, Hello(access_token=old))
        with changing(keys.path) as rows:
            rows.remove(row)
        assert "was revoked" in await knock(server, Hello(access_token=access_token))
        again, _ = keys.add("carol")
        assert await knock(server, Hello(access_token=again)) == "carol"


async def test_the_worker_never_sees_an_access_token(serve: Serve, keys: Keys) -> None:
    async with serve(identity=keys.identity()) as server:
        hello = Hello(access_token=keys.alice, program="p", wishes=((1, 250_000),))  # type: ignore[arg-type]
        lane = await server.lane(encode_preface(REMOTE) + encode_hello(hello), INSIDE)
        header, head = await lane.frame()
        assert header.opcode == Handshake.WELCOME
        (visitor,) = [server.daemon.conductor.desk.get(decode_welcome(head).session)]
        assert keys.alice.encode() not in visitor.head
        assert visitor.hello == hello._replace(access_token="")
        assert visitor.secret.hex() not in repr(visitor)
        assert repr(visitor.secret) not in repr(visitor)
        assert decode_welcome(head).memory_limit_bytes == 2 * GIB
        await lane.close()


async def test_this_machine_is_the_default_tenant_unless_always_is_said(
    serve: Serve, keys: Keys
) -> None:
    """A process of the server's machine that shows nothing cannot be a tenant who has an access
    token.
    """
    local = Preface("tls", "127.0.0.1:5123")
    async with serve() as server:
        assert await knock(server, Hello(tenant="carol"), local) == "carol"
    async with serve(identity=keys.identity()) as server:
        assert await knock(server, Hello(), local) == "default"
        assert "you are tenant 'default' here" in await knock(server, Hello(tenant="bob"), local)
        lane = await server.hello()
        assert (await lane.frame())[0].opcode == Handshake.WELCOME
        await lane.close()
        lane = await server.hello(tenant="bob")
        assert (await lane.frame())[0].opcode == Handshake.REFUSED
        await lane.close()
    async with serve(identity=keys.identity(require=Require.ALWAYS)) as server:
        assert "without an access token" in await knock(server, Hello(tenant="carol"), local)
        lane = await server.hello(tenant="carol")
        assert (await lane.frame())[0].opcode == Handshake.REFUSED
        await lane.close()
        assert await knock(server, Hello(access_token=keys.bob), local) == "bob"


async def test_users_of_this_machine_are_tenants(
    serve: Serve, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    def of(uid: int) -> None:
        monkeypatch.setattr(callers, "peer_uid", lambda _: uid)

    async with serve(identity=keys.identity(users={4711: "alice"})) as server:
        unix = next(e for e in server.endpoints if str(e).startswith("unix"))
        for uid, tenant, opcode in (
            (4711, "", Handshake.WELCOME),
            (4711, "alice", Handshake.WELCOME),
            (4711, "bob", Handshake.REFUSED),
            (4712, "", Handshake.REFUSED),
            (os.geteuid(), "bob", Handshake.WELCOME),
        ):
            of(uid)
            lane = await server.hello(unix, tenant=tenant)
            assert (await lane.frame())[0].opcode == opcode, (uid, tenant)
            await lane.close()
        assert server.daemon.authenticator.admitted == {"user": 3, "owner": 1}


def stop_time(server: RunningDaemon) -> None:
    """Has the server answer no more failures than it does at once: later it answers one in six
    seconds, and a busy machine may take those.
    """
    server.daemon.authenticator._clock = FakeClock()


async def test_a_flood_of_bad_access_tokens_hurts_nobody_else(
    serve: Serve, keys: Keys, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with serve(identity=keys.identity()) as server:
        stop_time(server)
        frame = encode_preface(REMOTE) + encode_hello(
            Hello(access_token="rgpu_0123456789ab_" + "x" * 43)
        )
        answered = 0
        for _ in range(10):
            lanes = await asyncio.gather(*(server.lane(frame, INSIDE) for _ in range(30)))
            for lane in lanes:
                answered += bool(await lane.reader.read())
                await lane.close()
        assert answered == 10
        # A client with an access token is accepted meanwhile, also from the same address.
        assert await knock(server, Hello(access_token=keys.alice)) == "alice"
        other = REMOTE._replace(peer="192.0.2.8:1")
        assert "not valid" in await knock(server, Hello(access_token="wrong"), other)
        authenticator = server.daemon.authenticator
        assert (authenticator.refused["session"], authenticator.unanswered) == (301, 290)
    noted = [json.loads(r.message) for r in caplog.records if r.name == "rgpu.audit"]
    noted = [line for line in noted if line["event"] == "identity_refused"]
    assert len(noted) == 11
    assert noted[0]["reason"] == "not identified"
    assert (noted[0]["peer"], noted[0]["transport"]) == ("192.0.2.7", "tls")
    assert "x" * 43 not in caplog.text
    assert keys.alice not in caplog.text


async def test_guesses_of_a_lanes_secret_are_bounded(serve: Serve, keys: Keys) -> None:
    async with serve(identity=keys.identity()) as server:
        stop_time(server)
        answers = 0
        for guess in range(30):
            lane = await server.lane(encode_attach(Attach(1, bytes([guess]) * 32)))
            answers += bool(await lane.reader.read())
            await lane.close()
        assert answers == 10
        assert server.daemon.authenticator.refused == {"lane": 30}
