"""`rgpu serve --listen grpc:`, `rgpu run` and the API through it, and peers that mean harm."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from helpers import clients
from helpers.agent import GRPC, Agent
from helpers.command import run_rgpu as rgpu
from helpers.gateway import Gateway
from helpers.needs import needs
from helpers.ports import free_port
from helpers.server import Server, run_client
from helpers.waiting import wait_until

from rgpu_common.tunnel.chunk import MAX_MESSAGE_BYTES, OPEN, decode, encode
from rgpu_common.wire.handshake import Handshake
from transport.grpc_programs import COPY, start_and_open


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(*GRPC) as running:
        yield running


def test_all_addresses_of_both_families_may_be_named() -> None:
    """gRPC takes both where one is asked for; the second is no other's."""
    port = free_port()
    both = ("--listen", f"grpc:0.0.0.0:{port}", "--listen", f"grpc:[::]:{port}", "--insecure")
    with Server(*both):
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, port), 10).close()


def agents_of(server: str) -> list[int]:
    """Process ids of the agents that lead to a server."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"rgpu_client.session.tunnel" in words and server.encode() in words:
                found.append(int(entry.name))
    return found


def test_run_starts_an_agent_that_ends_with_the_program(server: Server, tmp_path: Path) -> None:
    source = clients.PRELUDE + COPY + "print(os.environ['RGPU_SERVER'], os.environ['RGPU_TUNNEL'])"
    result = run_client(
        server.grpc,
        sys.executable,
        "-c",
        source,
        PYTHONPATH=str(clients.TESTS),
        XDG_RUNTIME_DIR=str(tmp_path),
    )
    assert result.returncode == 0, result.stderr
    words = result.stdout.split()
    assert words[0] == "ok"
    assert words[1].startswith(f"unix:{tmp_path}/rgpu-agent-")
    assert words[2] == server.grpc
    wait_until(lambda: not list(tmp_path.iterdir()))
    wait_until(lambda: not agents_of(server.grpc))


def test_connect_starts_one_agent(server: Server) -> None:
    source = f"""
    import os
    import rgpu_client
    rgpu_client.connect({server.grpc!r}, memory="256MiB")
    first = os.environ["RGPU_SERVER"]
    rgpu_client.connect({server.grpc!r}, memory="256MiB")
    assert os.environ["RGPU_SERVER"] == first
    from helpers.driver import Driver
    Driver().open()
    rgpu_client.connect({server.grpc!r}, memory="256MiB")
    print("ok")
    """
    plain = subprocess.run(
        [sys.executable, "-c", "import textwrap, sys; exec(textwrap.dedent(sys.argv[1]))", source],
        env={**os.environ, **clients.preload(), "PYTHONPATH": str(clients.TESTS)},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert plain.stdout == "ok\n", plain.stderr
    wait_until(lambda: not agents_of(server.grpc))


def test_the_library_says_that_grpc_needs_an_agent(server: Server) -> None:
    _, output, errors = clients.run(server.grpc, "print(cuda.result('cuInit', 0))")
    assert output != "0\n"
    assert "rgpu agent --server grpc:" in errors


def test_the_api_goes_the_same_way(server: Server) -> None:
    assert "emulated" in rgpu("devices", "--server", server.grpc).stdout
    held = rgpu("run", "--hold", "--server", server.grpc, "--memory", "64MiB", "--", "true")
    assert held.returncode == 0, held.stderr
    # The API through an agent, as a program that has one uses it.
    with Agent(server.grpc) as agent:
        assert "emulated" in rgpu("devices", "--server", agent.unix).stdout
    refused = rgpu("lease", "revoke", "--server", server.grpc, "lease-none")
    assert refused.returncode == 1
    assert "lease-none" in refused.stderr


def test_the_server_says_how_a_session_came(server: Server) -> None:
    with Agent(server.grpc) as agent:
        client = clients.start(agent.unix, "cuda.open()\nprint('open')\nwait_for_line()")
        assert client.stdout is not None
        assert client.stdout.readline() == "open\n"
        sessions = json.loads(rgpu("ps", "--json", "--server", server.grpc).stdout)["sessions"]
        assert [s["transport"] for s in sessions if s["client_pid"] == client.pid] == ["grpc"]
        client.communicate("\n", timeout=60)


def test_nobody_answers() -> None:
    with Agent("grpc:127.0.0.1:1") as agent:
        _, output, errors = clients.run(agent.unix, "print(cuda.result('cuInit', 0))")
        assert output == "46\n"
        assert "no rgpu server answers at grpc:127.0.0.1:1" in errors


def test_what_answers_is_no_gateway(server: Server) -> None:
    with Agent(f"grpc:{server.tcp}") as agent:
        _, output, errors = clients.run(agent.unix, "print(cuda.result('cuInit', 0))")
        assert output == "46\n"
        # gRPC may end the call before it has read the server's answer.
        assert re.search("takes no tunnels|no rgpu server answers at", errors)


def test_an_address_that_is_taken(server: Server) -> None:
    done = rgpu("serve", "--listen", server.grpc, "--insecure", "--device", "emulated:1GiB")
    assert done.returncode == 1
    assert f"cannot listen on {server.grpc}" in done.stderr


def test_a_killed_gateway_is_started_again() -> None:
    with Server(*GRPC) as server, Agent(server.grpc) as agent:
        client = start_and_open(agent.unix)
        (gateway,) = server.gateways()
        os.kill(gateway, signal.SIGKILL)
        output, errors = client.communicate("\n", timeout=60)
        assert output == "911\n", errors
        assert errors.startswith("rgpu")
        wait_until(lambda: bool(server.gateways()) and server.gateways() != [gateway])
        wait_until(lambda: clients.run(agent.unix, COPY)[1] == "ok\n")


def test_sessions_go_on_without_the_daemon() -> None:
    with Server(*GRPC) as server, Agent(server.grpc) as agent:
        client = clients.start(
            agent.unix,
            """
            cuda.open()
            print("open")
            wait_for_line()
            print(cuda.result("cuCtxSynchronize"), len(cuda.download(cuda.alloc(1 << 20), 1 << 20)))
            """,
        )
        assert client.stdout is not None
        assert client.stdout.readline() == "open\n"
        (gateway,) = server.gateways()
        server.stop()
        output, errors = client.communicate("\n", timeout=60)
        assert output == "0 1048576\n", errors
        wait_until(lambda: not Path(f"/proc/{gateway}").exists())


# Peers that mean harm


@pytest.fixture
def channel(server: Server) -> Iterator[grpc.Channel]:
    target = server.grpc.removeprefix("grpc:")
    with grpc.insecure_channel(target, options=[("grpc.max_send_message_length", -1)]) as opened:
        yield opened


def status_of(channel: grpc.Channel, *messages: bytes, method: str = OPEN) -> grpc.StatusCode:
    """How a call with these messages ends."""
    call = channel.stream_stream(method)(iter(messages), timeout=60)
    try:
        for _ in call:
            pass
    except grpc.RpcError:
        pass
    code: grpc.StatusCode = call.code()
    return code


@pytest.mark.parametrize(
    ("messages", "code"),
    [
        ((b"\xff\xff\xff",), grpc.StatusCode.INVALID_ARGUMENT),
        ((b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x01",), grpc.StatusCode.INVALID_ARGUMENT),
        ((encode(b"x" * 40), b"\x0a\x05abc"), grpc.StatusCode.INVALID_ARGUMENT),
        ((bytes(5 << 20),), grpc.StatusCode.RESOURCE_EXHAUSTED),
        ((b"\x0a" + bytes(MAX_MESSAGE_BYTES),), grpc.StatusCode.RESOURCE_EXHAUSTED),
        ((), grpc.StatusCode.OK),
        ((b"",), grpc.StatusCode.OK),
    ],
)
def test_what_is_no_tunnel(
    channel: grpc.Channel, messages: tuple[bytes, ...], code: grpc.StatusCode
) -> None:
    assert status_of(channel, *messages) is code


def test_other_methods(channel: grpc.Channel) -> None:
    for method in ("/rgpu.v1.TunnelService/Other", "/rgpu.v1.Nothing/Nothing", "/other/Open"):
        assert status_of(channel, b"", method=method) is grpc.StatusCode.UNIMPLEMENTED


def test_what_is_no_session_is_refused_by_the_daemon(channel: grpc.Channel) -> None:
    call = channel.stream_stream(OPEN)(iter([encode(os.urandom(4096))]), timeout=20)
    frames = b"".join(bytes(decode(message)[0]) for message in call)
    assert frames[8] == Handshake.REFUSED
    assert b"this port serves rgpu" in frames


@needs("root")  # who may look into a gateway
def test_a_flood_of_streams_leaves_room(server: Server) -> None:
    async def flood() -> tuple[tuple[int, str, str], subprocess.CompletedProcess[str]]:
        async with grpc.aio.insecure_channel(server.grpc.removeprefix("grpc:")) as channel:
            calls = []
            for number in range(400):
                call = channel.stream_stream(OPEN)()
                # Some send nothing, some begin a call.
                await call.write(encode(b"RGPU"[: number % 4]) if number % 4 else b"")
                calls.append(call)
            with Agent(server.grpc) as agent:
                ran = await asyncio.to_thread(clients.run, agent.unix, COPY)
            listed = await asyncio.to_thread(rgpu, "devices", "--server", server.grpc)
            for call in calls:
                call.cancel()
        return ran, listed

    ran, listed = asyncio.run(flood())
    assert ran[:2] == (0, "ok\n"), ran[2]
    assert "emulated" in listed.stdout, listed.stderr
    (gateway,) = server.gateways()
    wait_until(lambda: len(os.listdir(f"/proc/{gateway}/fd")) < 60)


def test_a_call_of_the_api_that_never_sends_its_request() -> None:
    with Gateway("--first-ms", "100") as gateway, grpc.insecure_channel(gateway.target) as channel:
        call = channel.stream_unary("/rgpu.v1.DeviceService/ListDevices").future(
            never(), timeout=20
        )
        assert call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert call.details() == "the client sent no request in time"


def never() -> Iterator[bytes]:
    """Nothing, until the call has ended."""
    threading.Event().wait(20)
    yield b""


def test_a_call_of_the_api_without_a_request(channel: grpc.Channel) -> None:
    code = status_of(channel, method="/rgpu.v1.DeviceService/ListDevices")
    assert code is grpc.StatusCode.INVALID_ARGUMENT
