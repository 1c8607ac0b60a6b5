"""Nodes and clients that break the rules: the manager ends them, and serves the others on."""

from __future__ import annotations

import contextlib
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

import grpc
import pytest
from helpers.manager import ManagerProcess, node
from helpers.nodes import STAYS, ended, started, where
from helpers.ports import free_port
from helpers.waiting import wait_until

from rgpu_common.v1 import agent_pb2, agent_pb2_grpc, cluster_pb2, cluster_pb2_grpc, lease_pb2

MIB, GIB = 1 << 20, 1 << 30
_SECONDS = 60


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ManagerProcess]:
    """A manager with one honest node. After all tests an honest program runs on that."""
    folder: Path = tmp_path_factory.mktemp("honest")
    with ManagerProcess() as running, node(running.address, "honest", folder):
        running.has("honest")
        yield running
        with started(running.address, "-v", "--share", "10%", source=STAYS) as run:
            assert where(run)[0] == "honest"
            assert ended(run)[:2] == (0, ["right"])


@pytest.fixture(autouse=True)
def serves_on(manager: ManagerProcess) -> Iterator[None]:
    """After each test an honest request is placed, and the honest node is what it was."""
    yield
    with grpc.insecure_channel(manager.address) as channel:
        stub = cluster_pb2_grpc.ManagerServiceStub(channel)
        asked = submit(
            wait=True, quota=lease_pb2.Quota(memory_bytes=MIB, share_request_ppm=100_000)
        )
        state = next(
            one for one in stub.Submit(asked, timeout=_SECONDS) if not one.HasField("waiting")
        )
        assert state.placed.node == "honest"
        stub.Withdraw(cluster_pb2.WithdrawRequest(request_id=asked.request_id), timeout=_SECONDS)
    # The next test has all of its card: what was withdrawn ends a little later.
    wait_until(lambda: not held_by(manager, "honest"))
    assert "honest" in manager.connected()


def held_by(manager: ManagerProcess, name: str) -> list[str]:
    """Returns the requests that have leases on a node."""
    (found,) = (one for one in manager.pool()["nodes"] if one["name"] == name)
    return [lease["request_id"] for card in found["cards"] for lease in card["leases"]]


@pytest.fixture
def channel(manager: ManagerProcess) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(manager.address) as found:
        yield found


def report(name: str = "", **more: Any) -> agent_pb2.NodeReport:
    """A report that the manager accepts: no program fits its card. name: "": a new one."""
    name = name or f"evil-{secrets.token_hex(4)}"
    card = agent_pb2.CardReport(ordinal=0, model="tiny", memory_bytes=1, pool="evil")
    made = agent_pb2.NodeReport(
        name=name, server=secrets.token_bytes(16), address="127.0.0.1:9", generation=1, cards=[card]
    )
    made.MergeFrom(agent_pb2.NodeReport(**more))
    return made


class Evil:
    """A stream of a node that says what it likes."""

    def __init__(self, channel: grpc.Channel, *said: agent_pb2.AgentMessage) -> None:
        self._call = agent_pb2_grpc.AgentServiceStub(channel).Join(iter(said), timeout=_SECONDS)

    def ending(self) -> grpc.RpcError | None:
        """Reads to the end, and returns the error; None: the manager has only closed the stream."""
        try:
            for _ in self._call:
                pass
        except grpc.RpcError as error:
            return error
        return None


def says(**kind: Any) -> agent_pb2.AgentMessage:
    return agent_pb2.AgentMessage(**kind)


def broken(rule: str) -> list[agent_pb2.AgentMessage]:
    """Returns messages that break a rule, after a report that does not."""
    first = report()
    again = report(first.name, server=b"")
    again.server, again.generation = first.server, 2
    held = agent_pb2.HeldLease(ordinal=0, lease_id="x", tenant="a")
    if rule == "a second name":
        again.name = "honest"
    elif rule == "reports out of order":
        again.generation = 1
    elif rule == "a card twice":
        again.cards.append(again.cards[0])
    elif rule == "a lease on no card":
        again.leases.append(agent_pb2.HeldLease(ordinal=7, lease_id="x", tenant="a"))
    elif rule == "a lease twice":
        again.leases.extend([held, held])
    elif rule == "a thousand cards":
        again.cards.extend(
            agent_pb2.CardReport(ordinal=i, model="x", memory_bytes=1) for i in range(1, 1000)
        )
    elif rule == "a lease of a strange request":
        held.request_id = "\n" * 20
        again.leases.append(held)
    elif rule == "an address of nothing":
        again.address = "file:///etc/passwd"
    else:
        kinds = {
            "a grant that nobody asked for": says(
                granted=agent_pb2.GrantAnswer(request_id="run-" + "0" * 32, attempt=1, granted=True)
            ),
            "a revocation that nobody asked for": says(
                revoked=agent_pb2.RevokeAnswer(request_id="run-" + "0" * 32, attempt=1)
            ),
            "a path that nobody asked for": says(path=agent_pb2.PathReport(node="honest")),
        }
        return [says(report=first), kinds[rule]]
    return [says(report=first), says(report=again)]


@pytest.mark.parametrize(
    "rule",
    [
        "a second name", "reports out of order", "a card twice", "a lease on no card",
        "a lease twice", "a thousand cards", "a lease of a strange request",
        "an address of nothing", "a grant that nobody asked for",
        "a revocation that nobody asked for", "a path that nobody asked for",
    ],
)  # fmt: skip
def test_a_node_that_breaks_a_rule_is_ended_with_a_sentence(
    channel: grpc.Channel, rule: str
) -> None:
    error = Evil(channel, *broken(rule)).ending()
    assert error is not None
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "node" in error.details()


@pytest.mark.parametrize(
    ("first", "code"),
    [
        (says(heartbeat=agent_pb2.Heartbeat()), grpc.StatusCode.INVALID_ARGUMENT),
        (agent_pb2.AgentMessage(), grpc.StatusCode.INVALID_ARGUMENT),
        (says(report=report(name="../x")), grpc.StatusCode.INVALID_ARGUMENT),
        (says(report=agent_pb2.NodeReport(name="x")), grpc.StatusCode.INVALID_ARGUMENT),
        (says(report=report(name="honest")), grpc.StatusCode.ALREADY_EXISTS),
        (says(report=report(zone="x" * (8 << 20))), grpc.StatusCode.RESOURCE_EXHAUSTED),
    ],
)
def test_a_node_that_begins_wrongly_never_joins(
    manager: ManagerProcess,
    channel: grpc.Channel,
    first: agent_pb2.AgentMessage,
    code: grpc.StatusCode,
) -> None:
    before = {one["name"] for one in manager.pool()["nodes"]}
    error = Evil(channel, first).ending()
    assert error is not None
    assert error.code() is code
    assert {one["name"] for one in manager.pool()["nodes"]} <= before


def test_a_node_that_has_just_gone_is_no_other_server(channel: grpc.Channel) -> None:
    """Its programs may run on, and its reports would end their leases for the manager."""
    first = report("went")
    assert Evil(channel, says(report=first)).ending() is None  # it leaves
    error = Evil(channel, says(report=report("went"))).ending()
    assert error is not None
    assert error.code() is grpc.StatusCode.ALREADY_EXISTS
    assert "node went has been another server until a moment ago" in error.details()
    assert "--node-name" in error.details()
    assert Evil(channel, says(report=first)).ending() is None  # the same server comes back


def test_a_flood_of_reports_is_cut(channel: grpc.Channel) -> None:
    said = [says(report=report("flood"))]
    said += [says(heartbeat=agent_pb2.Heartbeat())] * 20_000
    error = Evil(channel, *said).ending()
    assert error is not None
    assert "more often than any server does" in error.details()


def test_a_lie_about_anothers_lease_takes_no_card_from_it(
    manager: ManagerProcess, channel: grpc.Channel
) -> None:
    """A node says that it has the lease of a program that runs on the honest node."""
    with started(manager.address, "-v", "--share", "30%", source=STAYS) as run:
        name, request = where(run)
        for attempt in (1, 2, 9):
            lie = report(f"liar{attempt}")
            lie.leases.add(
                ordinal=0, lease_id="x", tenant="default", request_id=request, attempt=attempt
            )
            Evil(channel, says(report=lie)).ending()
        assert request in held_by(manager, name)
        assert ended(run)[:2] == (0, ["right"])


def test_a_run_whose_server_is_not_there_is_placed_again(
    manager: ManagerProcess, channel: grpc.Channel
) -> None:
    """A node grants everything and names an address at which nobody listens."""
    answers: Queue[agent_pb2.AgentMessage | None] = Queue()
    first = report("dead")
    first.cards[0].memory_bytes, first.cards[0].pool = GIB, "public"
    first.address = f"127.0.0.1:{free_port()}"
    answers.put(says(report=first))
    call = agent_pb2_grpc.AgentServiceStub(channel).Join(iter(answers.get, None), timeout=60)

    def serve() -> None:
        with contextlib.suppress(grpc.RpcError):
            for message in call:
                if message.HasField("grant"):
                    asked = message.grant
                    answer = agent_pb2.GrantAnswer(
                        request_id=asked.request_id, attempt=asked.attempt, granted=True,
                        generation=2,
                    )  # fmt: skip
                    answers.put(says(granted=answer))
                elif message.HasField("revoke"):
                    answers.put(None)  # it leaves

    thread = Thread(target=serve)
    thread.start()
    manager.has("dead")
    with started(manager.address, "-v", "--share", "10%", RGPU_NODE="dead") as run:
        assert where(run)[0] == "dead"
        status, lines, errors = ended(run)
        assert (status, lines) == (0, ["right"]), errors
        assert "honest at " in errors
    thread.join(_SECONDS)
    assert not thread.is_alive()


def submit(**more: Any) -> cluster_pb2.SubmitRequest:
    made = cluster_pb2.SubmitRequest(
        request_id=f"run-{secrets.token_hex(16)}",
        quota=lease_pb2.Quota(memory_bytes=GIB // 2, share_request_ppm=600_000),
        pool="public",
    )
    made.MergeFrom(cluster_pb2.SubmitRequest(**more))
    return made


@pytest.mark.parametrize(
    "wrong",
    [
        {"request_id": "x" * 65}, {"request_id": "\x00" * 20}, {"cards": 1 << 30},
        {"model": "x" * 200}, {"pool": "\n"}, {"gang": "g", "gang_size": 1 << 31},
        {"quota": lease_pb2.Quota(memory_bytes=(1 << 64) - 1)},
        {"quota": lease_pb2.Quota(share_request_ppm=(1 << 32) - 1)},
        {"neighbours": agent_pb2.Neighbours(exclusion="x" * 100_000)},
        {"tenant": "x" * 300}, {"farthest": 99}, {"bandwidth_bps": (1 << 64) - 1},
    ],
)  # fmt: skip
def test_a_request_that_no_client_sends_is_refused(
    channel: grpc.Channel, wrong: dict[str, Any]
) -> None:
    stub = cluster_pb2_grpc.ManagerServiceStub(channel)
    with pytest.raises(grpc.RpcError) as refused:
        list(stub.Submit(submit(**wrong), timeout=_SECONDS))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert refused.value.details()


def test_the_newest_follower_of_a_request_is_the_only_one(channel: grpc.Channel) -> None:
    stub = cluster_pb2_grpc.ManagerServiceStub(channel)
    asked = submit(wait=True)
    full = submit()
    assert next(stub.Submit(full, timeout=_SECONDS)).HasField("placed")
    calls = []
    for _ in range(20):
        call = stub.Submit(asked, timeout=_SECONDS)
        assert next(call).HasField("waiting")
        calls.append(call)
    for call in calls[:-1]:
        with pytest.raises(grpc.RpcError) as replaced:
            list(call)
        assert replaced.value.code() is grpc.StatusCode.ABORTED
    for request in (asked, full):
        stub.Withdraw(cluster_pb2.WithdrawRequest(request_id=request.request_id), timeout=_SECONDS)


@pytest.mark.full
def test_a_tenants_long_line_keeps_nobody_else_waiting(manager: ManagerProcess) -> None:
    """Clients that never read, each with a request that waits."""
    with grpc.insecure_channel(manager.address) as crowd:
        stub = cluster_pb2_grpc.ManagerServiceStub(crowd)
        full = submit(tenant="crowd")
        assert next(stub.Submit(full, timeout=60)).HasField("placed")
        calls = [
            stub.Submit(
                submit(
                    tenant="crowd", wait=True,
                    quota=lease_pb2.Quota(
                        memory_bytes=GIB // 2 + number, share_request_ppm=600_000
                    ),
                ),
                timeout=600,  # it outlasts all that is waited for meanwhile
            )
            for number in range(300)
        ]  # fmt: skip
        wait_until(lambda: len(manager.pool()["waiting"]) == 300, 60)
        with started(manager.address, "-v", "--share", "10%", "--tenant", "other") as run:
            assert where(run)[0] == "honest"
            assert ended(run)[0] == 0
        for call in calls:
            call.cancel()
        # Before there is room: one that is still in line would get it.
        wait_until(lambda: not manager.pool()["waiting"], 60)
        stub.Withdraw(cluster_pb2.WithdrawRequest(request_id=full.request_id), timeout=_SECONDS)


def test_noise_on_the_port_is_closed(manager: ManagerProcess) -> None:
    host, _, port = manager.address.rpartition(":")
    for noise in (b"GET / HTTP/1.1\r\n\r\n", secrets.token_bytes(4096), b"PRI * HTTP/2.0\r\n\r\n"):
        with socket.create_connection((host, int(port)), timeout=_SECONDS) as peer:
            peer.sendall(noise)
            peer.shutdown(socket.SHUT_WR)
            while peer.recv(4096):
                pass
