"""The line of runs that wait for room, as its users, other tenants and the operator see it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from helpers import clients
from helpers.command import rgpu_command, run_rgpu
from helpers.runs import MIB, end, exact, gone, line, refused_before, run
from helpers.server import Server
from helpers.waiting import wait_until


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(device="emulated:1GiB") as running:
        yield running


@contextmanager
def in_line(server: Server) -> Iterator[subprocess.Popen[str]]:
    """Yields a run that waits in line for the whole device while another run has half of it."""
    with run(exact(server), "--memory", "512MiB") as first:
        assert line(first) == str(512 * MIB)
        with run(exact(server), "--memory", "1GiB", "--wait", "--tenant", "bob") as second:
            assert second.stderr is not None
            assert "waiting for room, place 1 of 1: " in second.stderr.readline()
            yield second
            end(first)
            assert line(second) == str(1024 * MIB)
            end(second)
    gone(server.tcp)


def ps(server: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [rgpu_command(), "ps", "--server", server],
        env={**clients.environment(None), **environment}, cwd="/", capture_output=True, text=True,
        timeout=60, check=True,
    )  # fmt: skip


def test_ps_shows_who_waits_for_what(server: Server) -> None:
    with in_line(server):
        shown = ps(server.tcp).stdout.splitlines()[-1].split()
        assert shown[:3] == ["1", "of", "1"]
        assert shown[3].startswith("python"), "it is called by its program"
        assert shown[4] == "bob"
        assert shown[5].startswith("run-")
        assert shown[6:10] == ["local", "0", "1", "GiB"]
        done = run_rgpu("ps", "--json", "--server", server.tcp)
        said = json.loads(done.stdout)
        assert said["others_waiting"] == 0
        (waiting,) = said["waiting"]
        assert (waiting["place"], waiting["waiting"], waiting["devices"]) == (1, 1, [0])
        assert waiting["memory_bytes"] == 1024 * MIB
        assert waiting["reason"].startswith("a lease of 1 GiB does not fit on device 0")
    # Who was killed leaves the line when the server sees the end of the connection.
    wait_until(lambda: "waits" not in ps(server.tcp).stdout)


def test_an_operator_grants_what_others_wait_for(server: Server) -> None:
    with in_line(server):
        grant = ("lease", "grant", "mine", "--memory", "256MiB", "--server", server.tcp)
        assert run_rgpu(*grant).returncode == 0
        held = ("run", "--hold", "--server", exact(server), "--memory", "64MiB", "--", "true")
        refused = run_rgpu(*held)
        assert refused.returncode != 0
        assert "others wait in line for room on device 0" in refused.stderr
        assert run_rgpu("lease", "revoke", "mine", "--server", server.tcp).returncode == 0


def test_a_drained_server_lets_nobody_wait(server: Server, tmp_path: Path) -> None:
    """A drain may last for days, so a place in line would not say when room becomes free."""
    sentence = (
        "rgpu: the server is being drained by its operator: it takes no new lease and no new "
        "session, and nobody can wait in line; use another server, or try again after "
        "`rgpu undrain`\n"
    )
    with run(exact(server), "--memory", "1GiB") as first:
        assert line(first) == str(1024 * MIB)
        with run(exact(server), "--memory", "1GiB", "--wait") as second:
            assert second.stderr is not None
            assert "waiting for room" in second.stderr.readline()
            assert run_rgpu("drain", "--server", server.tcp).returncode == 0
            try:
                assert end(second)[2] == sentence
                assert second.returncode == 125
                for options in ((), ("--wait",)):
                    assert refused_before(tmp_path, exact(server), *options) == sentence
            finally:
                run_rgpu("undrain", "--server", server.tcp)
        end(first)
    gone(server.tcp)


def test_a_tenant_sees_its_own_claims_and_how_many_others_wait(tmp_path: Path) -> None:
    tokens_file = tmp_path / "tokens.toml"
    of = {
        name: run_rgpu("token", "new", name, "--tokens", str(tokens_file)).stdout.split()[0]
        for name in ("alice", "bob", "root")
    }
    config = tmp_path / "rgpu.toml"
    config.write_text('[identity]\nrequire = "always"\noperators = ["root"]\n')
    options = ("--tokens", str(tokens_file), "--config", str(config))
    with Server(*options, device="emulated:1GiB") as guarded:
        waits = [exact(guarded), "--memory", "1GiB", "--wait"]
        with run(*waits[:-1], RGPU_TOKEN=of["alice"]) as first:
            assert line(first) == str(1024 * MIB)
            with run(*waits, RGPU_TOKEN=of["bob"]) as second:
                assert second.stderr is not None
                assert "waiting for room, place 1 of 1: " in second.stderr.readline()
                seen = {
                    name: ps(guarded.tcp, RGPU_TOKEN=access_token).stdout
                    for name, access_token in of.items()
                }
                assert "in line for room: 1 claim of other tenants" in seen["alice"]
                assert "run-" not in seen["alice"].splitlines()[-1]
                for name in ("bob", "root"):
                    words = seen[name].splitlines()[-1].split()
                    assert (words[:3], words[4]) == (["1", "of", "1"], "bob")
                    assert "other tenants" not in seen[name]
                end(first)
                assert line(second) == str(1024 * MIB)
                end(second)
