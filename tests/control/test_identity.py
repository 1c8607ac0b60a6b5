"""Permissions for sessions and the API, with tokens, certificates and users of this machine."""

from __future__ import annotations

import asyncio
import json
import os
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from helpers.relay import INSIDE, relay

from rgpu_common.v1 import (
    lease_pb2,
    lease_pb2_grpc,
    node_pb2,
    node_pb2_grpc,
    observe_pb2,
    observe_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
)
from rgpu_common.wire.attach import Attach, encode_attach
from rgpu_common.wire.handshake import Handshake
from rgpu_common.wire.hello import Hello, encode_hello
from rgpu_common.wire.preface import Preface, encode_preface
from rgpu_common.wire.refused import decode_refused
from rgpu_common.wire.welcome import decode_welcome
from rgpu_server.config import Limits
from rgpu_server.core.identity import Require
from rgpu_server.identity.settings import Identity
from rgpu_server.identity.tokens import TokenRow, changing, make_token
from rgpu_server.service import callers

pytestmark = pytest.mark.asyncio
Serve = Callable[..., Any]
GIB = 1 << 30
NOW = 1_700_000_000.0
REMOTE = Preface("tls", "192.0.2.7:5123")
DENIED, UNKNOWN = grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED


@dataclass
class Keys:
    """A tokens file with tokens of alice, bob and ops."""

    path: Path
    alice: str = ""
    bob: str = ""
    ops: str = ""

    def add(self, tenant: str, expires: float | None = None) -> tuple[str, TokenRow]:
        token, row = make_token(tenant, NOW, expires)
        with changing(self.path) as rows:
            rows.append(row)
        return token, row

    def identity(self, **fields: Any) -> Identity:
        return Identity(tokens=str(self.path), operators=("ops",), **fields)


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    found = Keys(tmp_path / "tokens.toml")
    for tenant in ("alice", "bob", "ops"):
        setattr(found, tenant, found.add(tenant)[0])
    return found


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


async def test_a_token_names_the_tenant_of_a_session(serve: Serve, keys: Keys) -> None:
    async with serve(identity=keys.identity()) as server:
        assert await knock(server, Hello(token=keys.alice)) == "alice"
        assert await knock(server, Hello(token=keys.alice, tenant="alice")) == "alice"
        assert await knock(server, Hello(token=keys.ops, tenant="bob")) == "bob"
        sentence = await knock(server, Hello(token=keys.alice, tenant="bob"))
        assert "tenant 'alice'" in sentence
        assert "without a token" in await knock(server, Hello())
        assert "not valid" in await knock(server, Hello(token="rgpu_x"))
        assert "not valid" in await knock(server, Hello(token=keys.alice[:-1]))
        gate = server.daemon.gate
        assert gate.admitted == {"token": 4}
        assert gate.refused == {"session": 4}


async def test_a_certificate_names_the_tenant_of_a_session(serve: Serve, keys: Keys) -> None:
    alice = replace(REMOTE, tenant="alice", authenticated=True)
    nobody = replace(REMOTE, authenticated=True)
    async with serve(identity=keys.identity()) as server:
        assert await knock(server, Hello(), alice) == "alice"
        assert "tenant 'alice'" in await knock(server, Hello(tenant="bob"), alice)
        assert await knock(server, Hello(token=keys.alice), alice) == "alice"
        assert "one of the two" in await knock(server, Hello(token=keys.bob), alice)
        assert "without a token" in await knock(server, Hello(), nobody)
        assert await knock(server, Hello(token=keys.bob), nobody) == "bob"


async def test_a_revoked_token_is_worthless_at_once(serve: Serve, keys: Keys) -> None:
    token, row = keys.add("carol")
    old, _ = keys.add("dave", expires=NOW + 1)
    async with serve(identity=keys.identity()) as server:
        assert await knock(server, Hello(token=token)) == "carol"
        assert "has expired" in await knock(server, Hello(token=old))
        with changing(keys.path) as rows:
            rows.remove(row)
        assert "was revoked" in await knock(server, Hello(token=token))
        again, _ = keys.add("carol")
        assert await knock(server, Hello(token=again)) == "carol"


async def test_the_worker_never_sees_a_token(serve: Serve, keys: Keys) -> None:
    async with serve(identity=keys.identity()) as server:
        hello = Hello(token=keys.alice, program="p", wishes=((1, 250_000),))  # type: ignore[arg-type]
        lane = await server.lane(encode_preface(REMOTE) + encode_hello(hello), INSIDE)
        header, head = await lane.frame()
        assert header.opcode == Handshake.WELCOME
        (visitor,) = [server.daemon.conductor.desk.get(decode_welcome(head).session)]
        assert keys.alice.encode() not in visitor.head
        assert visitor.hello == replace(hello, token="")
        assert visitor.secret.hex() not in repr(visitor)
        assert repr(visitor.secret) not in repr(visitor)
        assert decode_welcome(head).memory_limit_bytes == 2 * GIB
        await lane.close()


async def test_this_machine_is_believed_unless_always_is_said(serve: Serve, keys: Keys) -> None:
    local = Preface("tls", "127.0.0.1:5123")
    async with serve(identity=keys.identity()) as server:
        assert await knock(server, Hello(tenant="carol"), local) == "carol"
        lane = await server.hello(tenant="carol")
        assert (await lane.frame())[0].opcode == Handshake.WELCOME
        await lane.close()
    async with serve(identity=keys.identity(require=Require.ALWAYS)) as server:
        assert "without a token" in await knock(server, Hello(tenant="carol"), local)
        lane = await server.hello(tenant="carol")
        assert (await lane.frame())[0].opcode == Handshake.REFUSED
        await lane.close()
        assert await knock(server, Hello(token=keys.bob), local) == "bob"


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
        assert server.daemon.gate.admitted == {"user": 3, "owner": 1}


class Api:
    """The API over a gateway, as a tenant."""

    def __init__(self, channel: grpc.aio.Channel, token: str) -> None:
        self.leases = lease_pb2_grpc.LeaseServiceStub(channel)
        self.sessions = session_pb2_grpc.SessionServiceStub(channel)
        self.node = node_pb2_grpc.NodeServiceStub(channel)
        self.observe = observe_pb2_grpc.ObserveServiceStub(channel)
        self.metadata = (("authorization", f"Bearer {token}"),) if token else ()

    async def __call__(self, method: Any, request: Any) -> Any:
        return await method(request, metadata=self.metadata)

    async def fails(self, method: Any, request: Any) -> tuple[grpc.StatusCode, str]:
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await self(method, request)
        return error.value.code(), error.value.details() or ""

    async def grant(self, key: str, tenant: str = "") -> lease_pb2.Lease:
        request = lease_pb2.GrantLeaseRequest(key=key, tenant=tenant, ttl_seconds=60)
        return (await self(self.leases.GrantLease, request)).lease


@asynccontextmanager
async def apis(server: Any, keys: Keys) -> AsyncIterator[tuple[Api, Api, Api, Api]]:
    async with (
        relay(server, REMOTE) as where,
        grpc.aio.insecure_channel(str(where)) as channel,
    ):
        yield tuple(Api(channel, t) for t in (keys.alice, keys.bob, keys.ops, ""))  # type: ignore[misc]


async def test_the_api_lets_nobody_in_without_a_token(serve: Serve, keys: Keys) -> None:
    async with serve(identity=keys.identity()) as server, apis(server, keys) as (_, _, _, nobody):
        for stub, method, request in (
            (nobody.leases, "ListLeases", lease_pb2.ListLeasesRequest()),
            (nobody.node, "GetNode", node_pb2.GetNodeRequest()),
            (nobody.observe, "GetNow", observe_pb2.GetNowRequest()),
        ):
            code, sentence = await nobody.fails(getattr(stub, method), request)
            assert code is UNKNOWN
            assert "RGPU_TOKEN_FILE" in sentence
        nobody.metadata = (("authorization", f"Bearer {keys.alice}x"),)
        code, sentence = await nobody.fails(nobody.node.GetNode, node_pb2.GetNodeRequest())
        assert code is UNKNOWN
        assert "not valid" in sentence


async def test_calls_that_are_not_let_in_hold_no_place_of_the_api(serve: Serve, keys: Keys) -> None:
    limits = Limits(control_connections=1)
    async with (
        serve(identity=keys.identity(), limits=limits) as server,
        relay(server, REMOTE) as where,
        grpc.aio.insecure_channel(str(where)) as strange,
        grpc.aio.insecure_channel(str(where), [("grpc.use_local_subchannel_pool", 1)]) as own,
    ):
        nobody, ops = Api(strange, ""), Api(own, keys.ops)
        assert (await nobody.fails(nobody.node.GetNode, node_pb2.GetNodeRequest()))[0] is UNKNOWN
        await ops(ops.node.DrainNode, node_pb2.DrainNodeRequest())
        assert server.daemon.door.counters.dropped == 1


async def test_a_tenant_sees_and_changes_its_own(serve: Serve, keys: Keys) -> None:
    async with (
        serve(identity=keys.identity()) as server,
        apis(server, keys) as (alice, bob, ops, _),
    ):
        hers, his = await alice.grant("a"), await bob.grant("b")
        assert (hers.tenant, his.tenant) == ("alice", "bob")
        request = lease_pb2.GrantLeaseRequest(key="x", tenant="alice")
        assert (await bob.fails(bob.leases.GrantLease, request))[0] is DENIED
        for method, kind in (
            (bob.leases.KeepAliveLease, lease_pb2.KeepAliveLeaseRequest),
            (bob.leases.ResizeLease, lease_pb2.ResizeLeaseRequest),
            (bob.leases.PauseLease, lease_pb2.PauseLeaseRequest),
            (bob.leases.ResumeLease, lease_pb2.ResumeLeaseRequest),
            (bob.leases.RevokeLease, lease_pb2.RevokeLeaseRequest),
        ):
            there = await bob.fails(method, kind(lease_id=hers.lease_id))
            nowhere = await bob.fails(method, kind(lease_id="lease-99"))
            assert there[0] is nowhere[0] is grpc.StatusCode.NOT_FOUND
            assert there[1].replace(hers.lease_id, "lease-99") == nowhere[1]
            await bob(method, kind(lease_id=his.lease_id))
        usage = session_pb2.GetUsageRequest(lease_id=hers.lease_id)
        assert (await bob.fails(bob.sessions.GetUsage, usage))[0] is grpc.StatusCode.NOT_FOUND
        everything = lease_pb2.ListLeasesRequest()
        for who, seen in ((alice, {"alice"}), (bob, set()), (ops, {"alice"})):
            answer = await who(who.leases.ListLeases, everything)
            assert {lease.tenant for lease in answer.leases} == seen
            now = await who(who.observe.GetNow, observe_pb2.GetNowRequest())
            assert {lease.tenant for lease in now.leases} == seen
            usage = await who(who.sessions.GetUsage, session_pb2.GetUsageRequest())
            assert {lease.tenant for lease in usage.leases} == seen
            tenants = await who(who.node.ListTenants, node_pb2.ListTenantsRequest())
            assert {quota.tenant for quota in tenants.quotas} == seen
        for who, code in ((bob, DENIED), (alice, None), (ops, None)):
            for method, request in (
                (who.leases.ListLeases, lease_pb2.ListLeasesRequest(tenant="alice")),
                (who.sessions.ListSessions, session_pb2.ListSessionsRequest(tenant="alice")),
            ):
                if code is None:
                    await who(method, request)
                else:
                    assert (await who.fails(method, request))[0] is code


async def test_sessions_are_shown_to_their_tenant(serve: Serve, keys: Keys) -> None:
    async with (
        serve(identity=keys.identity()) as server,
        apis(server, keys) as (alice, bob, ops, _),
    ):
        lane = await server.hello(token=keys.alice)
        assert (await lane.frame())[0].opcode == Handshake.WELCOME
        for who, seen in ((alice, ["alice"]), (bob, []), (ops, ["alice"])):
            answer = await who(who.sessions.ListSessions, session_pb2.ListSessionsRequest())
            assert [session.tenant for session in answer.sessions] == seen
        await lane.close()


async def test_operators_actions_are_for_operators(serve: Serve, keys: Keys) -> None:
    drain, undrain = node_pb2.DrainNodeRequest(), node_pb2.UndrainNodeRequest()
    async with serve(identity=keys.identity()) as server, apis(server, keys) as (alice, _, ops, _):
        assert (await alice.fails(alice.node.DrainNode, drain))[0] is DENIED
        await ops(ops.node.DrainNode, drain)
        assert (await alice.fails(alice.node.UndrainNode, undrain))[0] is DENIED
        await ops(ops.node.UndrainNode, undrain)
        hers = await alice.grant("a")
        pause = lease_pb2.PauseLeaseRequest(lease_id=hers.lease_id)
        resume = lease_pb2.ResumeLeaseRequest(lease_id=hers.lease_id)
        await alice(alice.leases.PauseLease, pause)
        await alice(alice.leases.ResumeLease, resume)
        await ops(ops.leases.PauseLease, pause)
        code, sentence = await alice.fails(alice.leases.ResumeLease, resume)
        assert code is DENIED
        assert "operator" in sentence
        await ops(ops.leases.ResumeLease, resume)
        revoke = lease_pb2.RevokeLeaseRequest(lease_id=hers.lease_id)
        await ops(ops.leases.RevokeLease, revoke)
        # Over TCP a client of this machine may name any tenant, but is no operator; the server's
        # user is.
        async with grpc.aio.insecure_channel(str(server.tcp)) as channel:
            stub = node_pb2_grpc.NodeServiceStub(channel)
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await stub.DrainNode(drain)
            assert error.value.code() is DENIED
        unix = next(str(e) for e in server.endpoints if str(e).startswith("unix"))
        async with grpc.aio.insecure_channel(unix) as channel:
            await node_pb2_grpc.NodeServiceStub(channel).DrainNode(drain)


async def test_the_api_behind_the_door_is_nobodys(serve: Serve) -> None:
    async with (
        serve() as server,
        grpc.aio.insecure_channel(server.daemon._api_address) as channel,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await node_pb2_grpc.NodeServiceStub(channel).GetNode(node_pb2.GetNodeRequest())
        assert error.value.code() is UNKNOWN


async def test_a_flood_of_bad_tokens_hurts_nobody_else(
    serve: Serve, keys: Keys, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with serve(identity=keys.identity()) as server:
        frame = encode_preface(REMOTE) + encode_hello(Hello(token="rgpu_0123456789ab_" + "x" * 43))
        answered = 0
        for _ in range(10):
            lanes = await asyncio.gather(*(server.lane(frame, INSIDE) for _ in range(30)))
            for lane in lanes:
                answered += bool(await lane.reader.read())
                await lane.close()
        assert answered == 10
        # A client with a token is accepted meanwhile, also from the same address.
        assert await knock(server, Hello(token=keys.alice)) == "alice"
        other = replace(REMOTE, peer="192.0.2.8:1")
        assert "not valid" in await knock(server, Hello(token="wrong"), other)
        gate = server.daemon.gate
        assert (gate.refused["session"], gate.unanswered) == (301, 290)
    noted = [json.loads(r.message) for r in caplog.records if r.name == "rgpu.audit"]
    noted = [line for line in noted if line["event"] == "identity_refused"]
    assert len(noted) == 11
    assert noted[0]["reason"] == "not identified"
    assert (noted[0]["peer"], noted[0]["transport"]) == ("192.0.2.7", "tls")
    assert "x" * 43 not in caplog.text
    assert keys.alice not in caplog.text


async def test_guesses_of_a_lanes_secret_are_bounded(serve: Serve, keys: Keys) -> None:
    async with serve(identity=keys.identity()) as server:
        answers = 0
        for guess in range(30):
            lane = await server.lane(encode_attach(Attach(1, bytes([guess]) * 32)))
            answers += bool(await lane.reader.read())
            await lane.close()
        assert answers == 10
        assert server.daemon.gate.refused == {"lane": 30}


async def test_metrics_are_for_operators(
    serve: Serve, keys: Keys, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with serve(identity=keys.identity(require=Require.ALWAYS)) as server:
        (where,) = [r.message.split()[-1] for r in caplog.records if "metrics on" in r.message]

        def get(token: str, path: str = "") -> int:
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            request = urllib.request.Request(path or where, headers=headers)
            try:
                with urllib.request.urlopen(request, timeout=10) as answer:
                    return int(answer.status)
            except urllib.error.HTTPError as error:
                return error.code

        found = [await asyncio.to_thread(get, t) for t in ("", "x", keys.alice, keys.ops)]
        assert found == [401, 401, 401, 200]
        assert await asyncio.to_thread(get, "", where.replace("/metrics", "/health")) == 200
        assert server.daemon.gate.refused == {"metrics": 3}
