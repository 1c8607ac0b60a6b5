"""The pytest plugin, in runs of pytest as a user starts them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.server import Server
from helpers.waiting import wait_until

import rgpu_client

MIB = 1 << 20
# The first CUDA call is made while conftest.py is imported.
CONFTEST = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
status = cuda.cuInit(0)
"""
DEVICE = """
import ctypes, os, subprocess, sys
from conftest import cuda, status

def name():
    text = ctypes.create_string_buffer(80)
    assert cuda.cuDeviceGetName(text, 80, 0) == 0
    return text.value.decode()

def test_device(rgpu_lease):
    assert status == 0
    assert name() == rgpu_lease.device == "rgpu emulated device"
    size = ctypes.c_size_t()
    assert cuda.cuDeviceTotalMem_v2(ctypes.byref(size), 0) == 0
    assert size.value == rgpu_lease.memory_bytes

def test_child():
    code = "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"
    assert subprocess.check_output([sys.executable, "-c", code]) == b"0\\n"
"""
# Opening a FIFO waits for the other end: the two tests pass only if they run at the same time.
SPREAD = """
import os
import pytest

@pytest.mark.parametrize("n", [0, 1])
def test_lease(n, rgpu_lease, pytestconfig):
    folder = pytestconfig.rootpath
    (folder / f"lease-{n}").write_text(f"{os.environ['RGPU_SERVER']} {rgpu_lease.key}")
    open(folder / "fifo", "rw"[n]).close()
"""


def start(folder: Path, *words: str, **environment: str) -> subprocess.Popen[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("RGPU_", "PYTEST_"))}
    plugins = ["-p", "no:cacheprovider", "-p", "no:asyncio", "-p", "no:timeout"]
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", *plugins, "-rs", "--rootdir", str(folder), *words],
        cwd=folder, env={**clean, **environment}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def run(folder: Path, *words: str, **environment: str) -> tuple[int, str]:
    """Runs pytest to its end; returns its exit code and its output."""
    process = start(folder, *words, **environment)
    output, _ = process.communicate(timeout=150)
    return process.returncode, output


def write(folder: Path, test: str, conftest: str = "") -> Path:
    (folder / "conftest.py").write_text(conftest)
    (folder / "test_it.py").write_text(test)
    return folder


def folder_of(output: str) -> Path:
    """Returns the folder of the server that the head of pytest's output names."""
    found = re.search(r"^rgpu: .* unix:(\S+)/server$", output, re.MULTILINE)
    assert found, output
    return Path(found[1])


def test_an_emulated_device_for_the_run(tmp_path: Path) -> None:
    write(tmp_path, DEVICE, CONFTEST)
    # Variables that lead to another server, or ask for a size, are not for this device.
    status, output = run(
        tmp_path, "--rgpu-emulated", "--rgpu-memory=64MiB", "-W", "error",
        RGPU_SERVER="127.0.0.1:1", RGPU_MEMORY="7GiB", RGPU_PATHS="tcp:127.0.0.1:1",
    )  # fmt: skip
    assert status == 0, output
    assert "2 passed" in output
    assert "rgpu: rgpu emulated device, 64 MiB, unix:" in output
    assert not folder_of(output).exists()


@pytest.mark.full
def test_processes_of_xdist_share_a_server_and_have_a_lease_each(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    status, output = run(write(tmp_path, SPREAD), "--rgpu-emulated", "-n", "2")
    assert status == 0, output
    first, second = ((tmp_path / f"lease-{n}").read_text().split() for n in (0, 1))
    assert first[0] == second[0]
    assert first[1] != second[1]
    assert not Path(first[0].removeprefix("unix:")).parent.exists()


def test_a_device_of_a_server(tmp_path: Path) -> None:
    write(tmp_path, DEVICE, CONFTEST)
    with Server(device="emulated:1GiB") as server:
        status, output = run(
            tmp_path, f"--rgpu-server=tcp:{server.tcp}", "--rgpu-memory=32MiB", "--rgpu-wait=30"
        )
    assert status == 0, output
    assert f"rgpu: rgpu emulated device, 32 MiB, tcp:{server.tcp}" in output


def test_without_an_option_nothing_is_imported(tmp_path: Path) -> None:
    test = "import sys\ndef test_none():\n    assert not {'grpc', 'rgpu_client.testing'} & {*sys.modules}\n"
    write(tmp_path, test + "def test_needs(rgpu_lease):\n    raise AssertionError\n")
    status, output = run(tmp_path)
    assert status == 0, output
    assert "1 passed, 1 skipped" in output
    assert "this test needs a GPU: give pytest --rgpu-emulated" in output


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("--rgpu-emulated --rgpu-server=a:1", "rgpu: --rgpu-emulated and --rgpu-server name two"),
        ("--rgpu-emulated --rgpu-memory=lots", "rgpu: --rgpu-memory: 'lots' is not a number"),
        ("--rgpu-emulated --rgpu-memory=10%", "rgpu: --rgpu-memory: give a size, as 2GiB"),
        ("--rgpu-server=tcp:127.0.0.1:1", "rgpu: nothing listens at 127.0.0.1:1"),
        ("--rgpu-server=tcp:127.0.0.1:1 -n2", "rgpu: nothing listens at 127.0.0.1:1"),
        ("--rgpu-server=a:1 --rgpu-wait=soon", "rgpu: --rgpu-wait takes seconds, not 'soon'"),
    ],
)
def test_errors_are_one_line(tmp_path: Path, options: str, sentence: str) -> None:
    status, output = run(write(tmp_path, DEVICE), *options.split())
    assert status == pytest.ExitCode.USAGE_ERROR
    assert output.startswith(f"ERROR: {sentence}")
    assert len(output.strip().splitlines()) == 1
    assert "the argument" not in output


def test_too_little_room_is_said_once_and_in_the_options_of_pytest(tmp_path: Path) -> None:
    write(tmp_path, DEVICE)
    with Server(device="emulated:1GiB") as server:
        options = (f"--rgpu-server=tcp:{server.tcp}", "--rgpu-memory=600MiB")
        spread = run(tmp_path, *options, "-n2")
        with rgpu_client.claim(server.tcp, memory="600MiB"):
            one = run(tmp_path, *options)
    assert spread == (
        pytest.ExitCode.USAGE_ERROR,
        "ERROR: rgpu: 2 test processes want 600MiB each, and the server has room for 1: ask for "
        "less (--rgpu-memory), run fewer processes, or let them wait (--rgpu-wait)\n\n",
    )
    assert one[0] == pytest.ExitCode.USAGE_ERROR
    assert "or give --rgpu-wait=SECONDS to wait in line" in one[1]


def test_the_server_of_a_killed_run_ends(tmp_path: Path) -> None:
    test = "import os\ndef test_it():\n    print(os.environ['RGPU_SERVER'], flush=True); os.kill(os.getpid(), 19)\n"
    process = start(write(tmp_path, test), "-s", "--rgpu-emulated")
    assert process.stdout is not None
    head = ""
    while not head.endswith("/server\n") or "test_it.py unix:" not in head:
        head += process.stdout.readline() or pytest.fail(head)
    socket = folder_of(head) / "server"
    server = _listener(socket)
    assert server is not None
    process.send_signal(signal.SIGKILL)
    process.wait(60)
    process.stdout.close()
    wait_until(lambda: not Path(f"/proc/{server}").exists())


def _listener(socket: Path) -> int | None:
    """Returns the process that was started to listen at this socket."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"unix:{socket}".encode() in words:
            return int(folder.name)
    return None
