"""No test passes beside a process that has crashed."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import clients
from helpers.ends import CRASHES, WrongEndError, ended, killed, plant, stopped, watch
from helpers.server import Server
from helpers.waiting import wait_until

# Of what tests use, not of rgpu.
pytestmark = pytest.mark.full

TESTS = Path(__file__).resolve().parents[1]
CRASH = "import os; os.kill(os.getpid(), {number})"
WAITS = "print('up', flush=True); import sys; sys.stdin.read()"
# The conftest of all tests, as far as it concerns ends.
CONFTEST = """
import importlib.util, sys
sys.path.insert(0, {tests!r})
spec = importlib.util.spec_from_file_location("whole", {tests!r} + "/conftest.py")
whole = importlib.util.module_from_spec(spec)
spec.loader.exec_module(whole)
pytest_configure = lambda config: whole.watch.install()
pytest_runtest_setup = whole.pytest_runtest_setup
pytest_runtest_call = whole.pytest_runtest_call
pytest_runtest_teardown = whole.pytest_runtest_teardown
"""
TEST = """
import signal, subprocess, sys
import pytest
from helpers.ends import plant, stopped
@pytest.fixture
def server():
    process = subprocess.Popen(["sleep", "1000"])
    yield process
    stopped(process)
@pytest.fixture
def late():
    process = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read(); {crash}"], stdin=subprocess.PIPE)
    yield
    process.communicate()
def crash(): subprocess.run([sys.executable, "-c", "{crash}"])
def test_crash(): crash()
def test_between(): pass
def test_planted(): plant(signal.SIGSEGV); crash()
def test_after(): crash()
def test_fixture(late): pass
def test_killed(server): server.kill(); server.wait()
def test_shell(): subprocess.run(["sh", "-c", "exit 139"])
def test_end(): subprocess.run(["sh", "-c", "exit 3"])
"""


def start(source: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", source], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def crashed(number: int = signal.SIGSEGV) -> subprocess.Popen[bytes]:
    return start(CRASH.format(number=number))


def close(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        pipe.close()


def waiting() -> subprocess.Popen[bytes]:
    process = start(WAITS)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    return process


@pytest.mark.parametrize("wait", [ended, stopped, killed])
@pytest.mark.parametrize("number", sorted(CRASHES))
def test_a_crash_is_no_right_end(wait: Callable[..., object], number: signal.Signals) -> None:
    plant(number)
    process = crashed(number)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(WrongEndError, match=f"was ended by {number.name}"):
        wait(process)
    close(process)


@pytest.mark.parametrize("right", [0, None, (0, 1)])
def test_every_exit_code_is_no_end_by_a_signal(right: int | None) -> None:
    plant(signal.SIGUSR1)
    process = crashed(signal.SIGUSR1)
    with pytest.raises(WrongEndError, match="SIGUSR1"):
        ended(process, right)
    close(process)


def test_another_exit_code_than_the_right_one() -> None:
    for code, right, fine in ((3, 0, False), (3, 3, True), (3, None, True), (99, None, False)):
        plant(signal.SIGKILL)
        process = start(f"raise SystemExit({code})")
        if fine:
            assert ended(process, right) == code
        else:
            with pytest.raises(WrongEndError):
                ended(process, right)
        close(process)
    with pytest.raises(WrongEndError, match="sanitizer"):
        watch.check()


def test_a_process_that_does_not_end() -> None:
    process = waiting()
    with pytest.raises(WrongEndError, match=r"did not end within 0\.01 s"):
        ended(process, seconds=0.01)
    assert process.returncode == -signal.SIGKILL
    close(process)


def test_what_a_test_itself_has_sent_is_right() -> None:
    process = waiting()
    process.send_signal(signal.SIGUSR1)
    assert stopped(process) in (-signal.SIGUSR1, -signal.SIGTERM)
    close(process)
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV):
        process = waiting()
        pidfd = os.pidfd_open(process.pid)
        signal.pidfd_send_signal(pidfd, number)
        os.close(pidfd)
        process.wait()
        close(process)
    watch.check()


def test_what_somebody_else_has_sent_is_wrong() -> None:
    process = waiting()
    subprocess.run(["sh", "-c", f"kill -SEGV {process.pid}"], check=True)
    process.wait()
    close(process)
    with pytest.raises(WrongEndError, match="SIGSEGV, which no test asked for"):
        watch.check()


def test_a_process_that_nobody_has_waited_for() -> None:
    process = crashed()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(WrongEndError, match="SIGSEGV"):
        watch.check()
    process.wait()
    close(process)


def test_a_process_that_is_left_behind() -> None:
    """Its parent is killed, so only the kernel knows how it ends: Linux 6.15 says it."""
    source = (
        "import subprocess, sys\n"
        f"print(subprocess.Popen([sys.executable, '-c', {WAITS + '; ' + CRASH.format(number=11)!r}],"
        " stdout=2, stderr=1).pid, flush=True)\n"
        "sys.stdin.read()"
    )
    process = start(source)
    assert process.stdout is not None
    child = int(process.stdout.readline())
    pidfd = os.pidfd_open(child)
    process.kill()
    process.wait()
    close(process)  # the child's input ends, too
    assert select.select([pidfd], [], [], 60)[0]
    wait_until(lambda: not Path(f"/proc/{child}").exists())
    os.close(pidfd)
    if tuple(map(int, os.uname().release.split(".")[:2])) < (6, 15):
        pytest.skip("Linux before 6.15 does not say how a process of others ended")
    with pytest.raises(WrongEndError, match=f"process {child}, .* was ended by SIGSEGV"):
        watch.check()


@pytest.mark.parametrize("words", ["/rgpu-worker", "-m rgpu_server.tokens"])
def test_the_crash_of_a_process_of_a_server(words: str) -> None:
    """A worker, and the token loop."""
    with Server() as server:
        # A client that stays: the worker of one that has ended may end before the signal comes.
        client = clients.start(server.unix, "cuda.open()\nprint('open')\nwait_for_line()")
        assert client.stdout is not None
        assert client.stdout.readline() == "open\n"
        wait_until(lambda: bool(server.called(words)))
        # Another process sends it: a test that sends it itself has asked for it.
        subprocess.run(["sh", "-c", f"kill -SEGV {server.called(words)[0]}"], check=True)
        wait_until(lambda: any("SIGSEGV" in line for line in server.log))
        with pytest.raises(WrongEndError, match="SIGSEGV"):
            watch.check()
        killed(client)
        client.communicate()


def test_a_crash_that_a_server_says_at_its_end() -> None:
    server = Server()
    server.__enter__()
    wait_until(lambda: bool(server.children()))
    server.log.append("worker 7 of lease a, process 1, was ended by SIGABRT\n")
    with pytest.raises(WrongEndError, match="SIGABRT"):
        server.stop()
    watch.check()


def test_the_test_that_runs_fails(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST.format(tests=str(TESTS)))
    test = TEST.replace("{crash}", CRASH.format(number=11))
    (tmp_path / "test_it.py").write_text(test)
    words = [
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:randomly",
        "-rA",
        "--rootdir",
        tmp_path,
        tmp_path,
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=tmp_path, capture_output=True, text=True, timeout=150, check=False,
    )  # fmt: skip
    lines = [line.split() for line in done.stdout.splitlines() if "test_it.py::" in line]
    told = {(words[0], words[1].rpartition("::")[2]) for words in lines if words[0].isupper()}
    assert {(how, name) for how, name in told if how != "PASSED"} == {
        ("FAILED", "test_crash"),
        ("FAILED", "test_after"),
        ("ERROR", "test_fixture"),
        ("FAILED", "test_shell"),
    }, done.stdout
    assert {name for how, name in told if how == "PASSED"} >= {
        "test_between",
        "test_planted",
        "test_killed",
        "test_end",
    }, done.stdout
