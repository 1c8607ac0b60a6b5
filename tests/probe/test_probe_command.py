"""`rgpu probe` and `netprobe` at the command line."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.command import run_rgpu_in as rgpu
from helpers.server import Server

from netprobe.survey import find
from probe.conftest import Listen, netprobe


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


def test_rgpu_probe_shows_chooses_and_draws(
    server: Server, environment: dict[str, str], tmp_path: Path
) -> None:
    picture = tmp_path / "paths.svg"
    done = rgpu(environment, "probe", server.tcp, "--seconds", "0.03", "--svg", str(picture))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split()[:5] == ["path", "handshake", "min", "median", "p99"]
    assert any(line.startswith(f"tcp:{server.tcp} ") for line in lines)
    # A sentence may follow that says why a path that the table favours was not chosen.
    chosen = next(line for line in lines if line.startswith("Chosen: "))
    assert "one machine" in chosen
    text = picture.read_text()
    assert text.startswith("<svg")
    assert f"tcp:{server.tcp}" in text
    assert "is chosen" in text


def test_rgpu_probe_as_json(server: Server, environment: dict[str, str]) -> None:
    done = rgpu(environment, "probe", server.tcp, "--seconds", "0.03", "--json")
    plain = json.loads(done.stdout)
    assert plain["same_host"] is True
    assert {path["uri"] for path in plain["paths"]} >= {server.unix, f"tcp:{server.tcp}"}
    for path in plain["paths"]:
        assert path["round_trip"]["median"] > 0
        assert path["up"]["bytes_per_second"] > 0
        assert path["step_seconds"] > 0
    assert plain["choice"]["reason"]
    assert any(device["name"] == "lo" for device in plain["devices"])


def test_netprobe_alone(listen: Listen, environment: dict[str, str]) -> None:
    with listen() as responder:
        done = subprocess.run(
            [netprobe(), "run", responder.tcp, responder.unix, "--seconds", "0.03"],
            env=environment, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert responder.unix in done.stdout
    assert "Chosen: " in done.stdout


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        (("run", "127.0.0.1:1"), 1, "nothing listens at 127.0.0.1:1"),
        (("run", "a:b:c"), 2, "is not an address"),
        (("run",), 2, "required"),
        (("run", "tcp:a:1", "--seconds", "0"), 2, "--seconds is 0"),
        (("run", "tcp:a:1", "--bytes", "1KiB"), 2, "give at least 64KiB"),
        (("listen", "--listen", "x:y"), 2, "'x:y' is not an address"),
        (("listen", "--listen", "unix:/proc/nothing"), 1, "cannot listen on unix:/proc/nothing"),
        (("listen", "--places", "0"), 2, "'0' is not a number"),
        (("listen", "--listen", "grpc:127.0.0.1:0"), 2, "a server speaks HTTP/2"),
        (("listen", "--listen", "unix:/tmp/\x1b[2J"), 2, "cannot be printed"),
        (("run", "127.0.0.1:65536"), 2, "ports go from 0 to 65535"),
        (("run", "127.0.0.1:0"), 1, "is not a server address"),
        (("run", "http://127.0.0.1:80"), 2, "is not an address"),
        (("run", "::1"), 2, "[IPV6]:PORT"),
        (("run", "[::1]:1"), 1, "nothing listens at [::1]:1"),
        (("run", "127.0.0.1:1"), 1, "without a server use `netprobe listen` there"),
        (("run", "no.such.host.invalid:7700"), 1, "name service"),
        (("run", "tcp:a:1", "--seconds", "nan"), 2, "--seconds is nan"),
        (("run", "tcp:a:1", "--bytes", "25%"), 2, "'25%' is not a number of bytes"),
        (("run", "tcp:a:1", "--watch", "inf"), 2, "--watch must be"),
        (("run", "tcp:127.0.0.1:1", "--watch", "0"), 2, "--watch must be"),
        ((), 2, "required"),
    ],
)
def test_mistakes(arguments: tuple[str, ...], status: int, sentence: str) -> None:
    done = subprocess.run(
        [netprobe(), *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == status, done.stderr
    assert sentence in done.stderr
    assert done.stderr.startswith("netprobe: ")
    assert done.stderr.count("\n") == 1


def test_a_tunnel_that_leads_nowhere_is_called_by_its_name(environment: dict[str, str]) -> None:
    """The error does not name the socket of the agent, which the user does not know."""
    done = rgpu(environment, "probe", "grpc:127.0.0.1:1")
    assert done.returncode == 1
    assert "at grpc:127.0.0.1:1 (Connection refused)" in done.stderr
    assert "/agent" not in done.stderr


def test_who_watches_reads_line_by_line(listen: Listen, environment: dict[str, str]) -> None:
    with listen() as responder:
        process = subprocess.Popen(
            [netprobe(), "run", responder.tcp, "--json", "--watch", "0.2"],
            env=environment, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        with process:
            assert process.stdout is not None
            rounds = [json.loads(process.stdout.readline()) for _ in range(3)]
            process.send_signal(signal.SIGINT)
        assert process.returncode == 130
    moved = [sum(path["up"]["bytes"] for path in each["paths"]) for each in rounds]
    assert max(moved[1:]) <= 0.2 * 128e6, moved  # what a server gives in the long run
    assert all(each["choice"]["uri"] == responder.tcp for each in rounds)


def test_netprobe_says_its_version() -> None:
    done = subprocess.run([netprobe(), "--version"], capture_output=True, text=True, check=True)
    assert re.fullmatch(r"netprobe \d+\.\d+\.\d+\S*\n", done.stdout)


def test_a_tunnel_is_measured_through_its_agent(environment: dict[str, str]) -> None:
    with Server("--listen", "grpc:127.0.0.1:0", "--insecure") as server:
        offered = find(server.tcp).offer.endpoints
        (uri,) = [one for one in offered if one.startswith("grpc:")]
        done = rgpu(environment, "probe", uri, "--seconds", "0.05", "--json")
        plain = json.loads(done.stdout)
    (path,) = plain["paths"]
    assert path["uri"] == uri, done.stderr
    assert path["round_trip"]["median"] > 0
    done = subprocess.run(
        [netprobe(), "run", uri], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "needs an agent" in done.stderr
