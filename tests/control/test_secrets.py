"""Secrets stay where they belong: not in logs, command lines, environments of workers, files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import clients
from helpers.server import Server, rgpu_command, run_client

from rgpu_common.command import main

HOLD = """
cuda.open()
cuda.alloc(1 << 20)
print("here", flush=True)
input()
"""


def made(folder: Path, tenant: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["token", "new", tenant, "--tokens", str(folder / "tokens.toml")]) == 0
    return capsys.readouterr().out.strip()


def everything_of(pids: list[int], entry: str) -> bytes:
    return b"\n".join(Path(f"/proc/{pid}/{entry}").read_bytes() for pid in pids)


def descendants(pid: int) -> list[int]:
    found, pending = [], [pid]
    while pending:
        found.append(pending.pop())
        for task in Path(f"/proc/{found[-1]}/task").iterdir():
            pending += [int(child) for child in (task / "children").read_text().split()]
    return found


def test_a_token_is_nowhere_but_with_its_client(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    token, wrong = made(tmp_path, "alice", capsys), made(tmp_path / "else", "alice", capsys)
    config = tmp_path / "rgpu.toml"
    config.write_text(
        f'[identity]\nrequire = "always"\ntokens = "{tmp_path}/tokens.toml"\n'
        f'[server]\nstate = "{tmp_path}/state"\n'
    )
    (tmp_path / "alice").write_text(token + "\n")
    with Server("--config", str(config), "--log-level", "debug") as server:
        holder = clients.start(server.tcp, HOLD, RGPU_TOKEN_FILE=str(tmp_path / "alice"))
        assert holder.stdout is not None
        assert holder.stdout.readline() == "here\n"
        assert server.process is not None
        pids = descendants(server.process.pid)
        assert len(pids) > 2
        outside = subprocess.run(
            ["ps", "-eo", "args", "ww"], capture_output=True, text=True, check=True
        ).stdout
        shown = [
            everything_of(pids, "cmdline"),
            everything_of(pids, "environ"),
            everything_of([holder.pid], "cmdline"),
            outside.encode(),
        ]
        # Refusals and strange greetings are where a careless log would show it.
        for spoilt in (wrong, token + "x", token + "\n"):
            status, _, errors = clients.run(server.tcp, "cuda.open()", RGPU_TOKEN=spoilt)
            assert status != 0
            shown.append(errors.encode())
        told = subprocess.run(
            [rgpu_command(), "devices", "--server", server.tcp],
            env={**os.environ, "RGPU_TOKEN": wrong}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert told.returncode == 1
        assert "not valid" in told.stderr
        shown.append(told.stderr.encode() + told.stdout.encode())
        listed = subprocess.run(
            [rgpu_command(), "ps", "--server", server.tcp, "--json"],
            env={**os.environ, "RGPU_TOKEN": token}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert '"alice"' in listed.stdout
        shown.append(listed.stdout.encode())
        kept = [path for path in (tmp_path / "state").rglob("*") if path.is_file()]
        shown += [path.read_bytes() for path in kept]
        holder.communicate("\n")
        shown.append("".join(server.log).encode())
    shown.append("".join(server.log).encode())
    for secret in (token, wrong):
        for part in (secret, secret.split("_", 2)[2]):
            assert not [text for text in shown if part.encode() in text]
    assert b"identity_refused" in shown[-1]


def test_a_program_without_its_token_gets_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    token = made(tmp_path, "alice", capsys)
    config = tmp_path / "rgpu.toml"
    config.write_text(
        f'[identity]\nrequire = "always"\ntokens = "{tmp_path}/tokens.toml"\n'
        f"users = {{{os.geteuid() + 1} = 'bob'}}\n"
    )
    program = (sys.executable, "-c", clients.PRELUDE + "cuda.open()")
    path = {"PYTHONPATH": str(clients.TESTS)}
    with Server("--config", str(config)) as server:
        for variables, words in (
            ({}, "without a token or a certificate"),
            ({"RGPU_TOKEN": "wrong"}, "not valid here"),
            ({"RGPU_TOKEN": token, "RGPU_TENANT": "bob"}, "you are tenant 'alice' here"),
        ):
            done = run_client(server.tcp, *program, **path, **variables)
            assert done.returncode != 0
            assert words in done.stderr, done.stderr
            assert "CUresult 46" in done.stderr
        done = run_client(server.tcp, *program, **path, RGPU_TOKEN=token)
        assert done.returncode == 0, done.stderr
        file = tmp_path / "its-token"
        for text, sentence in (
            (f" {token} \r\n", ""),
            ("", "holds no token in its first line"),
            (f"\n{token}\n", "holds no token in its first line"),
        ):
            file.write_text(text, newline="")
            done = run_client(server.tcp, *program, **path, RGPU_TOKEN_FILE=str(file))
            assert (done.returncode == 0) == (sentence == ""), done.stderr
            assert sentence in done.stderr
        # The server's own user needs nothing on a Unix socket.
        done = run_client(server.unix, *program, **path)
        assert done.returncode == 0, done.stderr
