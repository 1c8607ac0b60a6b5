"""`rgpu_client.connect()`: what it returns, and what it says when it is wrong or too late."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from helpers.server import Server

MIB = 1 << 20
TRY = """
def attempt(*arguments, **options):
    from rgpu_common.errors import RgpuError
    try:
        return rgpu_client.connect(*arguments, **options)
    except RgpuError as error:
        print(type(error).__name__, error)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(device="emulated:1GiB") as running:
        yield running


def python(code: str, *arguments: str, **environment: str) -> list[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("RGPU_")}
    done = subprocess.run(
        [sys.executable, "-c", f"import ctypes, os, sys, rgpu_client\n{TRY}{code}", *arguments],
        env={**clean, **environment}, cwd="/", capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_connect_returns_what_the_process_has(server: Server) -> None:
    code = (
        "c = rgpu_client.connect(sys.argv[1], memory='64MiB', share=0.25, limit=0.5)\n"
        "print(repr(c)); print(c._repr_html_())\n"
        "print(c.device, c.memory_bytes, c.share, c.limit, c.path, c.lease == os.environ['RGPU_LEASE'])\n"
    )
    path = f"tcp:{server.tcp}"
    shown, html, fields = python(code, path)
    assert shown.startswith("<rgpu: rgpu emulated device (device 0), memory 64 MiB, share 25%, ")
    assert f"at most 50%, path {path}, lease run-" in shown
    assert html.startswith("<table><tr><th")
    assert "64 MiB</td>" in html
    assert fields == f"rgpu emulated device {64 * MIB} 0.25 0.5 {path} True"


def test_two_processes_that_connect_have_a_lease_each(server: Server) -> None:
    code = (
        "import subprocess\n"
        "a = rgpu_client.connect(sys.argv[1], memory='64MiB')\n"
        "assert ctypes.CDLL('libcuda.so.1').cuInit(0) == 0\n"
        "b = subprocess.check_output([sys.executable, '-c', 'import rgpu_client, sys;'\n"
        "    'print(rgpu_client.connect(sys.argv[1], memory=\"32MiB\").memory_bytes)', sys.argv[1]],\n"
        "    text=True, env={k: v for k, v in os.environ.items() if not k.startswith('RGPU_')})\n"
        "print(a.memory_bytes, b)\n"
    )
    assert python(code, server.tcp)[0] == f"{64 * MIB} {32 * MIB}"


def test_connect_after_numba_was_imported_is_too_late(server: Server) -> None:
    code = "from numba import cuda\nattempt(sys.argv[1])\nprint('RGPU_SERVER' in os.environ)\n"
    said, changed = python(code, f"tcp:{server.tcp}", NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS="0")
    assert said.startswith("UsageError numba.cuda was imported before and has found no driver")
    assert "restart the kernel" in said
    assert changed == "False"


@pytest.mark.parametrize("wait", ["-3", "'x'", "float('nan')", "None"])
def test_a_wait_that_is_no_time(server: Server, wait: str) -> None:
    (said,) = python(f"attempt(sys.argv[1], wait={wait})\n", f"tcp:{server.tcp}")
    assert said.startswith("UsageError wait is True, False or a number of seconds, not")


def test_connect_checks_at_once_and_may_be_tried_again(server: Server) -> None:
    code = (
        "attempt('tcp:127.0.0.1:1')\n"
        "attempt(sys.argv[1], memory='9GiB')\n"
        "print('RGPU_SERVER' in os.environ)\n"
        "print(attempt(sys.argv[1], memory='16MiB').memory_bytes)\n"
        "print(attempt(sys.argv[1], memory='32MiB').memory_bytes)\n"
        "print(attempt(sys.argv[1], memory='32MiB').lease == os.environ['RGPU_LEASE'])\n"
        "assert ctypes.CDLL('libcuda.so.1').cuInit(0) == 0\n"
    )
    said = python(code, f"tcp:{server.tcp}")
    assert said[0].startswith("NoSessionError nothing listens at")
    assert said[1].startswith("NoSessionError a lease of 9 GiB does not fit")
    assert said[2:] == ["False", str(16 * MIB), str(32 * MIB), "True"]


def test_connect_after_a_failed_try_says_restart_the_kernel(server: Server) -> None:
    code = (
        "attempt(sys.argv[1], memory='16MiB')\n"
        "os.environ['RGPU_SERVER'] = 'tcp:127.0.0.1:1'\n"
        "assert ctypes.CDLL('libcuda.so.1').cuInit(0) != 0\n"
        "attempt(sys.argv[1], memory='16MiB')\n"
    )
    (said,) = python(code, f"tcp:{server.tcp}")
    assert said.startswith("UsageError CUDA was tried in this process before and failed")
    assert "restart the kernel" in said


def test_connect_after_another_driver_was_loaded_says_restart_the_kernel(
    server: Server, tmp_path_factory: pytest.TempPathFactory
) -> None:
    from rgpu_client import library_path

    other = tmp_path_factory.mktemp("other") / "libcuda.so.1"
    other.write_bytes((library_path() / "libcuda.so.1").read_bytes())
    code = "ctypes.CDLL(sys.argv[2]); attempt(sys.argv[1])"
    (said,) = python(code, server.tcp, str(other))
    assert "is already loaded: restart the kernel" in said


def test_connect_with_other_values_in_a_session_says_restart_the_kernel(server: Server) -> None:
    code = (
        "attempt(sys.argv[1], memory='16MiB')\n"
        "assert ctypes.CDLL('libcuda.so.1').cuInit(0) == 0\n"
        "attempt(sys.argv[1], memory='32MiB')\n"
    )
    (said,) = python(code, f"tcp:{server.tcp}")
    assert "has opened its session already, so RGPU_MEMORY cannot change any more" in said
    assert "restart the kernel" in said


def test_connect_can_wait_for_room(server: Server) -> None:
    code = (
        "import subprocess\n"
        "first = subprocess.Popen([sys.executable, '-c', 'import rgpu_client, sys;'\n"
        "    'rgpu_client.connect(sys.argv[1], memory=\"1GiB\"); print(1, flush=True); input()',\n"
        "    sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "first.stdout.readline()\n"
        "attempt(sys.argv[1], memory='1GiB', wait=0.2)\n"
        "first.communicate(b'\\n')\n"
        "print(attempt(sys.argv[1], memory='1GiB', wait=True).memory_bytes)\n"
    )
    said = python(code, f"tcp:{server.tcp}")
    assert "(waited for 2" in said[0]
    assert said[1] == str(1024 * MIB)
