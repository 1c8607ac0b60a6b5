"""One connection through an agent, HTTP/2 and a gateway: bytes, ends, deaths, bounds."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from helpers import ends
from helpers.agent import Agent
from helpers.gateway import Gateway, receive, resident_bytes
from helpers.ports import free_port
from helpers.waiting import wait_until

MIB = 1 << 20
# The bytes of one connection that two processes, four sockets and HTTP/2's windows may hold.
BOUND = 48 * MIB
# Long after everything that must end has ended, also on a busy machine.
SECONDS = 60.0


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    with Gateway() as running:
        yield running


@pytest.fixture(scope="module")
def agent(gateway: Gateway) -> Iterator[Agent]:
    with Agent(gateway.address) as running:
        yield running


def dial(agent: Agent) -> socket.socket:
    """A connection to the agent."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(30)
    connection.connect(agent.unix.removeprefix("unix:"))
    return connection


@contextlib.contextmanager
def tunnel(gateway: Gateway, agent: Agent) -> Iterator[tuple[socket.socket, socket.socket]]:
    """A connection's two ends; the client has said "hi"."""
    with dial(agent) as client:
        client.sendall(b"hi")
        inner, _ = gateway.accept()
        with inner:
            assert receive(inner, 2) == b"hi"
            yield client, inner


def ended(connection: socket.socket) -> bool:
    """Returns True if the connection ends in time; drops the bytes that arrive before."""
    deadline = time.monotonic() + SECONDS
    while (left := deadline - time.monotonic()) > 0:
        if not select.select([connection], [], [], left)[0]:
            return False
        try:
            if not connection.recv(65536):
                return True
        except ConnectionError:
            return True
    return False


def test_the_gateway_says_who_comes(gateway: Gateway, agent: Agent) -> None:
    with dial(agent) as client:
        client.sendall(b"x")
        inner, preface = gateway.accept()
        inner.close()
    assert preface.transport == "grpc"
    assert preface.peer.startswith("127.0.0.1:")
    assert (preface.tenant, preface.authenticated) == ("", False)


def test_bytes_arrive_as_they_were(gateway: Gateway, agent: Agent) -> None:
    data = os.urandom(5 * MIB + 12345)
    with tunnel(gateway, agent) as (client, inner):
        for source, target in ((client, inner), (inner, client)):
            sender = threading.Thread(target=source.sendall, args=(data,))
            sender.start()
            assert receive(target, len(data)) == data
            sender.join()
        for size in (1, 40, 104, 4096, 65536):
            client.sendall(data[:size])
            assert receive(inner, size) == data[:size]
            inner.sendall(data[:size])
            assert receive(client, size) == data[:size]


def test_a_client_that_has_said_all_still_hears(gateway: Gateway, agent: Agent) -> None:
    with tunnel(gateway, agent) as (client, inner):
        client.sendall(b"last")
        client.shutdown(socket.SHUT_WR)
        assert receive(inner, 4) == b"last"
        assert inner.recv(1) == b""
        inner.sendall(b"answer")
        assert receive(client, 6) == b"answer"
        inner.close()
        assert ended(client)


def test_a_server_that_has_said_all_still_hears(gateway: Gateway, agent: Agent) -> None:
    with tunnel(gateway, agent) as (client, inner):
        inner.sendall(b"refused")
        inner.shutdown(socket.SHUT_WR)
        assert receive(client, 7) == b"refused"
        assert client.recv(1) == b""
        client.sendall(b"rest")
        assert receive(inner, 4) == b"rest"
        client.close()
        assert ended(inner)


@pytest.mark.parametrize("unread", [b"", b"nobody reads this"])
def test_either_end_ends_the_other(gateway: Gateway, agent: Agent, unread: bytes) -> None:
    with tunnel(gateway, agent) as (client, inner):
        inner.sendall(unread or b"x")
        receive(client, 1)
        client.close()
        assert ended(inner)
    with tunnel(gateway, agent) as (client, inner):
        client.sendall(unread or b"x")
        receive(inner, 1)
        inner.close()
        assert ended(client)


def test_the_last_words_arrive(gateway: Gateway, agent: Agent) -> None:
    data = os.urandom(MIB)
    with tunnel(gateway, agent) as (client, inner):
        client.sendall(data)
        client.close()
        assert receive(inner, MIB) == data
        assert inner.recv(1) == b""
    with tunnel(gateway, agent) as (client, inner):
        sender = threading.Thread(target=lambda: (inner.sendall(data), inner.close()))
        sender.start()
        assert receive(client, MIB) == data
        assert client.recv(1) == b""
        sender.join()


def pour(source: socket.socket) -> int:
    """How much goes in until a second passes without any more."""
    source.setblocking(False)
    sent, chunk = 0, bytes(MIB)
    while sent < 4 * BOUND and select.select([], [source], [], 1.0)[1]:
        sent += source.send(chunk)
    source.settimeout(30)
    return sent


@pytest.mark.parametrize("way", ["up", "down"])
def test_a_slow_reader_costs_no_memory(gateway: Gateway, agent: Agent, way: str) -> None:
    assert agent.process is not None
    pids = (gateway.process.pid, agent.process.pid)
    with tunnel(gateway, agent) as (client, inner):
        source, target = (client, inner) if way == "up" else (inner, client)
        before = [resident_bytes(pid) for pid in pids]
        sent = pour(source)
        assert sent < BOUND
        assert all(resident_bytes(p) - b < BOUND for p, b in zip(pids, before, strict=True))
        # Nobody else waits for it.
        with tunnel(gateway, agent) as (other, inner_other):
            other.sendall(b"ping")
            assert receive(inner_other, 4) == b"ping"
            inner_other.sendall(b"pong")
            assert receive(other, 4) == b"pong"
        # It goes on when its reader does.
        left = sent
        while left:
            left -= len(target.recv(MIB))


def test_who_was_answered_may_be_further_ahead(gateway: Gateway, agent: Agent) -> None:
    data = os.urandom(3 * MIB)
    with tunnel(gateway, agent) as (client, inner):
        inner.sendall(b"welcome")
        assert receive(client, 7) == b"welcome"
        before = gateway.resident_bytes()
        sender = threading.Thread(target=lambda: [client.sendall(data) for _ in range(16)])
        sender.start()
        # What the gateway holds of it comes in order, whatever it waited in.
        for size in (1, 4096, 3 * MIB - 4097):
            start = {1: 0, 4096: 1}.get(size, 4097)
            assert receive(inner, size) == data[start : start + size]
        with tunnel(gateway, agent) as (other, inner_other):
            other.sendall(b"ping")
            assert receive(inner_other, 4) == b"ping"
        assert gateway.resident_bytes() - before < BOUND
        for _ in range(15):
            assert receive(inner, 3 * MIB) == data
        sender.join()


def test_a_slow_reader_that_goes_frees_the_other_end(gateway: Gateway, agent: Agent) -> None:
    for way in ("up", "down"):
        with tunnel(gateway, agent) as (client, inner):
            source, target = (client, inner) if way == "up" else (inner, client)
            pour(source)
            target.close()
            source.setblocking(False)
            wait_until(lambda source=source: gone(source), SECONDS)


def gone(source: socket.socket) -> bool:
    """True once a write fails."""
    with contextlib.suppress(BlockingIOError):
        try:
            source.send(bytes(65536))
        except (BrokenPipeError, ConnectionResetError):
            return True
    return False


def test_a_killed_gateway_ends_the_client_and_another_one_serves() -> None:
    port = free_port()
    with (
        Gateway(port=port) as first,
        Agent(first.address) as agent,
        tunnel(first, agent) as (client, inner),
    ):
        first.process.kill()
        assert ended(client)
        assert ended(inner)
        first.process.wait()
        with Gateway(port=port) as second:
            wait_until(lambda: _through(second, agent), SECONDS)


def _through(gateway: Gateway, agent: Agent) -> bool:
    with dial(agent) as client:
        client.sendall(b"again")
        if not gateway.is_called_before(client):
            return False
        inner, _ = gateway.accept()
        with inner:
            return receive(inner, 5) == b"again"


def test_a_killed_agent_ends_the_server_side(gateway: Gateway) -> None:
    with Agent(gateway.address) as agent, tunnel(gateway, agent) as (client, inner):
        assert agent.process is not None
        agent.process.kill()
        assert ended(inner)
        assert ended(client)


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("stopped", ["gateway", "agent"])
def test_a_silent_peer_is_found(stopped: str) -> None:
    with (
        Gateway() as gateway,
        Agent(gateway.address) as agent,
        tunnel(gateway, agent) as (client, inner),
    ):
        assert agent.process is not None
        pid = gateway.process.pid if stopped == "gateway" else agent.process.pid
        os.kill(pid, signal.SIGSTOP)
        try:
            assert ended(client if stopped == "gateway" else inner)
        finally:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.full
@pytest.mark.slow
def test_an_idle_tunnel_stays(gateway: Gateway, agent: Agent) -> None:
    with tunnel(gateway, agent) as (client, inner):
        assert not select.select([client, inner], [], [], 12)[0]
        client.sendall(b"still")
        assert receive(inner, 5) == b"still"


def test_the_gateway_outlives_the_daemon_as_long_as_it_has_tunnels() -> None:
    with Gateway() as gateway, Agent(gateway.address) as agent:
        with tunnel(gateway, agent) as (client, inner):
            gateway.control.close()
            wait_until(lambda: not listens(gateway.address))
            with dial(agent) as late:
                late.sendall(b"x")
                assert ended(late)
            client.sendall(b"on")
            assert receive(inner, 2) == b"on"
            assert gateway.process.poll() is None
        ends.ended(gateway.process)


def listens(address: str) -> bool:
    """True if somebody takes connections there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(address.rpartition(":")[2]))) == 0


def test_the_agent_does_not_start_where_it_makes_no_sense(gateway: Gateway) -> None:
    with pytest.raises(RuntimeError, match="needs no agent"), Agent("127.0.0.1:7700"):
        pass
    with pytest.raises(RuntimeError, match=r"RGPU_TLS_CA=/nowhere cannot be read"):
        Agent(gateway.address, RGPU_TLS_CA="/nowhere").__enter__()
