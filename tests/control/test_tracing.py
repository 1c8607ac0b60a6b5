"""`rgpu trace`: its counters however a program ends, and its output."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import clients
from helpers.command import rgpu_command
from helpers.ends import plant
from helpers.server import Server

from rgpu_client.trace import Compiled, Trace, TracedCall, format_trace
from rgpu_client.trace_page import read_traces
from rgpu_common.errors import ProtocolError

KERNEL = """
from ctypes import byref, c_uint64, c_void_p
IMAGE = b'''
.version 7.0
.target sm_70
.address_size 64
.visible .entry traced_kernel() { ret; }
'''
place = c_void_p()
cuda.open()
module = cuda.load(IMAGE)
cuda.launch(cuda.function(module, "traced_kernel"), 1, 1)
cuda.synchronize()
cuda.result("cuTexRefCreate", byref(place))
cuda.result("cuGetProcAddress_v2", b"cuGreenCtxCreate", byref(place), 13000, c_uint64(0), None)
import os
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    # Sessions of programs that are killed are not held, so their leases end with them.
    config = tmp_path_factory.mktemp("server") / "rgpu.toml"
    config.write_text("[sessions]\nresume_grace_seconds = 0\n")
    with Server("--config", str(config), device="emulated:256MiB") as running:
        yield running.tcp


def traced(server: str, source: str, *options: str) -> tuple[int, list[str], str]:
    """Runs `rgpu trace`; returns its exit code, its output lines and its error output."""
    ended = subprocess.run(
        [rgpu_command(), "trace", *options, "--", sys.executable, "-c", clients.PRELUDE + source],
        env=clients.environment(server, COLUMNS="100"), cwd="/", stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    return ended.returncode, ended.stdout.splitlines(), ended.stderr


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("pass", 0),
        ("os._exit(3)", 3),
        ("os.abort()", 128 + signal.SIGABRT),
        ("os.kill(os.getpid(), 11)", 128 + signal.SIGSEGV),
        ("os.kill(os.getpid(), 9)", 128 + signal.SIGKILL),
    ],
)
def test_what_was_counted_is_there_however_the_program_ends(
    server: str, end: str, code: int
) -> None:
    plant(signal.SIGABRT, signal.SIGSEGV)
    status, lines, said = traced(server, KERNEL + end)
    assert status == code, said
    rows = {line.split()[0]: line.split()[1:] for line in lines if line}
    assert rows["cuInit"][0] == rows["cuLaunchKernel"][0] == "1"
    assert any(line.endswith("per write") for line in lines)  # totals, too
    # What is not supported, and what was asked for by name.
    assert rows["cuTexRefCreate"] == ["1", "1"]
    assert "  cuGreenCtxCreate" in lines
    # What the device's driver compiled, by kernel.
    assert rows["traced_kernel"][0] == "1"
    assert rows["(modules,"][3] == "1"


def test_all_processes_of_a_program_are_added_up(server: str) -> None:
    source = "cuda.open()\nimport os, sys\nif os.fork() == 0: cuda.open(); sys.exit()\nos.wait()"
    _, lines, said = traced(server, source)
    rows = {line.split()[0]: line.split()[1:] for line in lines if line}
    assert rows["cuInit"][0] == "2", said
    assert any("calls of 2 processes" in line for line in lines)


def test_a_program_without_cuda_calls_has_no_trace(server: str) -> None:
    status, lines, said = traced(server, "")
    assert (status, lines) == (1, [])
    assert said == "rgpu: the program made no CUDA call (exit code 0)\n"


def test_a_program_that_looks_up_all_functions_is_summed_up() -> None:
    calls = (TracedCall("cuInit", 1, 0, 1000),)
    many = Trace(calls, missing={f"cuFunction{i}": 1 for i in range(300)})
    assert "300 functions; the program seems to look up every function" in format_trace(many)
    assert "cuFunction299" in format_trace(many, all_names=True)
    few = format_trace(Trace(calls, missing={"cuA": 1, "cuB": 3}))
    assert "  cuB (3 times), cuA" in few.splitlines()
    compiled = Trace(calls, compiled=(Compiled("k" * 200, 1, 5000),))
    assert all(len(line) < 100 for line in format_trace(compiled).splitlines())


@pytest.mark.parametrize(
    "data", [b"", b"x" * 256, b"RGPUTRC1" + bytes(248 - 8), b"RGPUTRC1" + b"\x7f" * 248]
)
def test_a_page_that_makes_no_sense_is_refused(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "1.trace").write_bytes(data)
    with pytest.raises(ProtocolError, match=r"1\.trace"):
        read_traces(tmp_path)


@pytest.mark.parametrize("kind", ["fifo", "folder", "link", "huge"])
def test_what_is_no_page_is_not_read(kind: str, tmp_path: Path) -> None:
    """A traced program may leave anything there: a FIFO kept `rgpu trace` waiting for ever."""
    path = tmp_path / "1.trace"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "link":
        path.symlink_to("/dev/zero")
    else:
        with path.open("wb") as file:
            file.truncate(1 << 40)
    with pytest.raises(ProtocolError, match=r"1\.trace"):
        read_traces(tmp_path)


def test_the_trace_of_a_page_is_no_file_that_others_read(server: str, tmp_path: Path) -> None:
    code, _, errors = clients.run(server, "cuda.open()", RGPU_TRACE=str(tmp_path))
    assert code == 0, errors
    (page,) = tmp_path.iterdir()
    assert os.stat(page).st_mode & 0o077 == 0
    assert [call.calls for call in read_traces(tmp_path).calls if call.name == "cuInit"] == [1]
