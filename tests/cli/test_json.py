"""What commands print with --json is what docs/reference/json-schema.json says."""

from __future__ import annotations

import argparse
import contextlib
import json
import runpy
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from helpers.command import rgpu_command
from helpers.command import run_rgpu_plain as rgpu
from helpers.manager import ManagerProcess, node
from helpers.server import Server
from helpers.waiting import wait_until

from rgpu_cluster.kubernetes import explain_cli
from rgpu_cluster.kubernetes.explaining import Part
from rgpu_common.command import Command

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"
SCHEMA = json.loads((REFERENCE / "json-schema.json").read_text())
# Opens a session, prints a line, and holds the session until its input ends.
HOLD = (
    "import ctypes, sys; d = ctypes.CDLL('libcuda.so.1'); d.cuInit(0); c = ctypes.c_void_p(); "
    "d.cuDevicePrimaryCtxRetain(ctypes.byref(c), 0); print('open', flush=True); sys.stdin.read()"
)


def strict(form: Any) -> Any:
    """Returns the schema with every field that it does not name forbidden."""
    if isinstance(form, list):
        return [strict(one) for one in form]
    if not isinstance(form, dict):
        return form
    result = {name: strict(one) for name, one in form.items()}
    if "properties" in form and form.get("type") == "object":
        result["additionalProperties"] = False
    return result


def check(command: str, text: str) -> Any:
    """Checks what a command printed; returns it."""
    whole = {**strict(SCHEMA), **SCHEMA["commands"][command]}
    said = json.loads(text)
    jsonschema.Draft202012Validator(whole).validate(said)
    return said


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server with a program in a session."""
    with Server() as found, holding(found):
        yield found


@contextlib.contextmanager
def holding(server: Server) -> Iterator[None]:
    command = [
        "run",
        "--server",
        server.tcp,
        "--lease",
        "job",
        "--memory",
        "64MiB",
        "--share",
        "20%",
    ]
    program = subprocess.Popen(
        [rgpu_command(), *command, "--", sys.executable, "-c", HOLD],
        cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with program:
        assert program.stdout is not None
        assert program.stdin is not None
        assert program.stdout.readline() == "open\n"
        yield
        program.stdin.close()


def test_the_page_and_the_schema_are_fresh() -> None:
    written = runpy.run_path(str(ROOT / "scripts" / "gen_json_page.py"))
    whole = written["schema"]()
    assert whole == SCHEMA, "run python scripts/gen_json_page.py"
    assert written["page"](whole) == (REFERENCE / "json.md").read_text()


def with_json(parser: argparse.ArgumentParser, words: str) -> Iterator[str]:
    """Yields the words of each command of a parser that has --json."""
    for action in parser._actions:
        if "--json" in action.option_strings:
            yield words
        elif isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield from with_json(inner, f"{words} {name}")


def test_no_command_is_missing() -> None:
    described = {
        " ".join(word for word in command.split() if word.islower() and word[0] != "-")
        for command in SCHEMA["commands"]
    }
    found = set()
    for point in entry_points(group="rgpu.commands"):
        command = point.load()
        assert isinstance(command, Command)
        parser = argparse.ArgumentParser()
        command.configure(parser)
        found |= set(with_json(parser, f"rgpu {command.name}"))
    assert found == {words.removesuffix(" pod/NAME") for words in described}


@pytest.mark.parametrize(
    "words",
    [
        "devices",
        "ps",
        "top",
        "smi",
        "quota report",
        "lease list",
        "logs",
        "tenants",
        "probe",
        "doctor",
    ],
)
def test_what_is_asked_of_a_server(server: Server, words: str) -> None:
    said: dict[str, Any] = {}

    def tells() -> bool:
        """A server that has just started has nothing to report for a second."""
        done = rgpu(*words.split(), "--json", "--server", server.tcp)
        assert done.returncode == 0, done.stderr
        said.update(check(f"rgpu {words} --json", done.stdout))
        return any(value for value in said.values() if isinstance(value, list))

    wait_until(tells)


def test_a_log_that_is_followed() -> None:
    with Server() as server:
        where = ("--server", server.tcp)
        assert rgpu("lease", "grant", "job", *where).returncode == 0
        assert rgpu("lease", "revoke", "job", *where).returncode == 0
        lines = rgpu("logs", "job", "--follow", "--json", *where).stdout.splitlines()
    assert len(lines) >= 2
    for line in lines:
        check("rgpu logs --follow --json", line)


def test_a_trace_is_the_last_line(server: Server) -> None:
    done = rgpu("trace", "--json", "--server", server.tcp, "--", sys.executable, "-c", HOLD)
    assert done.returncode == 0, done.stderr
    printed, trace = done.stdout.splitlines()
    assert printed == "open"
    said = check("rgpu trace --json", trace)
    assert "cuInit" in {call["name"] for call in said["calls"]}


def test_access_tokens(tmp_path: Path) -> None:
    file = ("--tokens", str(tmp_path / "tokens.toml"))
    assert rgpu("token", "new", "alice", *file).returncode == 0
    assert rgpu("token", "new", "bob", "--expires", "1d", *file).returncode == 0
    said = check("rgpu token list --json", rgpu("token", "list", "--json", *file).stdout)
    assert [row["tenant"] for row in said["tokens"]] == ["alice", "bob"]


def test_what_is_asked_of_a_manager(tmp_path: Path) -> None:
    with ManagerProcess() as manager, node(manager.address, "gpu1", tmp_path / "state"):
        manager.has("gpu1")
        where = ("--json", "--manager", manager.address)
        sizes = ("--for", "10min", "--share", "20%", "--memory", "64MiB")
        reserved = check("rgpu reserve --json", rgpu("reserve", *sizes, *where).stdout)
        pool = check("rgpu pool --json", rgpu("pool", "--paths", *where).stdout)
        check("rgpu pool --events --json", rgpu("pool", "--events", *where).stdout)
        explained = rgpu("explain", reserved["id"], *where).stdout
        decision = check("rgpu explain REQUEST --json", explained)
    assert [one["request_id"] for one in pool["reservations"]] == [reserved["id"]]
    assert decision["request_id"] == reserved["id"]


def test_what_is_explained_of_kubernetes() -> None:
    part = Part("pod", "default", "job", ("it waits",), "claim-1")
    check("rgpu explain pod/NAME --json", explain_cli._as_json([part], {}))
