"""The folders of agents: abandoned folders are removed, folders in use stay."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from helpers.waiting import wait_until

from rgpu_client.session import launch
from rgpu_client.session.folders import private_folder
from rgpu_common.endpoints import GrpcEndpoint

PREFIX = "rgpu-agent-"
NOBODY = GrpcEndpoint("127.0.0.1", 1)
# A starter makes its folder, and goes on when the test tells it to.
_STARTER = """
import os, socket, sys
from rgpu_client.session.folders import private_folder
with private_folder("rgpu-agent-", os.environ) as folder:
    if {bound}:
        socket.socket(socket.AF_UNIX).bind(folder + "/agent")
    print(folder, flush=True)
    sys.stdin.read()
"""
# Makes folders while other processes do the same, and owns each folder alone.
_MAKER = """
import os, socket
from rgpu_client.session.folders import private_folder
for _ in range({rounds}):
    with private_folder("rgpu-agent-", os.environ) as folder:
        with socket.socket(socket.AF_UNIX) as mine:
            mine.bind(folder + "/agent")
            assert os.listdir(folder) == ["agent"]
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "run").mkdir()
    return {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path / "run")}


Start = Callable[[bool], tuple["subprocess.Popen[str]", Path]]


@pytest.fixture
def start(environment: dict[str, str]) -> Iterator[Start]:
    """Starts a starter; returns its process and its folder."""
    starters = []

    def started(bound: bool) -> tuple[subprocess.Popen[str], Path]:
        starter = subprocess.Popen(
            [sys.executable, "-c", _STARTER.format(bound=bound)], env=environment, cwd="/",
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        starters.append(starter)
        assert starter.stdout is not None
        return starter, Path(starter.stdout.readline().strip())

    yield started
    for starter in starters:
        starter.kill()
        starter.communicate(timeout=60)


@pytest.mark.parametrize("bound", [False, True])
def test_what_a_killed_starter_left_goes_with_the_next(
    environment: dict[str, str], start: Start, bound: bool
) -> None:
    (killed, left), (_, kept) = start(bound), start(bound)
    killed.kill()
    killed.wait(timeout=60)
    assert left.is_dir()
    with private_folder(PREFIX, environment) as folder:
        assert sorted(left.parent.iterdir()) == sorted([kept, Path(folder)])
    assert kept.is_dir()


def test_what_a_killed_agent_left_goes_with_the_next(environment: dict[str, str]) -> None:
    first = Path(launch.start_agent(NOBODY, environment))
    agent = process_of(first.parent)
    second = Path(launch.start_agent(NOBODY, environment))
    assert first.is_socket()
    # Its folder is its own, and not its child's, once that is gone.
    wait_until(lambda: not Path(f"/proc/{agent}/task/{agent}/children").read_text())
    ended = os.pidfd_open(agent)
    try:
        os.kill(agent, signal.SIGKILL)
        assert select.select([ended], [], [], 60)[0]
    finally:
        os.close(ended)
    assert first.is_socket()
    third = Path(launch.start_agent(NOBODY, environment))
    assert sorted(first.parent.parent.iterdir()) == sorted([second.parent, third.parent])
    for left in (second, third):
        os.kill(process_of(left.parent), signal.SIGTERM)
    wait_until(lambda: not any(first.parent.parent.iterdir()))


def process_of(folder: Path) -> int:
    """The agent's, as soon as it is one."""
    wait_until(lambda: bool(processes_of(folder)))
    (process,) = processes_of(folder)
    return process


def processes_of(folder: Path) -> list[int]:
    """Returns the processes that got this folder, without the child that waits for an
    agent's end.
    """
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except (NotADirectoryError, FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if b"--folder" in words and b"-c" not in words and os.fsencode(folder) in words:
            found.append(int(entry.name))
    return found


def test_a_folder_that_was_swept_before_it_was_held_is_made_again(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, lock = Path(environment["XDG_RUNTIME_DIR"]), fcntl.flock
    faults = iter(["removed", "removed before", "in hands"])

    def interfering(descriptor: int, how: int) -> None:
        fault = next(faults, "")
        if fault:
            Path(os.readlink(f"/proc/self/fd/{descriptor}")).rmdir()
        if fault == "in hands":
            raise BlockingIOError
        lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", interfering)
    with private_folder(PREFIX, environment) as folder:
        assert list(run.iterdir()) == [Path(folder)]
    assert next(faults, None) is None


def test_without_locks_nothing_is_swept(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(descriptor: int, how: int) -> None:
        raise OSError("this file system knows no locks")

    left = Path(environment["XDG_RUNTIME_DIR"]) / f"{PREFIX}12345678"
    left.mkdir()
    monkeypatch.setattr(fcntl, "flock", unknown)
    with private_folder(PREFIX, environment) as folder:
        assert sorted(left.parent.iterdir()) == sorted([left, Path(folder)])


def test_what_no_agent_left_stays(environment: dict[str, str], tmp_path: Path) -> None:
    run = Path(environment["XDG_RUNTIME_DIR"])
    file = run / f"{PREFIX}a_file_0"
    file.touch()
    (run / f"{PREFIX}folder_0").mkdir()
    (run / f"{PREFIX}folder_0" / "agent").touch()
    (run / f"{PREFIX}my-own").mkdir()
    (run / "rgpu-other-12345678").mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (run / f"{PREFIX}linked_0").symlink_to(elsewhere)
    before = sorted(run.iterdir())
    with private_folder(PREFIX, environment) as folder:
        Path(folder).rmdir()
        assert sorted(run.iterdir()) == before
    assert elsewhere.is_dir()
    assert (run / f"{PREFIX}folder_0" / "agent").exists()


def test_nobody_sweeps_what_another_just_makes(environment: dict[str, str]) -> None:
    source = _MAKER.format(rounds=100)
    makers = [
        subprocess.Popen([sys.executable, "-c", source], env=environment, cwd="/")
        for _ in range(4)
    ]  # fmt: skip
    try:
        assert [maker.wait(timeout=60) for maker in makers] == [0] * 4
    finally:
        for maker in makers:
            maker.kill()
            maker.wait()
    with private_folder(PREFIX, environment) as folder, socket.socket(socket.AF_UNIX) as mine:
        mine.bind(f"{folder}/agent")
        assert os.listdir(environment["XDG_RUNTIME_DIR"]) == [os.path.basename(folder)]
