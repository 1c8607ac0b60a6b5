"""The path of a program: chosen in process, and by `rgpu run` beside a real server."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from helpers.command import rgpu_command
from helpers.command import run_rgpu_in as rgpu
from helpers.figures import figures
from helpers.granting import granting
from helpers.server import Server
from helpers.waiting import wait_until

from netprobe import survey as surveying
from netprobe.native import Offer
from netprobe.survey import Found, find
from probe.conftest import Listen
from probe.slow import SlowProxy
from rgpu_client.session.paths import find_path
from rgpu_common.errors import ServerError, UsageError
from rgpu_common.v1 import network_pb2, network_pb2_grpc

SHOW = "import os, json; print(json.dumps({k: v for k, v in os.environ.items() if 'RGPU' in k}))"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


def run(environment: dict[str, str], *options: str, **extra: str) -> dict[str, str]:
    done = rgpu(environment, "run", *options, "--", sys.executable, "-c", SHOW, **extra)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_on_one_machine_the_socket_is_taken(server: Server, environment: dict[str, str]) -> None:
    given = run(environment, "--server", server.tcp)
    assert given["RGPU_SERVER"].removeprefix("shm:").removeprefix("unix:") == (
        server.unix.removeprefix("unix:")
    )
    assert f"tcp:{server.tcp}" in given["RGPU_PATHS"].split(";")
    assert "RGPU_AGENT" not in given  # nothing is better than that


def test_a_probe_before_does_not_lead_away_from_the_socket(
    server: Server, environment: dict[str, str]
) -> None:
    assert rgpu(environment, "probe", server.tcp).returncode == 0
    kept = surveying.memory(environment)
    entry = kept.read(server.tcp)
    assert entry is not None
    paths = [
        replace(path, messages_per_second=1.0) if path.kind in ("unix", "shm") else path
        for path in entry.paths
    ]
    assert paths != list(entry.paths)
    kept.write(server.tcp, entry._replace(paths=tuple(paths)))
    path = find_path(server.tcp, "auto", environment)
    assert path.uri.startswith(("shm:", "unix:")), path
    assert re.search(r"measured \d+ s ago", path.reason)
    assert not path.worth_watching


def test_a_scheme_that_is_written_is_taken(server: Server, environment: dict[str, str]) -> None:
    given = run(environment, "--server", f"tcp:{server.tcp}")
    assert given["RGPU_SERVER"] == f"tcp:{server.tcp}"
    assert "RGPU_PATHS" not in given


def test_a_transport_that_is_named_is_taken(server: Server, environment: dict[str, str]) -> None:
    assert run(environment, "--server", server.tcp, "--transport", "tcp")["RGPU_SERVER"] == (
        f"tcp:{server.tcp}"
    )
    assert run(environment, "--server", server.tcp, RGPU_TRANSPORT="unix")["RGPU_SERVER"] == (
        server.unix
    )


def test_what_cannot_be_is_a_sentence(server: Server, environment: dict[str, str]) -> None:
    done = rgpu(environment, "run", "--server", server.unix, "--transport", "tcp", "--", "true")
    assert done.returncode == 2
    assert "leave one of them out" in done.stderr
    done = rgpu(environment, "run", "--server", server.tcp, "--", "true", RGPU_TRANSPORT="pigeon")
    assert done.returncode == 2
    assert "there is no transport 'pigeon'" in done.stderr


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RGPU_WORKLOAD", "everything"), ("RGPU_MOVE", "no"), ("RGPU_AGENT_SECONDS", "often"),
        ("RGPU_AGENT_SECONDS", "nan"), ("RGPU_AGENT_SECONDS", "0"), ("RGPU_LOG", "loud"),
        ("RGPU_PATHS", "pigeon"), ("RGPU_PATHS", "tcp:a:1,tcp:b:2"), ("RGPU_PATHS", "grpc:a:1"),
        ("RGPU_RESUME", "maybe"), ("RGPU_COMPRESSION", "zstd"), ("RGPU_HIDE_NVJITLINK", "yes"),
        ("RGPU_AGENT_TEXTFILE", "/nowhere/rgpu.prom"), ("RGPU_LEASE", "x" * 257),
        ("RGPU_TENANT", "a\tb"), ("RGPU_MEMORY", "0"), ("RGPU_SHARE", "0"), ("RGPU_LIMIT", "0"),
        ("RGPU_PRIORITY", "101"), ("RGPU_WEIGHT", "0"), ("RGPU_DEVICE", "99999999999"),
        ("RGPU_PATHS", "tpc:a:1"), ("RGPU_PATHS", "a:1;unix:b"), ("RGPU_PATHS", "tcp:a"),
    ],
)  # fmt: skip
def test_a_variable_that_makes_no_sense_is_a_sentence(
    environment: dict[str, str], name: str, value: str
) -> None:
    done = rgpu(environment, "run", "--server", "tcp:127.0.0.1:1", "--", "true", **{name: value})
    assert done.returncode == 2
    assert name in done.stderr
    assert value.rpartition(";")[2].replace("\t", "\\t") in done.stderr
    assert done.stderr.count("\n") == 1


def test_connect_refuses_what_makes_no_sense(environment: dict[str, str]) -> None:
    source = "import rgpu_client; rgpu_client.connect('tcp:127.0.0.1:1')"
    for name in ("RGPU_LOG", "RGPU_PATHS"):
        done = subprocess.run(
            [sys.executable, "-c", source], env={**environment, name: "nonsense"}, cwd="/",
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert f"UsageError: {name}" in done.stderr


def test_the_level_of_the_log_is_the_same_in_capitals(environment: dict[str, str]) -> None:
    done = rgpu(environment, "run", "--server", "tcp:127.0.0.1:1", "--", "true", RGPU_LOG="INFO")
    assert done.stderr.startswith("rgpu path: tcp:127.0.0.1:1: the path was named\n")


def test_what_makes_sense_is_passed_on(environment: dict[str, str]) -> None:
    paths = "a:1;tcp:[::1]:2;;tls:b:3;ucx:c:4;unix:/d;shm:/e;"
    said = {"RGPU_PATHS": paths, "RGPU_LOG": "debug"}
    with granting() as server:
        given = run(environment, "--server", server, **said)
    assert given.items() >= said.items()


def test_a_server_refuses_a_level_that_there_is_not(environment: dict[str, str]) -> None:
    done = rgpu(environment, "serve", RGPU_LOG="warning")
    assert done.returncode == 2
    assert done.stderr == "rgpu: RGPU_LOG is off, error, info or debug, not 'warning'\n"


def test_a_choice_is_said_and_written_down(
    server: Server, environment: dict[str, str], tmp_path: Path
) -> None:
    done = rgpu(environment, "run", "-v", "--server", server.tcp, "--", "true")
    assert done.stderr.startswith("rgpu path: ")
    assert "client and server are on one machine" in done.stderr
    line = (tmp_path / "state" / "rgpu" / "paths.jsonl").read_text().splitlines()[-1]
    row = json.loads(line)
    assert row["event"] == "chosen"
    assert row["server"] == server.tcp
    assert row["reason"] == "client and server are on one machine"


def test_a_server_that_is_not_there_ends_the_run_with_one_line(environment: dict[str, str]) -> None:
    done = rgpu(environment, "run", "--server", "127.0.0.1:1", "--", "echo", "started")
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.startswith("rgpu: nothing listens at 127.0.0.1:1")
    assert done.stderr.count("\n") == 1


def test_a_program_really_runs_over_the_path(server: Server, environment: dict[str, str]) -> None:
    source = "from helpers.driver import Driver; d = Driver(); d.open(); print(d.memory()[1] > 0)"
    tests = str(Path(__file__).resolve().parent.parent)
    done = rgpu(environment, "run", "--server", server.tcp, "--", sys.executable, "-c", source,
                PYTHONPATH=tests)  # fmt: skip
    assert done.stdout == "True\n", done.stderr


def test_connect_takes_the_path_and_keeps_it(server: Server, environment: dict[str, str]) -> None:
    source = f"""
import os, rgpu_client
rgpu_client.connect({server.tcp!r})
first = os.environ["RGPU_SERVER"]
rgpu_client.connect({server.tcp!r})
rgpu_client.connect()
assert os.environ["RGPU_SERVER"] == first
print(first)
rgpu_client.connect({server.tcp!r}, transport="tcp")
print(os.environ["RGPU_SERVER"])
"""
    done = subprocess.run(
        [sys.executable, "-c", source], env=environment, cwd="/", capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    local, named = done.stdout.split()
    assert local.endswith(server.unix.removeprefix("unix:")), done.stderr
    assert named == f"tcp:{server.tcp}"


# in process, as if the server were elsewhere


@pytest.mark.measures
def test_the_faster_of_two_network_paths_is_taken(
    listen: Listen, environment: dict[str, str], elsewhere: None
) -> None:
    with listen() as responder:
        proxy = SlowProxy(responder.port, 0.005)
        try:
            began = time.perf_counter()
            path = find_path(proxy.uri.removeprefix("tcp:"), "auto", environment)
            took = time.perf_counter() - began
            again = find_path(proxy.uri.removeprefix("tcp:"), "auto", environment)
        finally:
            proxy.close()
    with figures():
        assert path.uri == responder.tcp, path
        assert path.others == (proxy.uri,)
        assert "times as long" in path.reason
        assert path.worth_watching
        assert took < 1.0
        assert again.uri == path.uri
        assert re.search(r"measured \d+ s ago", again.reason)


def test_what_was_measured_of_another_server_is_not_used(
    listen: Listen, environment: dict[str, str], elsewhere: None
) -> None:
    with listen() as responder:
        named = responder.tcp.removeprefix("tcp:")
        proxy = SlowProxy(responder.port, 0.0)
        try:
            find_path(proxy.uri.removeprefix("tcp:"), "auto", environment)
            first = find_path(named, "auto", environment)
        finally:
            proxy.close()
    assert first.uri == responder.tcp
    path = find_path(named, "auto", environment)
    assert "could not be asked" in path.reason
    assert path.uri == named


def test_who_shows_a_certificate_takes_an_encrypted_path(
    environment: dict[str, str], elsewhere: None
) -> None:
    found = Found("tcp:n:1", Offer(endpoints=("tcp:n:1", "tls:n:2")), False, 0.0)
    assert surveying.paths_of(found, environment).uris == ("tcp:n:1", "tls:n:2")
    for name in ("RGPU_TLS_CERT", "RGPU_TOKEN", "RGPU_TOKEN_FILE"):
        assert surveying.paths_of(found, {**environment, name: "x"}).uris == ("tls:n:2",)


def test_errors_of_named_transports(environment: dict[str, str], elsewhere: None) -> None:
    with pytest.raises(UsageError, match="leave one of them out"):
        find_path("tcp:a:1", "unix", environment)
    with pytest.raises(ServerError, match="could not be asked for its socket"):
        find_path("127.0.0.1:1", "unix", environment)


def test_an_agent_comes_and_goes_with_the_program(
    listen: Listen, environment: dict[str, str], elsewhere: None, tmp_path: Path
) -> None:
    with listen() as responder:
        proxy = SlowProxy(responder.port, 0.005)
        source = f"""
import os, sys
from netprobe import survey
survey.is_this_host = lambda nonce, host: False
from rgpu_client.session.start import on_path
given = on_path(os.environ, {proxy.uri.removeprefix("tcp:")!r}, None, False)
os.execve({sys.executable!r}, [{sys.executable!r}, "-c", "import os; print(os.environ['RGPU_AGENT'], flush=True); open(0).read()"], given)
"""
        program = subprocess.Popen(
            [sys.executable, "-c", source], env={**environment, "XDG_RUNTIME_DIR": str(tmp_path)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/",
        )  # fmt: skip
        try:
            assert program.stdout is not None
            assert program.stdin is not None
            where = Path(program.stdout.readline().strip())
            assert where.is_socket()
            assert where.parent.stat().st_mode & 0o777 == 0o700
            assert not Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text()
            # The agent holds no pipe of the program's open.
            program.stdin.close()
            assert program.stdout.read() == ""
            program.stdout.close()
            assert program.wait(60) == 0
            wait_until(lambda: not where.parent.exists())
        finally:
            program.kill()
            program.wait()
            proxy.close()


# the server's side


def test_a_server_says_how_it_can_be_reached(server: Server) -> None:
    by_tcp, by_unix = find(server.tcp), find(server.unix)
    assert by_tcp.offer.server == by_unix.offer.server
    assert by_tcp.same_host
    assert f"tcp:{server.tcp}" in by_tcp.offer.endpoints
    assert server.unix in by_tcp.offer.endpoints


def test_the_api_lists_endpoints_and_devices(server: Server) -> None:
    with grpc.insecure_channel(f"dns:///{server.tcp}", [("grpc.enable_http_proxy", 0)]) as channel:
        stub = network_pb2_grpc.NetworkServiceStub(channel)
        answer = stub.ListEndpoints(network_pb2.ListEndpointsRequest(), timeout=60)
    found = {one.uri: one.local for one in answer.endpoints}
    assert found[server.unix]
    assert not found[f"tcp:{server.tcp}"]
    assert answer.identity.server == find(server.tcp).offer.server
    loopback = next(device for device in answer.devices if device.name == "lo")
    assert loopback.kind == network_pb2.NET_KIND_LOOPBACK


def test_the_responder_is_a_process_of_its_own(server: Server) -> None:
    find(server.tcp)
    assert len(server.children("netprobe-responder")) == 1


def test_ps_and_metrics_show_the_transport(server: Server, environment: dict[str, str]) -> None:
    words = ("--server", server.tcp)
    titles = rgpu(environment, "run", *words, "--", rgpu_command(), "ps", *words).stdout
    assert " over " in titles.split("\n\n")[1].splitlines()[0]
