"""The orders of a Kubernetes node's agent to a real server, and sessions with claims' credentials."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from helpers import clients
from helpers.server import Server
from helpers.waiting import wait_until

from rgpu_common.channels import open_channel
from rgpu_common.claim_tokens import make
from rgpu_common.endpoints import parse_endpoint
from rgpu_common.v1 import (
    agent_pb2,
    lease_pb2,
    lease_pb2_grpc,
    orders_pb2,
    orders_pb2_grpc,
)

GIB = 1 << 30
KEY = b"n" * 32
CLAIM, OTHER = "claim-aaaaaaaaaaaaaaaa", "claim-bbbbbbbbbbbbbbbb"
COPIES = """
cuda.open()
at = cuda.alloc(1 << 20)
print(cuda.memory()[1], flush=True)
"""


class Daemon:
    def __init__(self, server: Server) -> None:
        self.server = server
        self._channel = open_channel(parse_endpoint(server.unix), {})
        self.orders = orders_pb2_grpc.NodeOrderServiceStub(self._channel)
        self._leases = lease_pb2_grpc.LeaseServiceStub(self._channel)
        self.attempt = 1_000_000

    def grant(self, claim: str, **more: object) -> agent_pb2.GrantAnswer:
        wanted = {
            "request_id": claim, "attempt": self.attempt, "tenant": "team-a", "ordinals": [0],
            "quota": lease_pb2.Quota(memory_bytes=GIB // 2, share_request_ppm=200_000),
            "ttl_seconds": 60.0, "kept": True, **more,
        }  # fmt: skip
        answer: agent_pb2.GrantAnswer = self.orders.Grant(
            agent_pb2.GrantOrder(**wanted), timeout=60
        )  # type: ignore[arg-type]
        return answer

    def leases(self) -> list[agent_pb2.HeldLease]:
        stream = self.orders.WatchReport(orders_pb2.WatchReportRequest(), timeout=60)
        report = next(stream)
        stream.cancel()
        return list(report.leases)

    def revoke(self, claim: str) -> None:
        """Returns when the lease has gone: until its last session's worker has ended, no other
        lease can have its key.
        """
        order = agent_pb2.RevokeOrder(request_id=claim, attempt=self.attempt)
        self.orders.Revoke(order, timeout=60)
        self.attempt += 1
        wait_until(lambda: claim not in self._keys())

    def _keys(self) -> list[str]:
        answer = self._leases.ListLeases(lease_pb2.ListLeasesRequest(), timeout=60)
        return [lease.key for lease in answer.leases]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("node")
    (folder / "key").write_bytes(base64.b64encode(KEY))
    config = folder / "rgpu.toml"
    config.write_text(f'[identity]\nrequire = "always"\nclaim_key = "{folder}/key"\n')
    with Server("--config", str(config), "--node-name", "gpu7") as server:
        yield Daemon(server)


@pytest.fixture
def lease(daemon: Daemon) -> Iterator[str]:
    assert daemon.grant(CLAIM).granted
    yield CLAIM
    daemon.revoke(CLAIM)


def token(claim: str = CLAIM, tenant: str = "team-a", key: bytes = KEY, ends: float = 86400) -> str:
    return make(key, claim, tenant, time.time() + ends)


def session(daemon: Daemon, key: str, **more: str) -> tuple[int, str, str]:
    return clients.run(
        daemon.server.tcp, COPIES, **{"RGPU_LEASE": key, "RGPU_TOKEN": token(), **more}
    )


def test_a_program_with_the_credential_computes_in_the_lease(daemon: Daemon, lease: str) -> None:
    for _ in range(2):  # the lease stays when a program has gone
        status, output, errors = session(daemon, lease)
        assert (status, output.strip()) == (0, str(GIB // 2)), errors
    assert [one.request_id for one in daemon.leases()] == [lease]
    assert daemon.leases()[0].kept


@pytest.mark.parametrize(
    ("key", "more", "says"),
    [
        (OTHER, {}, "of its own Kubernetes claim and of no other"),
        ("", {}, "of its own Kubernetes claim and of no other"),
        (f"{CLAIM}.1", {}, "has no lease"),
        (CLAIM, {"RGPU_TENANT": "team-b"}, "cannot ask for tenant 'team-b'"),
        (CLAIM, {"RGPU_TOKEN": token(key=b"m" * 32)}, "not valid here"),
        (CLAIM, {"RGPU_TOKEN": token(ends=-1)}, "not valid here"),
        (CLAIM, {"RGPU_TOKEN": token(claim=OTHER)}, "of its own Kubernetes claim and of no other"),
        (CLAIM, {"RGPU_TOKEN": token(tenant="team-b")}, "has no lease"),
        (CLAIM, {"RGPU_TOKEN": ""}, "lets nobody in without"),
    ],
)
def test_nobody_else_does(
    daemon: Daemon, lease: str, key: str, more: dict[str, str], says: str
) -> None:
    daemon.grant(OTHER)
    try:
        status, _, errors = session(daemon, key, **more)
    finally:
        daemon.revoke(OTHER)
    assert status != 0
    assert says in errors
    assert [one.request_id for one in daemon.leases()] == [lease]


def test_a_claim_whose_lease_was_revoked_may_have_another_one(daemon: Daemon) -> None:
    """Also by an earlier attempt, as a manager's are."""
    assert daemon.grant(CLAIM).granted
    daemon.revoke(CLAIM)
    assert daemon.grant(CLAIM, attempt=1).granted
    daemon.revoke(CLAIM)
    assert not daemon.leases()


def test_the_credential_sees_and_changes_nothing(daemon: Daemon, lease: str) -> None:
    number = daemon.leases()[0].lease_id
    channel = open_channel(parse_endpoint(daemon.server.tcp), {"RGPU_TOKEN": token()})
    orders = orders_pb2_grpc.NodeOrderServiceStub(channel)
    metadata = (("authorization", f"Bearer {token()}"),)
    leases = lease_pb2_grpc.LeaseServiceStub(channel)
    assert not leases.ListLeases(
        lease_pb2.ListLeasesRequest(), timeout=60, metadata=metadata
    ).leases
    for call in (
        lambda: leases.GrantLease(lease_pb2.GrantLeaseRequest(), timeout=60, metadata=metadata),
        lambda: leases.RevokeLease(
            lease_pb2.RevokeLeaseRequest(lease_id=number), timeout=60, metadata=metadata
        ),
        lambda: orders.Revoke(agent_pb2.RevokeOrder(), timeout=60, metadata=metadata),
        lambda: orders.Grant(agent_pb2.GrantOrder(), timeout=60, metadata=metadata),
        lambda: orders.Keep(orders_pb2.KeepRequest(), timeout=60, metadata=metadata),
        lambda: next(orders.WatchReport(orders_pb2.WatchReportRequest(), timeout=60, metadata=metadata)),
    ):  # fmt: skip
        with pytest.raises(grpc.RpcError) as error:
            call()
        hidden = grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.NOT_FOUND
        assert error.value.code() in hidden, error.value.details()
    assert [one.lease_id for one in daemon.leases()] == [number]
    channel.close()


def test_a_report_comes_with_each_change(daemon: Daemon) -> None:
    stream = daemon.orders.WatchReport(orders_pb2.WatchReportRequest(), timeout=60)
    first = next(stream)
    assert (first.name, first.generation, len(first.cards)) == ("gpu7", 1, 1)
    assert first.address.startswith("127.0.0.1:")
    daemon.grant(OTHER)
    assert [one.request_id for one in next(stream).leases] == [OTHER]
    daemon.revoke(OTHER)
    assert list(next(stream).leases) == []
    stream.cancel()


def test_what_is_kept_and_what_is_not_known(daemon: Daemon, lease: str) -> None:
    def keep(**more: object) -> list[str]:
        one = orders_pb2.KeptRequest(**{"request_id": lease, "ttl_seconds": 600.0, **more})  # type: ignore[arg-type]
        return list(daemon.orders.Keep(orders_pb2.KeepRequest(requests=[one]), timeout=60).unknown)

    assert keep() == []
    assert keep(request_id=OTHER) == [OTHER]
    for wrong in (
        {"request_id": "x"}, {"ttl_seconds": 0.0}, {"ttl_seconds": float("nan")},
        {"ttl_seconds": float("inf")}, {"pods": ["p" * 65]}, {"pods": ["p"] * 1025},
    ):  # fmt: skip
        with pytest.raises(grpc.RpcError) as error:
            keep(**wrong)
        assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_kept_leases_outlive_a_server_that_is_killed(tmp_path: Path) -> None:
    state = ("--state-dir", str(tmp_path / "state"))
    with Server(*state) as server:
        first = Daemon(server)
        assert first.grant(CLAIM).granted
        assert first.server.process is not None
        first.server.process.kill()
        first.server.process.wait()
    with Server(*state) as server:
        again = Daemon(server)
        wait_until(lambda: [one.request_id for one in again.leases()] == [CLAIM])
        assert again.leases()[0].attempt == 1_000_000
