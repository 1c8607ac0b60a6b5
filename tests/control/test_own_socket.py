"""The Unix socket that a server opens unasked: found by programs of its machine, and never taken
from another server.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from helpers import clients
from helpers.command import rgpu_command, run_rgpu
from helpers.ends import stopped
from helpers.waiting import wait_until

from rgpu_common.unix import answers, bind_unix
from rgpu_server.service.own_socket import open_own_socket, own_socket_path

READY = re.compile(r"rgpu: serving .* on (127\.0\.0\.1:([0-9]+))(?:, (unix:\S+))?\n")


@contextmanager
def serving(
    *options: str, listen: str = "127.0.0.1:0"
) -> Iterator[tuple[subprocess.Popen[str], re.Match[str]]]:
    command = [rgpu_command(), "serve", "--device", "emulated:256MiB", "--listen", listen, *options]
    with subprocess.Popen(
        command, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            ready = READY.fullmatch(process.stdout.readline())
            assert ready is not None
            yield process, ready
        finally:
            stopped(process)


def test_programs_of_the_machine_get_shared_memory_unasked() -> None:
    with serving() as (_, ready):
        address, port, socket_uri = ready.groups()
        path = own_socket_path(int(port))
        assert socket_uri == f"unix:{path}"
        # Like 127.0.0.1, the socket is for everybody who can reach the folder.
        assert stat.S_IMODE(path.stat().st_mode) == 0o666
        ended = subprocess.run(
            [rgpu_command(), "run", "-v", "--server", address, "--", "true"],
            env=clients.environment(None), cwd="/", capture_output=True, text=True, timeout=60,
            check=True,
        )  # fmt: skip
        assert f"rgpu path: shm:{path}: client and server are on one machine" in ended.stderr
    assert not path.exists()


@pytest.mark.parametrize("words", [("--no-socket",), ("--listen", "unix:/{folder}/s")])
def test_an_operator_who_says_how_programs_come_in_gets_no_other_socket(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    named = [word.replace("/{folder}", str(tmp_path)) for word in words]
    with serving(*named) as (_, ready):
        assert not own_socket_path(int(ready[2])).exists()
        assert ready[3] in (None, f"unix:{tmp_path}/s")


def test_a_second_server_does_not_take_the_sockets_of_the_first(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "rgpu-1.sock"
    first = open_own_socket(path, tmp_path)
    assert first is not None
    with first:
        assert open_own_socket(path, tmp_path) is None
        assert "programs on this machine get no shared memory by default" in caplog.text
        assert answers(str(path))
        other = open_own_socket(tmp_path / "rgpu-2.sock", tmp_path)
        assert other is not None
        with other:
            assert answers(str(path))


def test_sockets_of_killed_servers_are_replaced_and_swept(tmp_path: Path) -> None:
    for port in (1, 2):
        with bind_unix(str(tmp_path / f"rgpu-{port}.sock")) as dead:
            dead.listen(1)
    (tmp_path / "rgpu-3.sock").write_text("not a socket")
    with open_own_socket(tmp_path / "rgpu-1.sock", tmp_path) or socket.socket():
        assert answers(str(tmp_path / "rgpu-1.sock"))
        assert not (tmp_path / "rgpu-2.sock").exists()
        assert (tmp_path / "rgpu-3.sock").exists()


def test_a_server_that_was_killed_leaves_no_socket_for_good() -> None:
    with serving() as (process, ready):
        path = own_socket_path(int(ready[2]))
        process.send_signal(signal.SIGKILL)
        process.wait(30)
        assert path.exists()
        with serving():
            wait_until(lambda: not path.exists())


def test_a_folder_that_cannot_be_written_to_is_gone_without(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert open_own_socket(tmp_path / "none" / "rgpu-1.sock", tmp_path) is None
    assert "or say --no-socket" in caplog.text
    assert os.listdir(tmp_path) == []


@pytest.mark.full
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.parametrize("state", ["one", "other"])
def test_a_second_server_at_a_port_is_told_who_has_it(
    host: str, state: str, tmp_path: Path
) -> None:
    with serving("--state-dir", str(tmp_path / "one")) as (_, ready):
        port = int(ready[2])
        done = run_rgpu(
            "serve", "--listen", f"{host}:{port}", "--device", "emulated:256MiB", "--insecure",
            "--state-dir", str(tmp_path / state),
        )  # fmt: skip
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last == (
        f"rgpu: the port of {host}:{port} is in use by another rgpu server (`rgpu devices --server "
        f"127.0.0.1:{port}` shows what it serves): use that one, end it, or name another port: "
        f"--listen {host}:{port + 1}"
    )


def test_two_servers_with_one_state_folder_and_two_ports(tmp_path: Path) -> None:
    with serving("--state-dir", str(tmp_path / "state")):
        done = run_rgpu(
            "serve", "--listen", "127.0.0.1:0", "--device", "emulated:256MiB",
            "--state-dir", str(tmp_path / "state"),
        )  # fmt: skip
    assert done.returncode == 1
    assert "another server uses it; name another one with --state-dir" in done.stderr


ALWAYS = '[identity]\nrequire = "always"\n'
USERS = "[identity]\nusers = {4711 = 'alice'}\n"
COMMANDS = (
    ("run", ("--", "true")),
    ("ps", ()),
    ("devices", ()),
    ("undrain", ()),
    ("doctor", ()),
)


@pytest.mark.parametrize("rules", [ALWAYS, pytest.param(USERS, marks=pytest.mark.full)])
def test_commands_of_the_servers_user_get_in_where_its_programs_do(
    tmp_path: Path, rules: str
) -> None:
    """At the Unix socket, which HOST:PORT of the same machine leads to; not at `tcp:`, a path."""
    config = tmp_path / "rgpu.toml"
    config.write_text(rules)
    with serving("--config", str(config)) as (_, ready):
        address, _, socket_uri = ready.groups()
        for where in (address, socket_uri):
            for command, rest in COMMANDS:
                done = run_rgpu(command, "--server", where, *rest)
                assert done.returncode == 0, (command, where, done.stdout + done.stderr)
        for command, rest in COMMANDS:
            done = run_rgpu(command, "--server", f"tcp:{address}", *rest)
            assert done.returncode != 0, command
            said = (done.stdout if command == "doctor" else done.stderr).replace("\n", " ")
            assert "without an access token or a certificate" in " ".join(said.split()), command
            assert "Unix socket" in " ".join(said.split()), command
