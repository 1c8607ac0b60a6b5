"""Who may do what at the API."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from helpers.credentials import Keys
from helpers.credentials import keys_of_a_test as keys_of_a_test
from helpers.relay import relay

from rgpu_common.v1 import (
    device_pb2,
    device_pb2_grpc,
    lease_pb2,
    lease_pb2_grpc,
    node_pb2,
    node_pb2_grpc,
    observe_pb2,
    observe_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
)
from rgpu_common.wire.handshake import Handshake
from rgpu_common.wire.preface import Preface
from rgpu_server.config import Limits
from rgpu_server.core.failures import Failures
from rgpu_server.core.identity import Require
from rgpu_server.core.policy import Policy
from rgpu_server.observe import audit
from rgpu_server.observe.refusals import Repeats

pytestmark = pytest.mark.asyncio
Serve = Callable[..., Any]
REMOTE = Preface("tls", "192.0.2.7:5123")
DENIED, UNKNOWN = grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED


class Api:
    """The API over a gateway, as a tenant."""

    def __init__(self, channel: grpc.aio.Channel, access_token: str) -> None:
        self.leases = lease_pb2_grpc.LeaseServiceStub(channel)
        self.sessions = session_pb2_grpc.SessionServiceStub(channel)
        self.devices = device_pb2_grpc.DeviceServiceStub(channel)
        self.node = node_pb2_grpc.NodeServiceStub(channel)
        self.observe = observe_pb2_grpc.ObserveServiceStub(channel)
        self.metadata = (("authorization", f"Bearer {access_token}"),) if access_token else ()

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


async def test_the_api_lets_nobody_in_without_an_access_token(serve: Serve, keys: Keys) -> None:
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


async def test_tenants_leave_each_other_connections(serve: Serve, keys: Keys) -> None:
    pool = [("grpc.use_local_subchannel_pool", 1)]
    get = node_pb2.GetNodeRequest()
    async with (
        serve(identity=keys.identity(), limits=Limits(control_connections=2)) as server,
        relay(server, REMOTE) as where,
        grpc.aio.insecure_channel(str(where), pool) as first,
        grpc.aio.insecure_channel(str(where), pool) as second,
        grpc.aio.insecure_channel(str(where), pool) as third,
        grpc.aio.insecure_channel(str(where), pool) as fourth,
        grpc.aio.insecure_channel(str(where), pool) as fifth,
    ):
        for alice in (Api(first, keys.alice), Api(second, keys.alice)):
            await alice(alice.node.GetNode, get)
        bob = Api(third, keys.bob)
        await bob(bob.node.GetNode, get)
        assert server.daemon.door.counters.dropped == 1
        await alice(alice.node.GetNode, get)
        # Each has one. An operator gets in all the same.
        ops = Api(fourth, keys.ops)
        await ops(ops.node.GetNode, get)
        assert server.daemon.door.counters.dropped == 2
        # The one that had to go finds nobody with more than one.
        again = Api(fifth, keys.alice)
        code, sentence = await again.fails(again.node.GetNode, get)
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "try again later" in sentence


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


async def test_one_tenant_is_not_granted_every_lease(serve: Serve, keys: Keys) -> None:
    """An operator may grant them all, so nobody who has a server alone gets fewer."""
    policy = Policy(warm_workers=0, max_leases=4)
    async with (
        serve(policy=policy, identity=keys.identity()) as server,
        apis(server, keys) as (alice, bob, ops, _),
    ):
        for number in range(2):
            await alice.grant(f"a{number}")
        request = lease_pb2.GrantLeaseRequest(key="more")
        code, sentence = await alice.fails(alice.leases.GrantLease, request)
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "left for other tenants" in sentence
        await bob.grant("b")
        await ops.grant("o", tenant="alice")


async def test_sessions_are_shown_to_their_tenant(serve: Serve, keys: Keys) -> None:
    async with (
        serve(identity=keys.identity()) as server,
        apis(server, keys) as (alice, bob, ops, _),
    ):
        lane = await server.hello(access_token=keys.alice)
        assert (await lane.frame())[0].opcode == Handshake.WELCOME
        for who, seen in ((alice, ["alice"]), (bob, []), (ops, ["alice"])):
            answer = await who(who.sessions.ListSessions, session_pb2.ListSessionsRequest())
            assert [session.tenant for session in answer.sessions] == seen
        await lane.close()


async def test_a_tenant_sees_the_devices_and_how_much_is_free(serve: Serve, keys: Keys) -> None:
    async with serve(identity=keys.identity()) as server, apis(server, keys) as (alice, bob, *_):
        hers = await alice.grant("a")
        answer = await bob(bob.devices.ListDevices, device_pb2.ListDevicesRequest())
        assert hers.quota.memory_bytes > 0
        assert sum(one.leased_memory_bytes for one in answer.devices) == hers.quota.memory_bytes
        assert all(one.memory_bytes >= one.leased_memory_bytes for one in answer.devices)


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


async def twice(who: Any, method: Any, request: Any) -> None:
    """Asks for a change that is there already the second time: then nothing is written down."""
    assert not (await who(method, request)).unchanged
    assert (await who(method, request)).unchanged


async def test_each_change_is_written_down_with_who_asked(
    serve: Serve, keys: Keys, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "rgpu.audit")
    async with (
        serve(identity=keys.identity()) as server,
        apis(server, keys) as (alice, bob, ops, _),
    ):
        lease = (await alice.grant("a")).lease_id
        pause = lease_pb2.PauseLeaseRequest(lease_id=lease)
        await bob.fails(bob.leases.PauseLease, pause)
        resume = lease_pb2.ResumeLeaseRequest(lease_id=lease)
        await twice(ops, ops.leases.PauseLease, pause)
        await twice(ops, ops.leases.ResumeLease, resume)
        await alice(alice.leases.ResizeLease, lease_pb2.ResizeLeaseRequest(lease_id=lease))
        await ops(ops.leases.RevokeLease, lease_pb2.RevokeLeaseRequest(lease_id=lease))
        await twice(ops, ops.node.DrainNode, node_pb2.DrainNodeRequest())
        await twice(ops, ops.node.UndrainNode, node_pb2.UndrainNodeRequest())
    lines = [json.loads(r.message) for r in caplog.records if r.name == "rgpu.audit"]
    noted = [line for line in lines if "by" in line]
    assert [(line["event"], line.get("lease"), line["by"]) for line in noted] == [
        ("lease_paused", lease, "ops"),
        ("lease_resumed", lease, "ops"),
        ("lease_resized", lease, "alice"),
        ("lease_revoked", lease, "ops"),
        ("node_drained", None, "ops"),
        ("node_undrained", None, "ops"),
    ]
    assert {line["tenant"] for line in noted[:4]} == {"alice"}
    assert {(line["proof"], line["peer"]) for line in noted} == {("token", "192.0.2.7")}


async def test_a_tenant_that_pauses_in_a_loop_does_not_fill_the_audit_log(
    serve: Serve, keys: Keys, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO", "rgpu.audit")
    repeats = Repeats()
    repeats._again._written = Failures(burst=10, per_minute=0.0)
    monkeypatch.setattr(audit, "_repeats", repeats)
    async with serve(identity=keys.identity()) as server, apis(server, keys) as (alice, *_):
        lease = (await alice.grant("a")).lease_id
        for _ in range(20):
            await alice(alice.leases.PauseLease, lease_pb2.PauseLeaseRequest(lease_id=lease))
            await alice(alice.leases.ResumeLease, lease_pb2.ResumeLeaseRequest(lease_id=lease))
        await alice(alice.leases.RevokeLease, lease_pb2.RevokeLeaseRequest(lease_id=lease))
    rows = [json.loads(r.getMessage()) for r in caplog.records if r.name == "rgpu.audit"]
    changes = [row for row in rows if row["event"] in ("lease_paused", "lease_resumed")]
    updates = [row for row in rows if row["event"] == "lease_updated"]
    assert len(changes) + len(updates) == 10 + 4
    (revoked,) = (row for row in rows if row["event"] == "lease_revoked")
    assert revoked["left_out"] == 20 * 4 - 14


async def test_the_api_behind_the_door_is_nobodys(serve: Serve) -> None:
    async with (
        serve() as server,
        grpc.aio.insecure_channel(server.daemon._api_address) as channel,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await node_pb2_grpc.NodeServiceStub(channel).GetNode(node_pb2.GetNodeRequest())
        assert error.value.code() is UNKNOWN


async def test_metrics_are_for_operators(
    serve: Serve, keys: Keys, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with serve(identity=keys.identity(require=Require.ALWAYS)) as server:
        (where,) = [r.message.split()[-1] for r in caplog.records if "metrics on" in r.message]

        def get(access_token: str, path: str = "") -> int:
            headers = {"Authorization": f"Bearer {access_token}"} if access_token else {}
            request = urllib.request.Request(path or where, headers=headers)
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    return int(answer.status)
            except urllib.error.HTTPError as error:
                return error.code

        found = [await asyncio.to_thread(get, t) for t in ("", "x", keys.alice, keys.ops)]
        assert found == [401, 401, 401, 200]
        assert await asyncio.to_thread(get, "", where.replace("/metrics", "/health")) == 200
        assert server.daemon.authenticator.refused == {"metrics": 3}
