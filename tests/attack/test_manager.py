"""Tenants of a cluster that want more than their quota, an earlier place in line, or a part in a
gang of others.
"""

from __future__ import annotations

import math
import resource
import secrets
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from helpers.credentials import Keys
from helpers.manager import ManagerProcess, node
from helpers.server import Server
from helpers.waiting import wait_until

from attack.door import Lane
from rgpu_common.closing import Closing
from rgpu_common.v1 import cluster_pb2, cluster_pb2_grpc, lease_pb2, lease_pb2_grpc
from rgpu_common.wire.claim import Claim
from rgpu_common.wire.fields import Wish, WishKey
from rgpu_common.wire.welcome import Welcome

MIB = 1 << 20
SECONDS = 60
QUOTA_PPM = 300_000
ALWAYS = '[identity]\nrequire = "always"\noperators = ["root"]\n'
TENANTS = ("alice", "bob", "carol", "team", "team/a", "root", "nodes")
DAY_SECONDS = 86400.0
DENIED = 300
# rgpu_server/observe/refusals.py: what is written at once of one tenant; then one a second.
WRITTEN = 100
FILES = 256
# A client's preface, and SETTINGS without any.
HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)


class Cluster:
    """A manager that gives alice 0.3 of a card, and a node with one card."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        keys = Keys(folder / "tokens.toml")
        self.token = {tenant: keys.add(tenant)[0] for tenant in TENANTS}
        options = [
            ("--tokens", str(keys.path), "--config", self._config(folder / name, text))
            for name, text in (
                ("manager.toml", f"{ALWAYS}[tenants.alice]\nshare = {QUOTA_PPM / 1e6}\n"),
                ("node.toml", ALWAYS),
            )
        ]
        shows = folder / "nodes.token"
        shows.write_text(self.token["nodes"] + "\n")
        shows.chmod(0o600)
        self.manager = stack.enter_context(
            ManagerProcess(*options[0], RGPU_TOKEN=self.token["root"])
        )
        joins = (*options[1], "--join-token", str(shows))
        self.node: Server = stack.enter_context(
            node(self.manager.address, "gpu1", folder / "state", *joins)
        )
        self.manager.has("gpu1")
        self._manager = stack.enter_context(grpc.insecure_channel(self.manager.address))
        self._node = stack.enter_context(grpc.insecure_channel(self.node.tcp))

    @staticmethod
    def _config(path: Path, text: str) -> str:
        path.write_text(text)
        return str(path)

    def shown(self, tenant: str) -> list[tuple[str, str]]:
        """Returns the metadata of a call that shows the tenant's access token."""
        return [("authorization", f"Bearer {self.token[tenant]}")]

    def submit(self, tenant: str, share_ppm: int, extra: bytes = b"", **fields: Any) -> Asked:
        """Asks the manager for a part of the card, and waits in line. extra: fields that no client
        of this release sends.
        """
        request = cluster_pb2.SubmitRequest(
            request_id=f"run-{secrets.token_hex(16)}", tenant=tenant, wait=True,
            quota=lease_pb2.Quota(memory_bytes=MIB, share_request_ppm=share_ppm), **fields,
        )  # fmt: skip
        request.MergeFromString(extra)
        return Asked(self, tenant, request)

    def stub(self) -> Any:
        return cluster_pb2_grpc.ManagerServiceStub(self._manager)

    def at_node(self) -> Any:
        """Returns the node's own service of leases."""
        return lease_pb2_grpc.LeaseServiceStub(self._node)

    def leases(self) -> list[Any]:
        """Returns the leases of the node, as an operator sees them."""
        request, shown = lease_pb2.ListLeasesRequest(), self.shown("root")
        return list(self.at_node().ListLeases(request, timeout=SECONDS, metadata=shown).leases)

    def waiting(self) -> list[str]:
        """Returns the tenants of the requests in line."""
        return sorted(str(one["tenant"]) for one in self.manager.pool()["waiting"])


class Asked(Closing):
    """A request of a tenant; `with` takes it back."""

    def __init__(self, cluster: Cluster, tenant: str, request: cluster_pb2.SubmitRequest) -> None:
        self.id = request.request_id
        self._cluster, self._shown = cluster, cluster.shown(tenant)
        self._states = cluster.stub().Submit(request, timeout=SECONDS, metadata=self._shown)

    def close(self) -> None:
        self.withdraw()
        self._states.cancel()

    def withdraw(self) -> None:
        request = cluster_pb2.WithdrawRequest(request_id=self.id)
        self._cluster.stub().Withdraw(request, timeout=SECONDS, metadata=self._shown)

    def state(self) -> Any:
        """Waits for the next state."""
        return next(self._states)

    def placed(self) -> None:
        """Waits until it is placed."""
        while not (state := self.state()).HasField("placed"):
            assert state.HasField("waiting"), state


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with ExitStack() as stack:
        made = Cluster(tmp_path_factory.mktemp("cluster"), stack)
        yield made
        for process in (made.manager.process, made.node.process):
            assert process is not None
            assert process.poll() is None, "a daemon ended"


@pytest.fixture(autouse=True)
def serves_on(cluster: Cluster) -> Iterator[None]:
    """After each attack nothing waits, and an honest tenant gets what it asks for."""
    yield
    with cluster.submit("carol", 900_000) as honest:
        honest.placed()


# The log


def test_denied_requests_do_not_fill_the_log(cluster: Cluster) -> None:
    """To be denied, and to take a request back, costs a tenant nothing. No node has such a card."""
    log = cluster.manager.log

    def asks(tenant: str, number: int) -> None:
        with cluster.submit(tenant, 900_000, model=f"B{number}") as asked:
            asked.state()

    began = time.monotonic()
    for number in range(DENIED):
        asks("team", number)
    asks("bob", 0)
    wait_until(lambda: any("left out before:" in line for line in list(log)))
    seconds = math.ceil(time.monotonic() - began)
    lines = [line for line in list(log) if " denied run-" in line or " withdrawn run-" in line]
    assert len(lines) <= WRITTEN + seconds + 4


# Past the quota


@pytest.fixture
def held(cluster: Cluster) -> Iterator[Any]:
    """The lease at the node that alice has from the manager, as large as her quota."""
    with cluster.submit("alice", QUOTA_PPM) as asked:
        asked.placed()
        (lease,) = cluster.leases()
        assert (lease.tenant, lease.quota.share_request_ppm) == ("alice", QUOTA_PPM)
        yield lease
        (after,) = cluster.leases()
        assert after.quota == lease.quota


@pytest.mark.parametrize(
    "sizes",
    [{"share_request_ppm": 900_000}, {"memory_bytes": 512 * MIB}, {"memory_ppm": 900_000}],
    ids=lambda sizes: next(iter(sizes)),
)
def test_no_tenant_lets_its_lease_grow_at_the_node(
    cluster: Cluster, held: Any, sizes: dict[str, int]
) -> None:
    request = lease_pb2.ResizeLeaseRequest(lease_id=held.lease_id, **sizes)  # type: ignore[arg-type]
    with pytest.raises(grpc.RpcError, match="a lease grows only for the manager or an operator"):
        cluster.at_node().ResizeLease(request, timeout=SECONDS, metadata=cluster.shown("alice"))


def test_no_tenant_is_granted_a_lease_at_the_node(cluster: Cluster, held: Any) -> None:
    """Neither one of its own, nor a larger one by the key of the one that it has."""
    for key in ("mine", held.key, f"run-{secrets.token_hex(16)}"):
        quota = lease_pb2.Quota(memory_bytes=64 * MIB, share_request_ppm=600_000)
        request = lease_pb2.GrantLeaseRequest(tenant="alice", key=key, quota=quota)
        with pytest.raises(grpc.RpcError) as refused:
            cluster.at_node().GrantLease(request, timeout=SECONDS, metadata=cluster.shown("alice"))
        assert refused.value.details()


@pytest.mark.parametrize("claims", [False, True], ids=["session", "claim"])
def test_no_tenant_takes_a_lease_at_the_node_with_a_greeting(
    cluster: Cluster, held: Any, claims: bool
) -> None:
    wishes = (Wish(WishKey.CLAIM, int(Claim.WANTED | Claim.OWN)),) if claims else ()
    for key in ("", "mine", f"run-{secrets.token_hex(16)}"):
        with Lane(cluster.node.tcp) as lane:
            answer = lane.hello(
                access_token=cluster.token["alice"], lease_key=key, memory_bytes=64 * MIB,
                share_request_ppm=600_000, minor=2, wishes=wishes,
            )  # fmt: skip
            assert isinstance(answer, tuple), answer
            assert "ask the manager" in answer[1].sentence


def test_a_greeting_with_large_wishes_makes_no_lease_larger(cluster: Cluster, held: Any) -> None:
    """A session in the lease that alice has is hers to open. Its wishes change nothing."""
    with Lane(cluster.node.tcp) as lane:
        answer = lane.hello(
            access_token=cluster.token["alice"], lease_key=held.key, memory_bytes=512 * MIB,
            share_request_ppm=900_000,
        )  # fmt: skip
        if isinstance(answer, Welcome):
            assert answer.memory_limit_bytes == held.quota.memory_bytes
        (now,) = cluster.leases()
        assert now.quota == held.quota


# An earlier place in line


def test_nobody_overtakes_by_its_own_word_or_by_forged_tickets(cluster: Cluster) -> None:
    """A ticket shows for how long a request has waited. These are another request's, one with other
    times, and one that says that an earlier manager has signed it a moment ago.
    """
    with ExitStack() as stack:
        full = stack.enter_context(cluster.submit("root", 900_000))
        full.placed()
        patient = stack.enter_context(cluster.submit("bob", 600_000))
        ticket = patient.state().waiting.ticket
        assert ticket
        now = time.time()
        long_ago = struct.pack("!dd", now - DAY_SECONDS, now)
        earlier = bytes(16) + long_ago + secrets.token_bytes(32)
        assert len(earlier) == len(ticket)
        # Field 18 was the client's own word of how long it had waited, a double.
        boast = b"\x91\x01" + struct.pack("<d", DAY_SECONDS)
        for forged in (b"", ticket, ticket[:16] + long_ago + ticket[32:], earlier):
            asked = stack.enter_context(cluster.submit("team", 600_000, extra=boast, ticket=forged))
            assert asked.state().HasField("waiting")
        full.withdraw()
        patient.placed()
        assert cluster.waiting() == ["team"] * 4


# A part in a gang of others


def test_no_tenant_completes_the_gang_of_another(cluster: Cluster) -> None:
    """Tenant `team` with gang `a/train`, and gang `train` of tenant `team/a`."""
    with ExitStack() as stack:
        strange = stack.enter_context(cluster.submit("team", 200_000, gang="a/train", gang_size=2))
        assert "1 of the 2 runs" in strange.state().waiting.sentence
        first = stack.enter_context(cluster.submit("team/a", 200_000, gang="train", gang_size=2))
        assert "1 of the 2 runs" in first.state().waiting.sentence
        assert cluster.waiting() == ["team", "team/a"]
        second = stack.enter_context(cluster.submit("team/a", 200_000, gang="train", gang_size=2))
        first.placed()
        second.placed()
        assert cluster.waiting() == ["team"]


# All connections


@contextmanager
def few_files(count: int) -> Iterator[None]:
    """What is started in the block may open so few files, until it asks for more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_stranger_that_holds_very_many_connections_keeps_no_operator_out(tmp_path: Path) -> None:
    """Before: the manager had as many open files as a shell gives to programs. With so many idle
    connections, which nobody has to identify for, it accepted nobody.
    """
    keys = Keys(tmp_path / "tokens.toml")
    config = tmp_path / "manager.toml"
    config.write_text(ALWAYS)
    options = ("--tokens", str(keys.path), "--config", str(config))
    with ExitStack() as stack:
        with few_files(FILES):
            manager = stack.enter_context(ManagerProcess(*options, RGPU_TOKEN=keys.add("root")[0]))
        host, port = manager.address.split(":")
        for _ in range(FILES):
            held = stack.enter_context(socket.create_connection((host, int(port)), SECONDS))
            held.sendall(HTTP2)
            assert held.recv(1), "the manager answers"
        assert manager.pool()["nodes"] == []
