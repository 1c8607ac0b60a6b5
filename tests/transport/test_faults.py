"""The same faults on every transport: the program goes on, or gets one clear error in time."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Container, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from helpers import pki
from helpers.agent import GRPC, Agent
from helpers.proxy import CuttingProxy
from helpers.server import HAS_UCX, TRANSPORTS, UCX, Server
from helpers.waiting import wait_until

from transport.cut_programs import (
    ASYNC,
    ASYNC_UNTIL_TOLD,
    LAST_CALL,
    SYNCHRONISATIONS,
    SYNCHRONISATIONS_UNTIL_TOLD,
    WAITS,
    finish,
    go_on,
    running,
)

# The transports that a relay can carry. A local connection ends only with one of its ends, and UCX
# makes its own connections to the addresses of both ends.
NETWORKS = ["tcp", "tls", "grpc"]
# Both ends send more than a window and a socket's buffers hold, and read only in between.
FULL = ASYNC
DOWNLOAD = """
size = 32 << 20
place, data = cuda.alloc(size), bytes(size)
go()
print(cuda.result("cuMemcpyDtoH_v2", data, c_uint64(place), c_size_t(size)))
"""
READS_UNTIL_TOLD = ASYNC_UNTIL_TOLD.replace("go()", "go()\nprint('begins', flush=True)")
# A client's first connection is the command lane, its second one the control lane.
CONTROL = 1
# The worker hears on the control lane that the function has returned.
CALLS_BACK = """
from ctypes import CFUNCTYPE
calls = []
note = CFUNCTYPE(None, c_void_p)(lambda _: calls.append("called"))
go()
print(cuda.result("cuLaunchHostFunc", None, note, None), cuda.result("cuCtxSynchronize"), calls)
"""
# Half of what the server waits for a client that was cut.
DEADLINE_SECONDS = 30
GARBAGE = bytes(range(256)) * 64


def serving(grace_seconds: float) -> Server:
    """On every transport."""
    config = pki.config() + (
        f"[sessions]\nresume_grace_seconds = {grace_seconds}\n[leases]\ngrace_seconds = 0\n"
    )
    return Server(*GRPC, *(UCX if HAS_UCX else ()), tls=config)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(2 * DEADLINE_SECONDS) as one:
        yield one


@pytest.fixture(scope="module")
def hasty() -> Iterator[Server]:
    """A server that waits only a second for a client that was cut."""
    with serving(1) as one:
        yield one


@contextmanager
def relayed(
    server: Server, transport: str, *, holds: Container[int] = frozenset()
) -> Iterator[tuple[CuttingProxy, str]]:
    """Yields a proxy in front of the server's port, and the address for programs.

    A client of an agent cannot see that its path leads over a network; `rgpu run` tells it.
    """
    target = {"tcp": server.tcp, "tls": server.tls, "grpc": server.grpc}[transport]
    with ExitStack() as stack:
        proxy = stack.enter_context(CuttingProxy(target.removeprefix(f"{transport}:"), holds=holds))
        address = proxy.address if transport == "tcp" else f"{transport}:{proxy.address}"
        if transport == "grpc":
            address = stack.enter_context(Agent(address)).unix
        yield proxy, address


def cut_off(address: str, body: str) -> AbstractContextManager[subprocess.Popen[str]]:
    """A program whose session survives cuts, as over networks."""
    return running(address, body, RGPU_RESUME="1")


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_killed_client_leaves_nothing(hasty: Server, transport: str) -> None:
    before = hasty.sessions()
    with running(hasty.address(transport), "go()\n") as client:
        assert hasty.sessions() != before
        client.kill()
        wait_until(lambda: hasty.sessions() == before, DEADLINE_SECONDS)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_killed_worker_is_one_clear_error(server: Server, transport: str) -> None:
    with running(server.address(transport), LAST_CALL) as client:
        for worker in server.children():
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
        begin = time.monotonic()
        output, errors = finish(client)
    assert output == "911 911\n"
    assert time.monotonic() - begin < DEADLINE_SECONDS
    assert errors.count("rgpu:") == 1, errors


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_full_buffers_both_ways_stop_nobody(server: Server, transport: str) -> None:
    with running(server.address(transport), FULL) as client:
        assert finish(client) == ("True\n", "")


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_reader_that_stands_still_loses_nothing(server: Server, transport: str) -> None:
    with running(server.address(transport), READS_UNTIL_TOLD) as client:
        go_on(client)
        assert client.stdout is not None
        assert client.stdout.readline() == "begins\n"
        os.kill(client.pid, signal.SIGSTOP)
        # Meanwhile another one works.
        with running(server.address(transport), SYNCHRONISATIONS) as other:
            assert finish(other) == ("True\n", "")
        os.kill(client.pid, signal.SIGCONT)
        assert finish(client) == ("True\n", "")


@pytest.mark.parametrize("transport", [t for t in TRANSPORTS if t != "shm"])
def test_garbage_at_the_door_disturbs_nobody(server: Server, transport: str) -> None:
    with ExitStack() as stack:
        if transport == "ucx":
            # UCX 1.13 keeps what it does not understand, and a processor busy with it until its
            # process ends. So this server ends with the test.
            server = stack.enter_context(serving(2 * DEADLINE_SECONDS))
        address = server.grpc if transport == "grpc" else server.address(transport)
        client = stack.enter_context(
            running(server.address(transport), SYNCHRONISATIONS_UNTIL_TOLD)
        )
        go_on(client)
        for first in (b"", b"PRI * HTTP/2.0\r\n\r\n", b"\x16\x03\x01\x40\x00"):
            with knock(address) as stranger:
                say(stranger, first + GARBAGE)
                if transport != "ucx":
                    wait_for_end(stranger)
        assert finish(client) == ("True\n", "")


def say(stranger: socket.socket, data: bytes) -> None:
    """The server may have closed already."""
    with suppress(OSError):
        stranger.sendall(data)
        stranger.shutdown(socket.SHUT_WR)


def wait_for_end(stranger: socket.socket) -> None:
    """Within the time that a handshake may take, or TimeoutError."""
    stranger.settimeout(DEADLINE_SECONDS)
    with suppress(ConnectionError):
        while stranger.recv(65536):
            pass


def knock(address: str) -> socket.socket:
    """A connection to a server's address, whatever its transport."""
    if address.startswith("unix:"):
        stranger = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        stranger.connect(address.removeprefix("unix:"))
        return stranger
    host, port = address.rsplit(":", 2)[-2:]
    return socket.create_connection((host, int(port)))


@pytest.mark.parametrize("seconds", [0.5, 5.0])
@pytest.mark.parametrize("transport", NETWORKS)
def test_a_short_cut_is_not_noticed(server: Server, transport: str, seconds: float) -> None:
    with relayed(server, transport) as (proxy, address), cut_off(address, WAITS) as client:
        go_on(client)
        assert client.stdout is not None
        assert client.stdout.readline() == "waiting\n"
        proxy.cut(seconds)
        assert finish(client) == ("True\n", "")


@pytest.mark.parametrize("transport", NETWORKS)
def test_a_cut_that_stays_is_one_clear_error(hasty: Server, transport: str) -> None:
    before = hasty.sessions()
    with relayed(hasty, transport) as (proxy, address), cut_off(address, LAST_CALL) as client:
        proxy.cut(60)
        begin = time.monotonic()
        output, errors = finish(client)
        assert time.monotonic() - begin < DEADLINE_SECONDS
    assert output == "911 911\n"
    assert errors.count("rgpu:") == 1, errors
    wait_until(lambda: hasty.sessions() == before, DEADLINE_SECONDS)


def test_a_cut_within_a_frame_is_not_called_nonsense(hasty: Server) -> None:
    before = hasty.sessions()
    with relayed(hasty, "tcp") as (proxy, address), cut_off(address, DOWNLOAD) as client:
        proxy.cut_after(7 << 20, away_seconds=60)
        output, errors = finish(client)
    assert output == "911\n"
    assert "the connection was cut and not resumed" in errors
    assert "makes no sense" not in errors
    wait_until(lambda: hasty.sessions() == before, DEADLINE_SECONDS)


@pytest.mark.parametrize("transport", NETWORKS)
def test_half_open_connections_hold_nobody_up(server: Server, transport: str) -> None:
    with (
        relayed(server, transport) as (proxy, address),
        cut_off(address, SYNCHRONISATIONS_UNTIL_TOLD) as client,
    ):
        go_on(client)
        proxy.cut(half_open=True)
        assert finish(client) == ("True\n", "")


@pytest.mark.parametrize("transport", NETWORKS)
def test_cuts_in_full_windows_lose_nothing(server: Server, transport: str) -> None:
    with relayed(server, transport) as (proxy, address), cut_off(address, FULL) as client:
        proxy.cut_after(*(7 << 20, 1, 20 << 20, 3 << 20))
        assert finish(client) == ("True\n", "")
        assert proxy.cuts == 4


@pytest.mark.parametrize("resume", ["1", "0"])
def test_a_control_lane_that_never_arrived_is_begun_again(server: Server, resume: str) -> None:
    """Its connection ends with the ATTACH that nobody has passed to the worker."""
    with (
        relayed(server, "tcp", holds={CONTROL}) as (proxy, address),
        running(address, CALLS_BACK, RGPU_RESUME=resume) as client,
    ):
        proxy.drop()
        assert finish(client) == ("0 0 ['called']\n", "")


@pytest.mark.parametrize("resume", ["1", "0"])
def test_a_control_lane_that_never_arrives_is_one_clear_error(hasty: Server, resume: str) -> None:
    before = hasty.sessions()
    with (
        relayed(hasty, "tcp", holds={CONTROL}) as (proxy, address),
        running(address, CALLS_BACK, RGPU_RESUME=resume) as client,
    ):
        proxy.drop(away_seconds=60)
        output, errors = finish(client)
    assert output == "0 911 ['called']\n"
    assert errors.count("rgpu:") == 1, errors
    wait_until(lambda: hasty.sessions() == before, DEADLINE_SECONDS)


@pytest.mark.full
@pytest.mark.parametrize("resume", ["1", "0"])
def test_a_server_that_dies_with_an_attach_leaves_it_to_the_next(
    tmp_path: Path, resume: str
) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(Server("--state-dir", str(tmp_path)))
        proxy = stack.enter_context(CuttingProxy(first.tcp, holds={CONTROL}))
        client = stack.enter_context(running(proxy.address, CALLS_BACK, RGPU_RESUME=resume))
        assert first.process is not None
        first.process.send_signal(signal.SIGKILL)
        first.process.wait()
        second = stack.enter_context(Server("--state-dir", str(tmp_path)))
        proxy.target(second.tcp)
        proxy.drop()
        assert finish(client) == ("0 0 ['called']\n", "")
