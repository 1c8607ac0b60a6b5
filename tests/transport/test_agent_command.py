"""`rgpu agent` used by newcomers: each mistake gives a sentence, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from helpers import clients, pki
from helpers.command import rgpu_command
from helpers.server import Server

NOBODY = "grpc:127.0.0.1:1"


def agent(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [rgpu_command(), "agent", *arguments],
        env={**os.environ, **environment},
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def starts(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("rgpu: set RGPU_SERVER="), line or process.communicate()[1]


def serves(path: Path) -> None:
    """Asserts that the agent accepts connections, and closes those that reach no server."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(60)
        client.connect(str(path))
        client.sendall(b"x")
        assert client.recv(1) == b""


def refused(*arguments: str, **environment: str) -> tuple[int, str]:
    process = agent(*arguments, **environment)
    _, errors = process.communicate(timeout=60)
    assert errors.startswith("rgpu: ")
    assert errors.count("\n") == 1, errors
    return process.returncode, errors


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        (("--server", "127.0.0.1:1", "--listen", "unix:/tmp/x"), 2, "needs no agent"),
        (("--server", NOBODY, "--listen", "tcp:127.0.0.1:1"), 2, "is not unix:/PATH"),
        (("--server", NOBODY, "--listen", "unix:/nowhere/x"), 1, "in a folder that exists"),
        (("--server", NOBODY, "--listen", "unix:/" + "x" * 200), 2, "is too long"),
        (("--server", "grpc:127.0.0.1:70000", "--listen", "unix:/tmp/x"), 2, "ports go from"),
        (("--server", NOBODY), 2, "required"),
    ],
)
def test_mistakes(arguments: tuple[str, ...], status: int, sentence: str) -> None:
    code, errors = refused(*arguments)
    assert code == status
    assert sentence in errors


@pytest.mark.parametrize("kind", ["none", "garbage", "folder", "mismatch", "token"])
def test_files_that_cannot_be_used(tmp_path: Path, kind: str) -> None:
    garbage = tmp_path / "garbage"
    garbage.write_text("nothing of use")
    folder = tmp_path / "folder"
    folder.mkdir()
    known = pki.folder()
    name, variables = {
        "none": ("RGPU_TLS_CA", {"RGPU_TLS_CA": "/nowhere.pem"}),
        "garbage": ("RGPU_TLS_CA", {"RGPU_TLS_CA": str(garbage)}),
        "folder": ("RGPU_TLS_CA", {"RGPU_TLS_CA": str(folder)}),
        "mismatch": (
            "RGPU_TLS_CERT",
            {"RGPU_TLS_CERT": f"{known}/alice.pem", "RGPU_TLS_KEY": f"{known}/bob.key"},
        ),
        "token": ("RGPU_TOKEN", {"RGPU_TOKEN": "\u00e9"}),
    }[kind]
    path = f"{tmp_path}/agent"
    code, errors = refused(
        "--server", "grpcs:127.0.0.1:1", "--listen", f"unix:{path}", **variables
    )  # fmt: skip
    assert code == 2
    assert name in errors
    assert not Path(path).exists()


def test_a_key_with_a_password_asks_nobody(tmp_path: Path) -> None:
    key = tmp_path / "locked.key"
    pki.write_key(key, ec.generate_private_key(ec.SECP256R1()), b"abcd")
    variables = {"RGPU_TLS_CERT": f"{pki.folder()}/alice.pem", "RGPU_TLS_KEY": str(key)}
    where = f"unix:{tmp_path}/agent"
    _, errors = refused("--server", "grpcs:127.0.0.1:1", "--listen", where, **variables)
    assert "without a password" in errors


def test_the_socket_of_an_agent_that_was_killed_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "agent"
    words = ("--server", NOBODY, "--listen", f"unix:{path}")
    first = agent(*words)
    starts(first)
    # As long as it lives, no other process can take its place.
    code, errors = refused(*words)
    assert code == 1
    assert "end what listens there" in errors
    first.kill()
    first.communicate()
    assert path.is_socket()
    second = agent(*words)
    starts(second)
    serves(path)
    second.send_signal(signal.SIGINT)
    _, errors = second.communicate(timeout=60)
    assert second.returncode == 0, errors
    assert not path.exists()


def test_a_socket_that_somebody_removed_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "agent"
    process = agent("--server", NOBODY, "--listen", f"unix:{path}")
    starts(process)
    serves(path)
    path.unlink()
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors


def test_what_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_text("dear diary")
    code, errors = refused("--server", NOBODY, "--listen", f"unix:{path}")
    assert code == 1
    assert "the path exists and is not a socket" in errors
    assert path.read_text() == "dear diary"


def test_variables_that_are_no_text(tmp_path: Path) -> None:
    process = subprocess.run(
        [rgpu_command(), "probe"],
        env={**os.environ, "RGPU_SERVER": "\udcff:7700", "XDG_CACHE_HOME": str(tmp_path)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert process.returncode == 2
    assert "cannot be printed" in process.stderr
    assert process.stderr.count("\n") == 1


def test_ctrl_c_ends_a_probe_without_a_word(tmp_path: Path) -> None:
    silent = socket.create_server(("127.0.0.1", 0))
    where = f"tcp:127.0.0.1:{silent.getsockname()[1]}"
    process = subprocess.Popen(
        [rgpu_command(), "probe", where, "--watch", "1"],
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with silent, silent.accept()[0]:
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode in (130, 1)
    assert "Traceback" not in errors


def test_agents_find_files_that_are_named_from_where_they_were_started(tmp_path: Path) -> None:
    """Agents run in the root folder."""
    (tmp_path / "ca.pem").write_bytes((pki.folder() / "ca.pem").read_bytes())
    token_file = tmp_path / "t"
    made = subprocess.run(
        [rgpu_command(), "token", "new", "bob", "--tokens", "tokens.toml", "--file", "t"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert token_file.exists(), made.stderr
    listen = ("--listen", "grpcs:127.0.0.1:0", "--tokens", f"{tmp_path}/tokens.toml")
    with Server(*listen, tls=pki.config()) as server:
        done = subprocess.run(
            [rgpu_command(), "run", "--server", server.grpc, "--", sys.executable, "-c",
             clients.PRELUDE + "cuda.open()\nprint('ok')"],
            env=clients.environment(None, RGPU_TLS_CA="ca.pem", RGPU_TOKEN_FILE="t"),
            cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr
