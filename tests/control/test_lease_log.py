"""What `rgpu logs` shows: the log of each lease, its bounds, and who sees it."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from helpers.command import run_rgpu_plain as rgpu
from helpers.credentials import make_keys
from helpers.relay import relay
from helpers.server import Server

from rgpu_client.control import ControlClient, LeaseRequest, ResizeRequest
from rgpu_common.v1 import lease_pb2, lease_pb2_grpc, log_pb2, log_pb2_grpc
from rgpu_common.wire.preface import Preface
from rgpu_server.core.model import LeaseKey
from rgpu_server.observe.audit import tell
from rgpu_server.observe.lease_log import (
    MOST_ENDED,
    MOST_ENDED_OF_TENANT,
    MOST_ENTRIES,
    PRINTED,
    LeaseLog,
)
from rgpu_server.service import logs
from rgpu_server.workers.logs import LogPipe

Serve = Callable[..., Any]
GRANTED = {"memory_bytes": 1 << 30, "device": 0, "key": "job", "explicit": True}
REMOTE = Preface("tls", "192.0.2.7:5123")


def everybody(tenant: str) -> bool:
    return True


def make_log(**keys: LeaseKey) -> LeaseLog:
    """Returns the log of a server with these leases."""
    return LeaseLog({name.replace("_", "-"): key for name, key in keys.items()}.get, clock=lambda: 7.0)  # fmt: skip


def sentences(log: LeaseLog, lease: str) -> list[str]:
    return [entry.sentence for found in log.find(lease, everybody) for entry in found.entries]


def test_sessions_belong_to_the_lease_that_they_were_assigned_to() -> None:
    log = make_log(lease_1=LeaseKey("alice", "job"))
    assigned = {"session": 3, "lease": "lease-1", "peer": "local", "transport": "unix", "worker": 9}
    log.happened("lease_granted", {"lease": "lease-1", **GRANTED})
    log.happened("session_assigned", {**assigned, "program": "a\nb"})
    log.happened("session_opened", {"session": 3, "transport": "shm"})
    log.happened("session_opened", {"session": 4, "transport": "shm"})
    log.happened("session_ended", {"session": 3, "reason": "it was killed"})
    log.happened("session_opened", {"session": 3})
    log.happened("identity_refused", {"what": "api"})
    assert sentences(log, "lease-1") == [
        "granted before its program started: 1 GiB of device 0, key 'job'",
        "session 3: a?b from local, worker 9",
        "session 3 is open over shm",
        "session 3 ended: it was killed",
    ]


def test_a_lease_that_nobody_knows_has_no_log() -> None:
    log = make_log()
    log.happened("lease_updated", {"lease": "lease-1", "state": "active"})
    assert log.find("lease-1", everybody) == []


def test_a_log_keeps_the_newest_entries() -> None:
    log = make_log(lease_1=LeaseKey("alice", "job"))
    for number in range(MOST_ENTRIES + 5):
        log.happened(PRINTED, {"lease": "lease-1", "worker": 1, "text": str(number) * 1000})
    (found,) = log.find("lease-1", everybody)
    assert [entry.number for entry in found.entries] == list(range(6, MOST_ENTRIES + 6))
    assert max(len(entry.sentence) for entry in found.entries) == 500


def test_a_tenant_with_many_leases_takes_nobodys_room() -> None:
    leases = {f"a-{n:02}": LeaseKey("alice", f"run-{n}") for n in range(MOST_ENDED_OF_TENANT + 3)}
    log = LeaseLog({"b": LeaseKey("bob", "job"), **leases}.get)
    for lease in ("b", *leases):
        log.happened("lease_ended", {"lease": lease})
    assert log.find("b", everybody)
    kept = [lease for lease in leases if log.find(lease, everybody)]
    assert kept == list(leases)[3:]


def test_tenants_with_many_leases_together_take_nobodys_room() -> None:
    """Before: sixteen tenants with 64 ended leases each pushed out all others'."""
    leases = {
        f"e-{tenant}-{n}": LeaseKey(f"eve-{tenant}", f"run-{n}")
        for n in range(MOST_ENDED_OF_TENANT)
        for tenant in range(20)
    }
    log = LeaseLog({"b": LeaseKey("bob", "job"), **leases}.get)
    for lease in ("b", *leases):
        log.happened("lease_ended", {"lease": lease})
    assert log.find("b", everybody)
    assert len(list(log.all(everybody))) == MOST_ENDED


def test_of_leases_with_one_key_those_that_are_there_are_meant_and_only_those_that_are_seen() -> (
    None
):
    keys = {
        "a": LeaseKey("alice", "job"),
        "b": LeaseKey("alice", "job"),
        "c": LeaseKey("bob", "job"),
    }
    log = LeaseLog(keys.get)
    for lease in keys:
        log.happened("lease_granted", {"lease": lease, **GRANTED})

    def found() -> list[str]:
        return [one.entries[0].lease for one in log.find("job", lambda tenant: tenant == "alice")]

    assert found() == ["a", "b"], "the caller is to say which"
    for ended, meant in (("b", ["a"]), ("a", ["b"])):
        log.happened("lease_ended", {"lease": ended})
        assert found() == meant, "else the newest that has ended"
    assert log.find("c", lambda tenant: tenant == "alice") == []


def test_a_lease_is_found_by_the_begin_of_a_drawn_key() -> None:
    keys = {"lease-1": LeaseKey("alice", "run-0123456789ab"),
            "lease-12": LeaseKey("alice", "run-0123456789cd"), "lease-3": LeaseKey("alice", "train"),
            "other": LeaseKey("bob", "run-01ffffffffff")}  # fmt: skip
    log = LeaseLog(keys.get)
    for lease in keys:
        log.happened("lease_granted", {"lease": lease, **GRANTED})

    def found(word: str) -> list[str]:
        seen = log.find(word, lambda tenant: tenant == "alice")
        return [one.entries[0].lease for one in seen]

    assert found("lease-1") == ["lease-1"]
    assert found("run-01") == ["lease-1", "lease-12"], "bob's is not seen"
    assert found("run-0123456789a") == ["lease-1"]
    # Another lease may have been called just so, and have ended.
    for word in ("lease-", "lease-120", "trai", "run-", "oth"):
        assert found(word) == []


@pytest.mark.asyncio
async def test_what_a_worker_prints_is_in_the_log_of_its_lease() -> None:
    log = make_log(lease_1=LeaseKey("alice", "job"))
    from rgpu_server.observe import audit

    audit.listen(log)
    try:
        pipe = LogPipe("worker 1", 10_000)
        os.write(pipe.write_fd, b"before\n")
        await asyncio.sleep(0)
        pipe._readable()
        pipe.serves(1, "lease-1")
        os.write(pipe.write_fd, b"\x1bafter\n")
        pipe.close()
    finally:
        audit.leave(log)
    assert sentences(log, "lease-1") == ["worker 1: ?after"]


@pytest.mark.asyncio
async def test_tenants_see_their_own_and_operators_what_workers_print(
    serve: Serve, tmp_path: Path
) -> None:
    keys = make_keys(tmp_path / "tokens.toml")
    async with (
        serve(identity=keys.identity()) as server,
        relay(server, REMOTE) as where,
        grpc.aio.insecure_channel(str(where)) as channel,
    ):
        leases, log = lease_pb2_grpc.LeaseServiceStub(channel), log_pb2_grpc.LogServiceStub(channel)

        async def ask(who: str, lease: str = "") -> log_pb2.GetLogResponse:
            bearer = (("authorization", f"Bearer {who}"),)
            answer: log_pb2.GetLogResponse = await log.GetLog(
                log_pb2.GetLogRequest(lease=lease), metadata=bearer
            )
            return answer

        for who in (keys.alice, keys.bob):
            request = lease_pb2.GrantLeaseRequest(key="job", ttl_seconds=60)
            granted = await leases.GrantLease(
                request, metadata=(("authorization", f"Bearer {who}"),)
            )
        bobs = granted.lease.lease_id
        tell(PRINTED, lease=bobs, worker=1, text="hello")
        for who, tenants in (
            (keys.alice, {"alice"}),
            (keys.bob, {"bob"}),
            (keys.ops, {"alice", "bob"}),
        ):
            assert {entry.tenant for entry in (await ask(who)).entries} == tenants
        assert [entry.event for entry in (await ask(keys.bob, bobs)).entries] == ["lease_granted"]
        assert [e.event for e in (await ask(keys.ops, bobs)).entries] == ["lease_granted", PRINTED]
        with pytest.raises(grpc.aio.AioRpcError, match="there is no log of a lease") as error:
            await ask(keys.alice, bobs)
        assert error.value.code() is grpc.StatusCode.NOT_FOUND


@pytest.mark.asyncio
async def test_an_answer_is_bounded_and_a_client_gets_the_rest(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "MOST_ENTRIES", 2)

    def work(client: ControlClient) -> list[list[int]]:
        lease = client.grant(LeaseRequest(key="job", memory_bytes=1 << 20)).lease_id
        for size in range(2, 5):
            client.resize(lease, ResizeRequest(memory_bytes=size << 20))
        first = client.log("job")
        later = client.log("job", after=1)
        rest = client.log("job", after=later.entries[-1].number)
        return [[entry.number for entry in answer.entries] for answer in (first, later, rest)]

    async with serve() as server:

        def blocking() -> list[list[int]]:
            with ControlClient(server.tcp) as client:
                return work(client)

        assert await asyncio.to_thread(blocking) == [[3, 4], [2, 3], [4]]


def test_the_command() -> None:
    with Server() as server:
        where = ("--server", server.tcp)
        assert "no lease has been granted" in rgpu("logs", *where).stderr
        assert rgpu("lease", "grant", "job", "--ttl", "600", *where).returncode == 0
        lines = rgpu("logs", "job", *where).stdout.splitlines()
        assert len(lines) == 1
        assert lines[0].endswith("of device 0, key 'job'")
        assert "no log of a lease 'jo'" in rgpu("logs", "jo", *where).stderr, "of job-2, perhaps"
        unknown = rgpu("logs", "nope", *where)
        assert unknown.returncode == 1
        assert "there is no log of a lease 'nope': `rgpu ps --all`" in unknown.stderr
        followed: list[str] = []
        following = threading.Thread(
            target=lambda: followed.append(rgpu("logs", "job", "-f", "--json", *where).stdout)
        )
        following.start()
        assert rgpu("lease", "revoke", "job", *where).returncode == 0
        following.join()
    events = [json.loads(line)["event"] for line in followed[0].splitlines()]
    assert (events[0], events[-1]) == ("lease_granted", "lease_ended")
