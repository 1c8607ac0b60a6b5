"""A session goes over to another path while it works, asked by the agent beside the program."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from helpers.proxy import CuttingProxy
from helpers.server import Server

from transport.cut_programs import (
    ASYNC_UNTIL_TOLD,
    LAST_CALL,
    SYNCHRONISATIONS,
    SYNCHRONISATIONS_UNTIL_TOLD,
    counted,
    finish,
    go_on,
    running,
)


class Agent:
    """An agent's socket, as `rgpu run` makes it."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "agent")
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(self.path)
        self._listener.listen()
        self._listener.settimeout(60)
        self._session: socket.socket | None = None

    def ask(self, message: str) -> str:
        if self._session is None:
            self._session, _ = self._listener.accept()
            self._session.settimeout(60)
        self._session.send(message.encode())
        return self._session.recv(4096).decode()

    def stats(self) -> dict[str, str]:
        name, *fields = self.ask("STATS?").split(" ")
        assert name == "STATS"
        return dict(field.split("=", 1) for field in fields)

    def close(self) -> None:
        self._listener.close()
        if self._session is not None:
            self._session.close()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as one:
        yield one


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    one = Agent(tmp_path)
    yield one
    one.close()


WHILE_IT_WORKS = pytest.mark.parametrize(
    "body",
    [SYNCHRONISATIONS_UNTIL_TOLD, ASYNC_UNTIL_TOLD],
    ids=["synchronisations", "copies"],
)


@WHILE_IT_WORKS
def test_a_session_moves_while_it_works(
    server: Server, agent: Agent, tmp_path: Path, body: str
) -> None:
    trace = tmp_path / "trace"
    with (
        CuttingProxy(server.tcp) as first,
        CuttingProxy(server.tcp) as second,
        running(first.address, body, RGPU_AGENT=agent.path, RGPU_TRACE=str(trace)) as client,
    ):
        go_on(client)
        for path in (f"tcp:{second.address}", server.unix, first.address, f"tcp:{second.address}"):
            assert agent.ask(f"MOVE {path}") == f"MOVED {path}"
            assert agent.stats()["path"] == path
        assert finish(client) == ("True\n", "")
        assert first.cuts == second.cuts == 0
    # The server may close the old connection before the client does, which looks like a cut.
    numbers = counted(trace)
    assert numbers["moves"] + numbers["resumes"] >= 7


def test_a_path_that_does_not_work_changes_nothing(server: Server, agent: Agent) -> None:
    body = "go()\nprint(cuda.result('cuCtxSynchronize'))\n"
    with running(server.tcp, body, RGPU_AGENT=agent.path) as client:
        for path in ("tcp:127.0.0.1:1", "unix:/no/such", "nonsense"):
            assert agent.ask(f"MOVE {path}").startswith(f"STAYED {path} ")
        assert agent.stats()["path"] == server.tcp
        assert finish(client) == ("0\n", "")


@pytest.mark.parametrize("scheme", ["unix", "shm"])
@WHILE_IT_WORKS
def test_a_local_session_moves_too_if_there_is_an_agent(
    server: Server, agent: Agent, scheme: str, body: str
) -> None:
    local = server.unix.replace("unix:", f"{scheme}:")
    with running(local, body, RGPU_AGENT=agent.path) as client:
        go_on(client)
        for path in (server.tcp, local):
            assert agent.ask(f"MOVE {path}") == f"MOVED {path}"
        assert finish(client) == ("True\n", "")


@pytest.mark.parametrize("scheme", ["unix", "shm"])
def test_a_local_session_that_moved_survives_cuts(
    server: Server, agent: Agent, scheme: str, tmp_path: Path
) -> None:
    local = server.unix.replace("unix:", f"{scheme}:")
    trace = tmp_path / "trace"
    with (
        CuttingProxy(server.tcp) as proxy,
        running(local, SYNCHRONISATIONS, RGPU_AGENT=agent.path, RGPU_TRACE=str(trace)) as client,
    ):
        assert agent.ask(f"MOVE {proxy.address}") == f"MOVED {proxy.address}"
        proxy.cut()
        assert finish(client) == ("True\n", "")
    assert counted(trace)["resumes"] >= 1


@pytest.mark.parametrize("scheme", ["unix", "shm"])
def test_the_death_of_a_local_sessions_worker_is_not_waited_out(
    agent: Agent, scheme: str, tmp_path: Path
) -> None:
    config = tmp_path / "rgpu.toml"
    config.write_text("[sessions]\nresume_grace_seconds = 3600\n")
    with Server("--config", str(config)) as server:
        local = server.unix.replace("unix:", f"{scheme}:")
        with running(local, LAST_CALL, RGPU_AGENT=agent.path) as client:
            for worker in server.children():
                with suppress(ProcessLookupError):
                    os.kill(worker, signal.SIGKILL)
            output, errors = finish(client)
    assert output == "911 911\n"
    assert errors.count("rgpu:") == 1, errors


def test_the_numbers_for_the_agent(server: Server, agent: Agent) -> None:
    body = "cuda.upload(cuda.alloc(1 << 20), bytes(1 << 20))\ngo()\n"
    with running(server.tcp, body, RGPU_AGENT=agent.path) as client:
        stats = agent.stats()
        assert int(stats["bulk_bytes"]) >= 1 << 20
        assert 0 < int(stats["syncs"]) <= int(stats["calls"])
        finish(client)


def test_an_agent_that_is_not_there_or_ends_does_not_matter(
    server: Server, agent: Agent, tmp_path: Path
) -> None:
    nobody = str(tmp_path / "nobody")
    with running(server.tcp, SYNCHRONISATIONS, RGPU_AGENT=nobody) as client:
        assert finish(client) == ("True\n", "")
    with running(server.tcp, SYNCHRONISATIONS, RGPU_AGENT=agent.path) as client:
        assert agent.ask("STATS?")
        agent.close()
        assert finish(client) == ("True\n", "")


def test_a_forked_child_leaves_the_parents_lanes_alone(server: Server, agent: Agent) -> None:
    body = """
child = os.fork()
if child == 0:
    cuda.open()
    mine = cuda.alloc(4096)
    cuda.upload(mine, b"child!")
    assert cuda.download(mine, 6) == b"child!"
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
child = os.fork()
if child == 0:
    sys.exit(0)
os.waitpid(child, 0)
go()
for step in range(500):
    cuda.launch(add_one, 1, 1, counter)
    cuda.synchronize()
print(int.from_bytes(cuda.download(counter, 4), "little") == 500)
"""
    with CuttingProxy(server.tcp) as proxy, running(proxy.address, body) as client:
        proxy.cut_after(5000, 5000)
        assert finish(client) == ("True\n", "")
    assert os.path.exists(agent.path)
