"""`rgpu doctor` as a user and an operator meet it."""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import pki
from helpers.command import WEAK_ISOLATION
from helpers.command import run_rgpu_plain as rgpu
from helpers.server import Server

from rgpu_client.doctor import manager as manager_checks
from rgpu_client.doctor import server as server_checks
from rgpu_common.doctor.findings import Check, Finding, Level, failed
from rgpu_common.errors import ServerError, WorkerError
from rgpu_common.v1 import cluster_pb2
from rgpu_server.arrays import source_compiler
from rgpu_server.doctor import machine
from rgpu_server.workers import compiler

NOBODY = "127.0.0.1:1"
COMPILERS = {"rgpu_emu.compiler", "rgpu_server.arrays.nvrtc_server"}
DEVICES = "devices = ['emulated:1GiB']\n"
# The tests run in containers, too, which give processes no network namespace.
ALLOWED = f"[isolation]\nallow_weak = {WEAK_ISOLATION.partition('=')[2].split(',')}\n"


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with Server() as server:
        yield server


def findings(*options: str, code: int, **environment: str) -> list[dict[str, str]]:
    """Returns the findings of `rgpu doctor`, each of which is complete."""
    done = rgpu("doctor", "--json", *options, **environment)
    assert done.returncode == code, done.stdout + done.stderr
    report = json.loads(done.stdout)
    found: list[dict[str, str]] = report["findings"]
    levels = [one["level"] for one in found]
    assert report["errors"] == levels.count("error")
    assert report["warnings"] == levels.count("warning")
    assert (report["errors"] > 0) == (code == 1)
    for one in found:
        assert one["area"], one
        assert one["sentence"], one
        if one["level"] in ("warning", "error"):
            assert one["remedy"], one
    return found


def those(found: list[dict[str, str]], area: str, level: str) -> str:
    """Returns the sentences and remedies of an area and a level."""
    chosen = [one for one in found if (one["area"], one["level"]) == (area, level)]
    return "\n".join(f"{one['sentence']} -> {one['remedy']}" for one in chosen)


def test_a_client_whose_server_is_well(running: Server) -> None:
    found = findings("--server", running.tcp, code=0)
    assert not those(found, "versions", "warning")
    assert {one["area"] for one in found} == {
        "versions", "variables", "driver", "libraries", "token", "port", "path", "clock", "quota",
    }  # fmt: skip
    assert "libcuda.so.1" in those(found, "driver", "ok")
    assert "round trip" in those(found, "path", "ok")
    assert "2 GiB of 2 GiB free" in those(found, "quota", "ok")


def test_the_text_names_the_remedy_and_the_exit_code_says_that_something_is_wrong() -> None:
    done = rgpu("doctor", "--server", NOBODY)
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("error"))
    assert lines[at].split() == ["error", "port", "nothing", "listens", "at", NOBODY]
    assert lines[at + 1].split()[:4] == ["->", "start", "'rgpu", "serve"]
    assert lines[-1] == "1 error, 0 warnings"


def test_each_of_several_servers_is_looked_at(running: Server) -> None:
    found = findings("--server", f"{NOBODY},{running.tcp}", code=1)
    assert NOBODY in those(found, "port", "error")
    assert running.tcp in those(found, "port", "ok")


def of_nodes(count: int, *addresses: str, seconds: float = 60.0) -> list[Finding]:
    """What is found of nodes at one server, and of others at these addresses."""
    nodes = [
        cluster_pb2.PoolNode(name=f"gpu{at}", address=address, connected=True)
        for at, address in enumerate((addresses[0],) * count + addresses[1:])
    ]
    return list(manager_checks._nodes(nodes, secured=False, seconds=seconds))


def test_of_many_nodes_all_are_looked_at_and_what_is_wrong_is_shown(running: Server) -> None:
    found = of_nodes(30, running.tcp, NOBODY)
    assert [(one.area, one.level.value, one.sentence) for one in found] == [
        ("port", "error", f"node gpu30: nothing listens at {NOBODY}"),
        ("manager", "ok", "30 of 31 nodes have nothing wrong"),
    ]
    shown = {one.sentence.partition(":")[0] for one in of_nodes(2, running.tcp)}
    assert shown == {"node gpu0", "node gpu1"}, "of a few nodes all is shown"


def test_nodes_for_which_the_time_is_too_short_are_named(running: Server) -> None:
    *_, last = of_nodes(30, running.tcp, seconds=0.0)
    assert last.level is Level.WARNING
    assert "30 nodes could be looked at: gpu0, gpu1," in last.sentence
    assert last.sentence.endswith("gpu11 and 18 more")


def test_a_misspelt_variable_and_a_wrong_value(running: Server) -> None:
    found = findings("--server", running.tcp, code=1, RGPU_SEVER="x", RGPU_SHARE="3")
    assert "RGPU_SEVER is no variable of rgpu" in those(found, "variables", "warning")
    assert "set RGPU_SERVER instead" in those(found, "variables", "warning")
    assert "RGPU_SHARE: '3' is not a share" in those(found, "variables", "error")
    assert not those(found, "token", "error")


def test_every_wrong_value_is_found_at_once(running: Server) -> None:
    wrong = {"RGPU_MEMORY": "lots", "RGPU_SHARE": "200%", "RGPU_POLICY": "?", "RGPU_RESUME": "si"}
    found = findings("--server", running.tcp, code=1, **wrong)
    sentences = those(found, "variables", "error").splitlines()
    assert len(sentences) == len(wrong)
    assert all(any(name in one for one in sentences) for name in wrong)


def test_values_that_are_accepted_each_and_not_together(running: Server) -> None:
    found = findings("--server", running.tcp, code=1, RGPU_SHARE="50%", RGPU_LIMIT="20%")
    (said,) = those(found, "variables", "error").splitlines()
    assert said.startswith("the share 50% is above its limit 20% -> raise the limit")


def test_a_secret_that_others_can_read(tmp_path: Path, running: Server) -> None:
    file = tmp_path / "alice.token"
    file.write_text("rgpu_x\n")
    file.chmod(0o644)
    found = findings("--server", running.tcp, code=0, RGPU_TOKEN_FILE=str(file))
    assert f"chmod 600 {file}" in those(found, "token", "warning")
    file.chmod(0o600)
    found = findings("--server", running.tcp, code=0, RGPU_TOKEN_FILE=str(file))
    assert not those(found, "token", "warning")
    missing = str(tmp_path / "missing")
    found = findings("--server", running.tcp, code=1, RGPU_TOKEN_FILE=missing)
    (said,) = those(found, "token", "error").splitlines()
    assert f"RGPU_TOKEN_FILE={missing} cannot be read" in said


def test_an_access_token_that_the_server_does_not_know(tmp_path: Path) -> None:
    tokens, config = tmp_path / "tokens.toml", tmp_path / "rgpu.toml"
    config.write_text('[identity]\nrequire = "always"\n')
    own = tmp_path / "own"
    made = rgpu("token", "new", "alice", "--tokens", str(tokens), "--file", str(own))
    assert made.returncode == 0, made.stderr
    with Server("--tokens", str(tokens), "--config", str(config)) as server:
        known = {"RGPU_TOKEN_FILE": str(own)}
        assert "quota" in {one["area"] for one in findings("--server", server.tcp, code=0, **known)}
        found = findings("--server", f"tcp:{server.tcp}", code=1)
    assert "RGPU_TOKEN_FILE" in those(found, "token", "error")


def test_another_driver_library_before_ours(tmp_path: Path, running: Server) -> None:
    from rgpu_client import library_path

    (tmp_path / "libcuda.so.1").write_bytes(b"")
    path = f"{tmp_path}:{library_path()}"
    found = findings("--server", running.tcp, code=0, LD_LIBRARY_PATH=path)
    assert f"put {library_path()} first" in those(found, "driver", "warning")


def test_a_library_that_the_address_needs(running: Server) -> None:
    missing = {"RGPU_LIBSSL": "/nowhere/libssl.so"}
    found = findings("--server", running.tcp, code=0, **missing)
    assert "/nowhere/libssl.so cannot be loaded" in those(found, "libraries", "note")
    found = findings("--server", f"tls:{running.tcp}", code=1, **missing)
    assert "unset RGPU_LIBSSL" in those(found, "libraries", "error")


def test_room_and_a_drain(running: Server) -> None:
    found = findings("--server", running.tcp, code=0, RGPU_MEMORY="3GiB")
    assert "no device has room for 3 GiB" in those(found, "quota", "warning")
    assert rgpu("drain", "--server", running.tcp).returncode == 0
    try:
        found = findings("--server", running.tcp, code=0)
    finally:
        assert rgpu("undrain", "--server", running.tcp).returncode == 0
    assert "the server is drained" in those(found, "quota", "warning")


def test_a_manager_that_is_not_there(running: Server) -> None:
    found = findings("--server", running.tcp, code=1, RGPU_MANAGER=NOBODY)
    assert NOBODY in those(found, "manager", "error")


@pytest.mark.parametrize(
    ("ahead", "level"), [(0, Level.OK), (60, Level.WARNING), (-60, Level.WARNING)]
)
def test_clocks_that_are_apart(ahead: float, level: Level) -> None:
    class Told:
        def now(self) -> Any:
            return argparse.Namespace(time_seconds=time.time() + ahead)

    (found,) = server_checks._clock(Told())  # type: ignore[arg-type]
    assert found.level is level


def test_a_node_that_is_well(tmp_path: Path) -> None:
    found = configured(tmp_path, f"{DEVICES}listen = ['127.0.0.1:0']\n", code=0)
    assert "device 0: " in those(found, "driver", "ok")
    assert "free" in those(found, "port", "ok") or "already" in those(found, "port", "ok")
    assert {one["area"] for one in found} >= {"clock", "token", "quota", "limits", "sandbox"}


def sandboxes(tmp_path: Path) -> list[Finding]:
    """Returns what this process finds about isolation on a node with an emulated device."""
    config = tmp_path / "rgpu.toml"
    config.write_text(DEVICES + ALLOWED)
    arguments = argparse.Namespace(config=config)
    return list(Check("sandbox", machine.sandbox, "").findings(arguments))


def test_the_compilers_of_a_node_are_started_in_their_sandboxes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They compile PTX, and CUDA C++ of array programs. Before: neither was started."""
    started = []

    class Process(subprocess.Popen[Any]):
        def __init__(self, command: list[str], **options: Any) -> None:
            started.extend(part for part in command if part in COMPILERS)
            super().__init__(command, **options)

    monkeypatch.setattr(subprocess, "Popen", Process)
    found = sandboxes(tmp_path)
    assert all(one.level in (Level.OK, Level.WARNING) for one in found), found
    assert sorted(started) == sorted(COMPILERS)


@pytest.mark.parametrize("which", [compiler, source_compiler])
def test_a_compiler_that_lacks_its_sandbox_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: Any
) -> None:
    monkeypatch.setattr(which, "first_report", lambda: "system-calls: EPERM from prctl")
    found = sandboxes(tmp_path)[-1]
    assert found.level is Level.ERROR
    assert "does not give compiler a list of system calls (seccomp): EPERM" in found.sentence


@pytest.mark.parametrize("which", [compiler, source_compiler])
def test_a_compiler_that_does_not_start_is_told(
    monkeypatch: pytest.MonkeyPatch, which: Any
) -> None:
    # A program that ends at once in the place of Python.
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(WorkerError, match="could not be started"):
        which.first_report()


def configured(folder: Path, text: str, code: int) -> list[dict[str, str]]:
    """Returns what is found on a node with this configuration file."""
    config = folder / "rgpu.toml"
    config.write_text(text + ALLOWED)
    return findings("--node", "--config", str(config), code=code)


def test_a_node_whose_port_somebody_has(tmp_path: Path, running: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        text = f"{DEVICES}listen = ['127.0.0.1:{port}']\n"
        found = configured(tmp_path, text, code=1)
    assert "Address already in use" in those(found, "port", "error")
    found = configured(tmp_path, f"{DEVICES}listen = ['{running.tcp}']\n", code=0)
    assert f"an rgpu server runs on {running.tcp} already" in those(found, "port", "ok")
    absent = tmp_path / "absent"
    found = configured(tmp_path, f"{DEVICES}listen = ['unix:{absent}/s']\n", code=1)
    assert f"mkdir -p {absent}" in those(found, "port", "error")


def test_a_node_whose_configuration_is_wrong(tmp_path: Path) -> None:
    found = configured(tmp_path, "lisen = ['127.0.0.1:0']\n", code=1)
    assert "lisen" in those(found, "port", "error")
    assert those(found, "versions", "ok")


def test_a_node_with_an_access_token_that_has_ended(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    for tenant in ("alice", "bob"):
        done = rgpu("token", "new", tenant, "--tokens", str(tokens), "--expires", "1d")
        assert done.returncode == 0, done.stderr
    text = tokens.read_text()
    first, day = text.index("expires = "), text[text.index("expires = ") + 10 :].split("\n")[0]
    tokens.write_text(
        f"{text[:first]}expires = 2020-01-01T00:00:00Z{text[first + 10 + len(day) :]}"
    )
    found = configured(
        tmp_path,
        f"{DEVICES}listen = ['127.0.0.1:0']\n[identity]\ntokens = '{tokens}'\n",
        code=0,
    )
    assert "2 access tokens" in those(found, "token", "ok")
    assert "every access token of tenant alice has ended" in those(found, "token", "warning")
    assert "bob" not in those(found, "token", "warning")


def test_a_node_with_a_certificate_that_has_ended(tmp_path: Path) -> None:
    certificates = pki.config("expired-server")
    found = configured(tmp_path, f"{DEVICES}listen = ['tls:127.0.0.1:0']\n{certificates}", code=0)
    assert "has ended, and clients refuse it" in those(found, "port", "warning")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--node", "--server", "x:1"), "--server is a client's"),
        (("--config", "x"), "say --node too"),
    ],
)
def test_options_that_contradict_each_other(words: tuple[str, ...], sentence: str) -> None:
    done = rgpu("doctor", *words)
    assert done.returncode == 2
    assert sentence in done.stderr


def test_a_warning_without_a_remedy_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="has no remedy"):
        Finding("port", Level.ERROR, "it does not work")


def test_the_advice_of_an_error_is_its_remedy() -> None:
    def ends(_: argparse.Namespace) -> Iterator[Finding]:
        yield Finding("port", Level.OK, "first")
        raise ServerError("nothing listens at a:1: start it there")

    _, last = Check("port", ends, "look").findings(argparse.Namespace())
    assert (last.sentence, last.remedy) == ("nothing listens at a:1", "start it there")
    plain = failed("port", ServerError("no: 1"), "look")
    assert (plain.sentence, plain.remedy) == ("no: 1", "look")
