"""`rgpu run` with devices of several servers: a lease at each or none, each over its own path and
with its own access token.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import clients
from helpers.agent import GRPC
from helpers.command import rgpu_command
from helpers.runs import end, exact, gone, leases, line
from helpers.server import Server
from helpers.waiting import wait_until

COUNT = """
import ctypes, os
count = ctypes.c_int()
cuda("cuInit", 0)
cuda("cuDeviceGetCount", ctypes.byref(count))
print(count.value, flush=True)
"""
# Copies from the first device to the second, and says what has arrived.
COPY = """
import ctypes
from ctypes import byref, c_size_t, c_uint64
cuda("cuInit", 0)
contexts = [ctypes.c_uint64() for _ in range(2)]
places = []
for device, context in enumerate(contexts):
    cuda("cuDevicePrimaryCtxRetain", byref(context), device)
    cuda("cuCtxSetCurrent", context)
    places.append(cuda.alloc(16))
cuda.upload(places[0], b"over two servers")
cuda("cuMemcpyDtoD_v2", c_uint64(places[1]), c_uint64(places[0]), c_size_t(16))
print(cuda.download(places[1], 16).decode(), flush=True)
"""


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Server, Server]]:
    with Server(*GRPC, device="emulated:1GiB") as one, Server(*GRPC, device="emulated:1GiB") as two:
        yield one, two


def start(*options: str, source: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [rgpu_command(), "run", *options, "--", sys.executable, "-u", "-c",
         clients.PRELUDE + source],
        env={**clients.environment(None), **environment}, cwd="/", stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def finish(*options: str, source: str = COPY, **environment: str) -> tuple[int, str, str]:
    with start(*options, source=source, **environment) as process:
        output, errors = process.communicate(timeout=60)
    return process.returncode, output.strip(), errors


def test_a_run_has_a_lease_at_each_server(pair: tuple[Server, Server]) -> None:
    one, two = pair
    devices = f"0@{one.tcp},0@{two.tcp}"
    options = ("-v", "--device", devices, "--memory", "64MiB")
    with start(*options, source=COUNT + "input()") as process:
        assert line(process) == "2"
        (first,), (second,) = leases(one.tcp), leases(two.tcp)
        assert second["key"] == f"{first['key']}.1"
        code, _, errors = end(process)
    assert code == 0, errors
    for server in pair:
        assert f"rgpu path: {server.tcp}: " in errors
        gone(server.tcp)


@pytest.mark.parametrize(
    ("first", "second"), [("tcp", "grpc"), ("grpc", "unix"), ("shm", "auto"), ("auto", "grpc")]
)
def test_each_server_is_reached_over_its_own_path(
    pair: tuple[Server, Server], first: str, second: str
) -> None:
    addresses = []
    for server, way in zip(pair, (first, second), strict=True):
        known = {"auto": server.tcp, "tcp": exact(server), "grpc": server.grpc}
        addresses.append(known.get(way) or server.address(way))
    code, output, errors = finish("--device", ",".join(f"0@{one}" for one in addresses))
    assert (code, output) == (0, "over two servers"), errors


def test_devices_without_a_server_are_those_of_the_option(pair: tuple[Server, Server]) -> None:
    one, two = pair
    code, output, errors = finish("--server", exact(one), "--device", f"0,0@{two.tcp}")
    assert (code, output) == (0, "over two servers"), errors
    code, output, errors = finish(
        "--device", f"0@{two.tcp}", source=COUNT, RGPU_SERVER="unix:/nowhere"
    )
    assert (code, output) == (0, "1"), errors


def test_a_path_that_fails_is_replaced_by_another(pair: tuple[Server, Server]) -> None:
    """As `rgpu run` would have found them for a server of many addresses."""
    one, two = pair
    variables = {
        "RGPU_DEVICE": "0@good,0@moved", "RGPU_LEASE": "moved", "RGPU_MEMORY": "64MiB",
        "RGPU_ROUTES": f"good;;;{one.tcp}\nmoved;;;tcp:127.0.0.1:1;{two.unix}",
    }  # fmt: skip
    code, output, errors = clients.run(None, COPY, **variables)
    assert (code, output) == (0, "over two servers\n"), errors


def test_a_refusal_names_the_server_and_frees_the_lease_at_the_other(
    pair: tuple[Server, Server],
) -> None:
    one, two = pair
    for devices, wanted in (
        (f"0@{one.tcp},3@{two.tcp}", f"server {two.tcp}: there is no device 3"),
        (f"0@{one.tcp},0@127.0.0.1:1", "server 127.0.0.1:1: "),
    ):
        for wait in ((), ("--wait=30",)):
            code, output, errors = finish("--device", devices, "--memory", "64MiB", *wait)
            assert (code, output) == (125, "")
            assert errors.startswith(f"rgpu: {wanted}"), errors
            assert errors.count("\n") == 1
            gone(one.tcp)


def test_a_run_that_waits_at_one_server_holds_nothing_at_the_other(
    pair: tuple[Server, Server],
) -> None:
    one, two = pair
    gone(two.tcp)
    wanted = ("--device", f"0@{one.tcp},0@{two.tcp}", "--memory", "100MiB", "--wait=50")
    with start("--server", exact(two), "--memory", "1000MiB", source=COUNT + "input()") as busy:
        assert line(busy) == "1"
        with start(*wanted, source=COPY) as waiting:
            wait_until(lambda: _waits(two))
            gone(one.tcp)  # a little after it was refused at the other
            assert _waits(two)
            assert end(busy)[0] == 0
            output, errors = waiting.communicate(timeout=60)
    assert (waiting.returncode, output.strip()) == (0, "over two servers"), errors
    assert f"place 1 of 1: server {two.tcp}: " in errors


def _waits(server: Server) -> bool:
    done = subprocess.run(
        [rgpu_command(), "ps", "--json", "--server", server.tcp],
        cwd="/", check=True, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    return bool(json.loads(done.stdout)["waiting"])


def test_runs_that_want_the_same_two_servers_do_not_wait_for_each_other(
    pair: tuple[Server, Server],
) -> None:
    """In opposite orders and by different names; two of them have no room at once."""
    one, two = pair
    orders = [(f"0@{one.tcp}", f"0@{two.unix}"), (f"0@{two.tcp}", f"0@{one.unix}")]
    runs = [
        start(
            "--device", ",".join(orders[turn % 2]), "--memory", "600MiB", "--wait=90", source=COPY
        )
        for turn in range(6)
    ]
    try:
        for process in runs:
            output, errors = process.communicate(timeout=100)
            assert (process.returncode, output.strip()) == (0, "over two servers"), errors
    finally:
        for process in runs:
            process.kill()
            process.communicate()


def test_each_server_believes_its_own_access_token(tmp_path: Path) -> None:
    guarded, files = [], []
    config = tmp_path / "rgpu.toml"
    config.write_text('[identity]\nrequire = "always"\n')
    for name in ("one", "two"):
        tokens = tmp_path / f"{name}.toml"
        files.append(tmp_path / name)
        subprocess.run(
            [rgpu_command(), "token", "new", name, "--tokens", tokens, "--file", files[-1]],
            check=True, capture_output=True, timeout=60, cwd="/",
        )  # fmt: skip
        guarded.append(("--tokens", str(tokens), "--config", str(config)))
    with Server(*guarded[0], *GRPC) as one, Server(*guarded[1], *GRPC) as two:
        devices = ("--device", f"0@{one.grpc},0@{two.tcp}", "--memory", "64MiB")
        own = f"{one.grpc}={files[0]};{two.tcp}={files[1]}"
        code, output, errors = finish(*devices, RGPU_TOKEN_FILES=own)
        assert (code, output) == (0, "over two servers"), errors
        code, output, errors = finish(
            *devices, RGPU_TOKEN_FILES=f"{two.tcp}={files[1]}", RGPU_TOKEN_FILE=str(files[0])
        )
        assert (code, output) == (0, "over two servers"), errors
        code, output, errors = finish(*devices, RGPU_TOKEN_FILE=str(files[0]))
        assert (code, output) == (125, "")
        assert f"server {two.tcp}: " in errors
        assert "access token" in errors


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--device", "0@"], "'0@' is not a device of a server"),
        (["--device", "x@a:7700"], "'x@a:7700' is not a device: write its number"),
        (["--device", "0@a:7700,0@a"], "names a device twice"),
        (["--hold", "--server", "a", "--device", "0,1@b"], "without --hold"),
        (["--server", "a:1", "--device", "0@b:1,1@b:1"], "none is of a:1: leave it out"),
    ],
)
def test_wrong_names_are_usage_errors(words: list[str], sentence: str) -> None:
    code, output, errors = finish(*words)
    assert (code, output) == (2, "")
    assert sentence in errors


def test_a_wrong_list_of_token_files_is_a_usage_error() -> None:
    code, _, errors = finish("--device", "0@127.0.0.1:1,1@127.0.0.1:2", RGPU_TOKEN_FILES="a")
    assert code == 2
    assert "RGPU_TOKEN_FILES: 'a' is not ADDRESS=FILE" in errors


def test_a_notebook_names_its_server_as_the_server() -> None:
    """In a process of its own, which has imported no CUDA package."""
    source = "import rgpu_client; rgpu_client.connect(device='0@127.0.0.1:1')"
    run = subprocess.run(
        [sys.executable, "-P", "-c", source],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "UsageError: 0@127.0.0.1:1 names its server" in run.stderr
