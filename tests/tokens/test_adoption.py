"""The sessions that outlive a daemon or a token loop, with real servers and real workers."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import urllib.request
from pathlib import Path

import pytest
from helpers import clients
from helpers.asking import running_on
from helpers.command import rgpu_command
from helpers.needs import needs
from helpers.server import Server
from helpers.waiting import wait_until
from typing_extensions import Self

MIB = 1 << 20
LISTENS = 1 << 16  # in /proc/net/unix
PROGRAM = """
cuda.open()
held = cuda.alloc(64 << 20)
print("ready", flush=True)
while True:
    wait_for_line()
    data = bytes(range(256)) * 16
    cuda.upload(held, data)
    assert cuda.download(held, len(data)) == data
    print(cuda.memory()[1], flush=True)
"""


class Program:
    """A program that holds 64 MiB and copies when it is told to."""

    def __init__(self, server: str, **options: str) -> None:
        self.process = clients.start(server, PROGRAM, **options)
        self.hears("ready")

    def hears(self, wanted: str) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        assert line.startswith(wanted), line + self.errors()
        return line

    def copies(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.hears("")

    def errors(self) -> str:
        self.process.kill()
        return self.process.communicate()[1]

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


class Kept(Server):
    """A server whose token loop listens: only then can a next daemon adopt what this one leaves."""

    def __init__(self, state: Path, *arguments: str) -> None:
        self._state = state
        super().__init__(
            "--state-dir", str(state), "--listen", f"unix:{state.parent}/s", *arguments
        )

    def __enter__(self) -> Self:
        super().__enter__()
        wait_until(lambda: listens(self._state / "loop"))
        return self


def listens(path: Path) -> bool:
    """True if a process listens there: a killed one leaves its socket's file behind."""
    lines = Path("/proc/net/unix").read_text().splitlines()
    found = [line.split()[3] for line in lines if line.endswith(f" {path}")]
    return any(int(flags, 16) & LISTENS for flags in found)


def sessions(address: str) -> list[dict[str, object]]:
    """Returns the sessions of `rgpu ps`."""
    return list(running_on(address)["sessions"])


def leases(address: str) -> list[dict[str, object]]:
    return list(running_on(address)["leases"])


def used(lease: dict[str, object]) -> int:
    usage = lease["usage"]
    assert isinstance(usage, dict)
    return int(usage["memory_used_bytes"])


def crash(running: Server) -> None:
    """kill -9, and nothing else."""
    assert running.process is not None
    running.process.send_signal(signal.SIGKILL)
    running.process.wait()


def loop_of(running: Server) -> int:
    """The process id of a server's token loop."""
    (pid,) = running.called("-m rgpu_server.tokens")
    return pid


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def test_a_session_survives_the_daemon_and_the_next_one_knows_it(state: Path) -> None:
    address = f"unix:{state.parent}/s"
    with Kept(state) as first:
        program = Program(address, RGPU_LEASE="kept", RGPU_MEMORY="256MiB")
        (before,) = sessions(address)
        crash(first)
        program.copies()
        with Kept(state) as second:
            (after,) = sessions(address)
            assert after["worker_pid"] == before["worker_pid"]
            assert after["session_id"] == before["session_id"]
            assert after["program"] == before["program"]
            (lease,) = leases(address)
            assert used(lease) >= 64 * MIB
            program.copies()
            # The next session of the same lease shares its memory and gets numbers of its own.
            other = Program(address, RGPU_LEASE="kept")
            assert len({s["session_id"] for s in sessions(address)}) == 2
            assert len(leases(address)) == 1
            other.close()
            program.close()
            wait_until(lambda: not sessions(address))
            assert second.process is not None
    wait_until(lambda: not state.exists())  # the loop removes it, and nobody waits for that


def test_a_server_that_cannot_start_leaves_running_sessions_to_the_next(state: Path) -> None:
    address = f"unix:{state.parent}/s"
    with Kept(state) as first, socket.create_server(("127.0.0.1", 0)) as taken:
        program = Program(address)
        (before,) = sessions(address)
        crash(first)
        metrics = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(RuntimeError, match="metrics"), Kept(state, "--metrics", metrics):
            pass
        with Kept(state):
            (after,) = sessions(address)
            assert after["worker_pid"] == before["worker_pid"]
            program.copies()
            program.close()
    wait_until(lambda: not state.exists())


def test_a_server_that_cannot_start_leaves_no_folder(state: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        metrics = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(RuntimeError, match="metrics"), Kept(state, "--metrics", metrics):
            pass
    wait_until(lambda: not state.exists())


def test_an_adopted_session_ends_when_it_is_told_to(state: Path) -> None:
    address = f"unix:{state.parent}/s"
    with Kept(state) as first:
        program = Program(address)
        crash(first)
        with Kept(state) as second:
            worker = int(str(sessions(address)[0]["worker_pid"]))
            pidfd = os.pidfd_open(worker)
            assert second.process is not None
            second.process.send_signal(signal.SIGINT)
            assert second.process.wait(60) == 0
            assert select.select([pidfd], [], [], 60)[0]
            os.close(pidfd)
        program.close()


def test_a_worker_that_ends_while_no_daemon_is_there_holds_nothing(state: Path) -> None:
    address = f"unix:{state.parent}/s"
    with Kept(state) as first:
        kept, gone = Program(address, RGPU_LEASE="a"), Program(address, RGPU_LEASE="a")
        crash(first)
        gone.close()
        with Kept(state):
            wait_until(lambda: len(sessions(address)) == 1)
            (lease,) = leases(address)
            assert used(lease) >= 64 * MIB
            wait_until(lambda: used(leases(address)[0]) < 128 * MIB)
            kept.close()


def test_a_killed_daemon_leaves_nothing(state: Path) -> None:
    with Kept(state) as first:
        program = Program(f"unix:{state.parent}/s")
        crash(first)
        program.close()
        wait_until(lambda: not state.exists())


@needs("root")  # who may write into the memory of the token loop
def test_a_lease_whose_page_is_broken_is_not_adopted_and_holds_nothing(state: Path) -> None:
    address = f"unix:{state.parent}/s"
    with Kept(state) as first:
        program = Program(address)
        worker = os.pidfd_open(int(str(sessions(address)[0]["worker_pid"])))
        loop = loop_of(first)
        crash(first)
        _break_pages(loop)
        with Kept(state) as second:
            assert select.select([worker], [], [], 60)[0]
            assert not leases(address)
            other = Program(address)
            crash(second)
            with Kept(state) as third:
                assert len(sessions(address)) == 1
                assert not any("cannot be adopted" in line for line in third.log)
                other.copies()
                other.close()
                program.close()
        os.close(worker)


def _break_pages(loop: int) -> None:
    """Overwrites the beginning of every lease page, as an exploited worker could."""
    # The loop may not have read the daemon's last message yet.
    wait_until(lambda: bool(_lease_pages(loop)))
    for fd in _lease_pages(loop):
        with fd.open("r+b") as page:
            page.write(bytes(8))


def _lease_pages(loop: int) -> list[Path]:
    found = []
    for fd in Path(f"/proc/{loop}/fd").iterdir():
        # The loop may close one meanwhile.
        with contextlib.suppress(FileNotFoundError):
            if "rgpu-lease" in os.readlink(fd):
                found.append(fd)
    return found


def test_two_servers_never_share_a_state_folder(state: Path) -> None:
    with Kept(state):
        done = subprocess.run(
            [rgpu_command(), "serve", "--listen", "127.0.0.1:0", "--state-dir", str(state)],
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1
        assert "another server uses it" in done.stderr
        assert "--state-dir" in done.stderr


def test_a_folder_that_others_can_see_is_not_used(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    done = subprocess.run(
        [rgpu_command(), "serve", "--listen", "127.0.0.1:0", "--state-dir", str(tmp_path)],
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "others may look into it" in done.stderr


def test_a_loop_that_dies_is_replaced_and_sessions_go_on(state: Path) -> None:
    address = f"unix:{state.parent}/s"
    with Kept(state, "--metrics", "127.0.0.1:0") as running:
        program = Program(address)
        before = loop_of(running)
        os.kill(before, signal.SIGKILL)
        wait_until(lambda: _replaced(running, before) and listens(state / "loop"))
        program.copies()
        other = Program(address)
        other.copies()
        # The new loop keeps them as the old one did.
        crash(running)
        program.copies()
        with Kept(state):
            assert len(sessions(address)) == 2
            program.close()
            other.close()


def test_a_loop_that_leaves_the_daemon_that_adopted_it_is_ended(state: Path) -> None:
    address = f"unix:{state.parent}/s"
    with Kept(state) as first:
        program = Program(address)
        before = os.pidfd_open(loop_of(first))
        crash(first)
        with Kept(state) as second, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other:
            other.connect(str(state / "loop"))  # for the newcomer it leaves the daemon
            assert select.select([before], [], [], 60)[0]
            wait_until(lambda: _replaced(second, 0))
            program.copies()
            program.close()
        os.close(before)


def _replaced(running: Server, before: int) -> bool:
    try:
        return loop_of(running) != before
    except ValueError:
        return False


def test_counters_go_on_where_the_daemon_before_was(state: Path) -> None:
    address = f"unix:{state.parent}/s"
    with Kept(state) as first:
        kept, ended = Program(address, RGPU_LEASE="a"), Program(address, RGPU_LEASE="a")
        for program in (kept, ended):
            program.copies()
        ended.close()
        wait_until(lambda: len(sessions(address)) == 1)
        crash(first)
        kept.copies()
        with Kept(state, "--metrics", "127.0.0.1:0") as second:
            copied = 3 * 2 * len(bytes(range(256)) * 16)
            wait_until(lambda: metric(second, "rgpu_copied_bytes_total") == copied)
            assert metric(second, "rgpu_memory_peak_bytes") >= 64 * MIB
            kept.close()


def metric(running: Server, name: str) -> float:
    """The value of the only lease."""
    at = next(line for line in running.log if "metrics on " in line)
    with urllib.request.urlopen(at.split("metrics on ")[1].strip(), timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    (value,) = [line.split()[-1] for line in lines if line.startswith(f"{name}{{")]
    return float(value)


def test_with_quotas_off_everybody_runs(state: Path) -> None:
    config = state.parent / "rgpu.toml"
    config.write_text("[quota]\nenforce = false\n")
    address = f"unix:{state.parent}/s"
    with Kept(state, "--config", str(config)) as first:
        program = Program(address)
        program.copies()
        crash(first)
        with Kept(state):  # and on again: the same sessions, scheduled from now on
            program.copies()
            program.close()
