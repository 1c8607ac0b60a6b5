"""Secrets stay where they belong: not in logs, command lines, environments of workers, files."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import os
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from helpers import clients
from helpers.needs import needs
from helpers.server import Server, rgpu_command, run_client

import netprobe
import rgpu_client
import rgpu_common
import rgpu_emu
import rgpu_server
from rgpu_common.command import main
from rgpu_common.errors import MissingPartError

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
    found = []
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            found.append(Path(f"/proc/{pid}/{entry}").read_bytes())
    return b"\n".join(found)


def command_lines() -> bytes:
    """Returns what `ps` would show of all processes."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            found.append((process / "cmdline").read_bytes())
    return b"\n".join(found)


@needs("root")  # who may read the environment of a process that shows nobody its memory
def test_an_access_token_is_nowhere_but_with_its_client(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    access_token, wrong = made(tmp_path, "alice", capsys), made(tmp_path / "else", "alice", capsys)
    config = tmp_path / "rgpu.toml"
    config.write_text(
        f'[identity]\nrequire = "always"\ntokens = "{tmp_path}/tokens.toml"\n'
        f'[server]\nstate = "{tmp_path}/state"\n'
    )
    (tmp_path / "alice").write_text(access_token + "\n")
    with Server("--config", str(config), "--log-level", "debug") as server:
        holder = clients.start(server.tcp, HOLD, RGPU_TOKEN_FILE=str(tmp_path / "alice"))
        assert holder.stdout is not None
        assert holder.stdout.readline() == "here\n"
        assert server.process is not None
        pids = [server.process.pid, *server.descendants()]
        assert len(pids) > 2
        shown = [
            everything_of(pids, "cmdline"),
            everything_of(pids, "environ"),
            everything_of([holder.pid], "cmdline"),
            command_lines(),
        ]
        # Refusals and strange greetings are where a careless log would show it.
        for spoilt in (wrong, access_token + "x", access_token + "\n"):
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
            env={**os.environ, "RGPU_TOKEN": access_token}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert '"alice"' in listed.stdout
        shown.append(listed.stdout.encode())
        kept = [path for path in (tmp_path / "state").rglob("*") if path.is_file()]
        shown += [path.read_bytes() for path in kept]
        holder.communicate("\n")
        shown.append("".join(server.log).encode())
    shown.append("".join(server.log).encode())
    for secret in (access_token, wrong):
        for part in (secret, secret.split("_", 2)[2]):
            assert not [text for text in shown if part.encode() in text]
    assert b"identity_refused" in shown[-1]


def test_a_program_without_its_access_token_gets_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    access_token = made(tmp_path, "alice", capsys)
    config = tmp_path / "rgpu.toml"
    config.write_text(
        f'[identity]\nrequire = "always"\ntokens = "{tmp_path}/tokens.toml"\n'
        f"users = {{{os.geteuid() + 1} = 'bob'}}\n"
    )
    program = (sys.executable, "-c", clients.PRELUDE + "cuda.open()")
    path = {"PYTHONPATH": str(clients.TESTS)}
    with Server("--config", str(config)) as server:
        for variables, words in (
            ({}, "without an access token or a certificate"),
            ({"RGPU_TOKEN": "wrong"}, "not valid here"),
            ({"RGPU_TOKEN": access_token, "RGPU_TENANT": "bob"}, "you are tenant 'alice' here"),
        ):
            done = run_client(server.tcp, *program, **path, **variables)
            assert done.returncode == 125  # the program was not started
            assert words in done.stderr, done.stderr
        done = run_client(server.tcp, *program, **path, RGPU_TOKEN=access_token)
        assert done.returncode == 0, done.stderr
        file = tmp_path / "its-token"
        for text, sentence in (
            (f" {access_token} \r\n", ""),
            ("", "holds no access token in its first line"),
            (f"\n{access_token}\n", "holds no access token in its first line"),
        ):
            file.write_text(text, newline="")
            done = run_client(server.tcp, *program, **path, RGPU_TOKEN_FILE=str(file))
            assert (done.returncode == 0) == (sentence == ""), done.stderr
            assert sentence in done.stderr
        # The server's own user needs nothing on a Unix socket.
        done = run_client(server.unix, *program, **path)
        assert done.returncode == 0, done.stderr


SECRET = "the-secret-that-nobody-prints"
# Fields that hold a secret by their names; `head` is a greeting as a client sent it, with the
# access token.
NAMES = re.compile(
    r"(^|_)(token|secret|password|passphrase|credentials?|authorization|head|hello)$"
)
# A name alone does not make a secret: why it is none.
HARMLESS = {
    ("rgpu_server.core.identity.Evidence", "access_token"): "the tenant that an access token names",
}


def holders() -> Iterator[tuple[str, type, str]]:
    """Every class of this project with a field that holds a secret, and the field."""
    for package in (netprobe, rgpu_client, rgpu_common, rgpu_emu, rgpu_server):
        for found in pkgutil.walk_packages(
            package.__path__, f"{package.__name__}.", onerror=lambda _: None
        ):
            if found.name.endswith("__main__") or "_pb2" in found.name:
                continue
            try:
                module = importlib.import_module(found.name)
            except (ImportError, MissingPartError):
                continue  # of an extra that is not installed
            for value in vars(module).values():
                if isinstance(value, type) and value.__module__ == module.__name__:
                    for field in fields_of(value):
                        yield f"{module.__name__}.{value.__name__}", value, field


def fields_of(kind: type) -> list[str]:
    """Names of fields with a text in them that is secret."""
    if dataclasses.is_dataclass(kind):
        typed = {field.name: str(field.type) for field in dataclasses.fields(kind)}
    elif issubclass(kind, msgspec.Struct):
        typed = {
            name: str(kind.__annotations__.get(name, "str")) for name in kind.__struct_fields__
        }
    elif issubclass(kind, tuple) and hasattr(kind, "_fields"):
        typed = {name: str(kind.__annotations__.get(name, "str")) for name in kind._fields}
    else:
        return []
    return [
        name
        for name, annotation in typed.items()
        if NAMES.search(name) and re.search(r"\b(str|bytes|bytearray|memoryview)\b", annotation)
    ]


def filled(kind: type, secret: str) -> object:
    """An instance whose field `secret` has the secret and whose other fields have nothing."""
    if issubclass(kind, tuple):
        names: tuple[str, ...] = kind._fields  # type: ignore[attr-defined]
        return tuple.__new__(kind, [SECRET if name == secret else None for name in names])
    if issubclass(kind, msgspec.Struct):
        return kind(*[SECRET if name == secret else None for name in kind.__struct_fields__])
    made = object.__new__(kind)
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        object.__setattr__(made, field.name, SECRET if field.name == secret else None)
    return made


def test_no_object_prints_a_secret() -> None:
    found = list(holders())
    assert len(found) >= 8, found
    printing = [
        (name, field)
        for name, kind, field in found
        if (name, field) not in HARMLESS and SECRET in repr(filled(kind, field))
    ]
    assert printing == []
    known = {(name, field) for name, _, field in found}
    assert set(HARMLESS) <= known, "an exception that is none any more"
