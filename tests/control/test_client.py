"""The client's commands against a real server: run, trace, ps, devices, connect, the agent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.asking import running_on
from helpers.command import rgpu_command
from helpers.command import run_rgpu_plain as rgpu
from helpers.server import Server
from helpers.waiting import wait_until

RGPU = str(Path(sys.executable).parent / "rgpu")
MIB = 1 << 20

# A program that uses the driver API and nothing of ours.
PROGRAM = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
def check(name, *arguments):
    result = getattr(cuda, name)(*arguments)
    if result:
        sys.exit(f"{name} gave {result}")
check("cuInit", 0)
context, total, free = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
check("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
check("cuCtxSetCurrent", context)
check("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
address, back = ctypes.c_uint64(), ctypes.create_string_buffer(5)
check("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(1 << 20))
check("cuMemcpyHtoD_v2", address, b"hello", ctypes.c_size_t(5))
check("cuMemcpyDtoH_v2", back, address, ctypes.c_size_t(5))
print(total.value, back.raw.decode(), flush=True)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(device="emulated:1GiB") as running:
        yield running


@pytest.mark.parametrize("transport", ["tcp", "unix"])
def test_run(server: Server, transport: str) -> None:
    options = (
        "--server",
        server.address(transport),
        "--memory",
        "64MiB",
        "--lease",
        f"run-{transport}",
    )
    done = rgpu("run", *options, "--", sys.executable, "-c", PROGRAM)
    assert (done.returncode, done.stdout) == (0, f"{64 * MIB} hello\n"), done.stderr


def test_the_variables_alone_are_enough(server: Server) -> None:
    from rgpu_client import library_path

    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={
            **os.environ,
            "LD_LIBRARY_PATH": str(library_path()),
            "RGPU_SERVER": server.tcp,
            "RGPU_MEMORY": "32MiB",
            "RGPU_LEASE": "variables",
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, f"{32 * MIB} hello\n"), done.stderr


def test_connect_serves_later_imports(server: Server) -> None:
    script = (
        "import rgpu_client; rgpu_client.connect(sys.argv[1], memory='16MiB', lease='connect')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", "import sys\n" + script + PROGRAM, server.tcp],
        env={k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, f"{16 * MIB} hello\n"), done.stderr


def test_connect_again_in_a_notebook(server: Server) -> None:
    code = (
        "import ctypes, rgpu_client, sys\n"
        "from rgpu_common.errors import UsageError\n"
        "first = dict(server=sys.argv[1], memory='32MiB', lease='again')\n"
        "rgpu_client.connect(**{**first, 'memory': '16MiB'})\n"
        "rgpu_client.connect(**first)\n"
        "assert ctypes.CDLL('libcuda.so.1').cuInit(0) == 0\n"
        "rgpu_client.connect(**first)\n"
        "try:\n"
        "    rgpu_client.connect(sys.argv[1], memory='64MiB')\n"
        "except UsageError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, server.tcp],
        env={k: v for k, v in os.environ.items() if not k.startswith("RGPU_")},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    sentence = (
        "this process has opened its session already, so lease, memory cannot change any more"
    )
    assert done.stdout.startswith(sentence)


def test_devices_as_json_name_every_field(server: Server) -> None:
    done = rgpu("devices", "--json", "--server", server.tcp)
    (device,) = json.loads(done.stdout)["devices"]
    assert (device["ordinal"], device["kind"]) == (0, "DEVICE_KIND_EMULATED")
    assert device["memory_bytes"] == 1024 * MIB
    assert device["sessions"] >= 0


def test_connect_comes_too_late_when_another_driver_is_loaded(tmp_path: Path) -> None:
    from rgpu_client import library_path

    other = tmp_path / "libcuda.so.1"
    other.write_bytes((library_path() / "libcuda.so.1").read_bytes())
    script = (
        f"import ctypes; ctypes.CDLL({str(other)!r}); import rgpu_client; rgpu_client.connect()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd="/", capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "is already loaded: restart the kernel" in done.stderr


def test_trace_shows_what_was_called(server: Server) -> None:
    done = rgpu(
        "trace", "--server", server.tcp, "--lease", "trace", "--", sys.executable, "-c", PROGRAM
    )
    assert done.returncode == 0, done.stderr
    rows = {line.split()[0]: line.split() for line in done.stdout.splitlines() if line}
    assert rows["cuMemcpyHtoD_v2"][1:4] == ["1", "5", "B"]
    assert "calls in" in done.stdout
    assert "per write" in done.stdout


def test_trace_gives_the_exit_code_of_the_program(server: Server) -> None:
    script = PROGRAM + "sys.exit(9)"
    done = rgpu("trace", "--server", server.tcp, "--", sys.executable, "-c", script)
    assert done.returncode == 9
    assert "cuInit" in done.stdout


def test_hold_grants_a_lease_for_the_run_and_revokes_it(server: Server) -> None:
    script = PROGRAM + (
        "import os, subprocess\n"
        "ps = [sys.argv[1], 'ps', '--json']\n"
        "print(subprocess.run(ps, capture_output=True, text=True, check=True).stdout)\n"
    )
    options = ("--server", server.tcp, "--memory", "48MiB", "--share", "0.25", "--hold")
    done = rgpu("run", *options, "--", sys.executable, "-c", script, RGPU)
    assert done.returncode == 0, done.stderr
    first, _, rest = done.stdout.partition("\n")
    assert first == f"{48 * MIB} hello"
    during = json.loads(rest)
    held = next(entry for entry in during["leases"] if entry["memory_limit_bytes"] == 48 * MIB)
    assert held["share_request_ppm"] == 250_000
    assert held["usage"]["memory_used_bytes"] == MIB
    session = next(s for s in during["sessions"] if s["lease_id"] == held["lease_id"])
    assert session["state"] == "SESSION_STATE_OPEN"

    def is_gone() -> bool:
        """The end of its last session takes a moment."""
        after = running_on(server.tcp)["leases"]
        return held["lease_id"] not in [entry["lease_id"] for entry in after]

    wait_until(is_gone)


@pytest.mark.parametrize("command", [("trace",), ("run", "--hold")])
def test_a_signal_is_passed_on_once(server: Server, command: tuple[str, ...]) -> None:
    script = (
        "import signal\n"
        "waited = {signal.SIGTERM, signal.SIGINT}\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, waited)\n"
        "print('ready', flush=True)\n"
        "print(signal.sigwait(waited).name, signal.sigpending() & waited, flush=True)\n"
        "raise SystemExit(7)\n"
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        process = subprocess.Popen(
            [RGPU, *command, "--server", server.tcp, "--", sys.executable, "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        with process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            process.send_signal(number)
            assert process.stdout.readline() == f"{number.name} set()\n"
            assert process.wait(timeout=30) == 7


# Tells `rgpu` to end before it knows that the program has started.
_TOLD = """
import os, signal, subprocess

signal.signal({number}, signal.SIG_DFL)  # ignored under nohup

class Told(subprocess.Popen):
    def __init__(self, command, *arguments, **options):
        super().__init__(command, *arguments, **options)
        if command[0].endswith("sleep"):
            os.kill(os.getpid(), {number})

subprocess.Popen = Told
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("command", [("trace",), ("run", "--hold")])
def test_a_signal_that_comes_while_the_program_starts_ends_the_program(
    server: Server, tmp_path: Path, command: tuple[str, ...], number: int
) -> None:
    (tmp_path / "sitecustomize.py").write_text(_TOLD.format(number=int(number)))
    options = ("--server", f"tcp:{server.tcp}", "--", "sleep", "50")
    done = rgpu(*command, *options, PYTHONPATH=str(tmp_path))
    assert done.returncode == 128 + number, done.stderr


@pytest.mark.parametrize("command", [("trace",), ("run", "--hold")])
def test_a_program_inherits_that_a_signal_is_ignored(
    server: Server, command: tuple[str, ...]
) -> None:
    script = "import signal; print(signal.getsignal(signal.SIGHUP).name, signal.SIGHUP.name)"
    shell = 'trap "" HUP; exec "$@"'
    done = subprocess.run(
        ["sh", "-c", shell, "sh", RGPU, *command, "--server", server.tcp, "--", sys.executable, "-c",
         script],
        capture_output=True, text=True, timeout=60, check=False, cwd="/",
    )  # fmt: skip
    assert done.stdout == "SIG_IGN SIGHUP\n", done.stderr


def test_hold_passes_signals_and_exit_codes_on(server: Server) -> None:
    script = "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"
    done = rgpu("run", "--hold", "--server", server.tcp, "--", sys.executable, "-c", script)
    assert done.returncode == 128 + 15


def test_tables_for_people(server: Server) -> None:
    devices = rgpu("devices", RGPU_SERVER=server.tcp)
    assert devices.stdout.splitlines()[0].split()[:4] == ["device", "name", "pool", "memory"]
    assert "rgpu emulated device" in devices.stdout
    ps = rgpu("run", "--", rgpu_command(), "ps", RGPU_SERVER=server.tcp)
    assert ps.returncode == 0
    assert ps.stdout.startswith("lease")


def test_an_idle_server_is_one_sentence() -> None:
    with Server(device="emulated:64MiB") as idle:
        ps = rgpu("ps", RGPU_SERVER=idle.tcp)
    assert ps.stdout == "no leases and no sessions: `rgpu run -- PROGRAM` makes one of each\n"
