"""`rgpu_client.connect()`: its result, and its errors for wrong values and late calls."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
from helpers.asking import leases_of
from helpers.command import run_rgpu
from helpers.server import Server
from helpers.waiting import wait_until

import rgpu_client
from rgpu_client.argument_words import in_words_of_connect

MIB = 1 << 20
TRY = """
def attempt(*arguments, **options):
    try:
        return rgpu_client.connect(*arguments, **options)
    except rgpu_client.RgpuError as error:
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
        "print(c.device, c.memory_bytes, c.share, c.limit, c.path, c.key == os.environ['RGPU_LEASE'])\n"
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
        "print(attempt(sys.argv[1], memory='32MiB').key == os.environ['RGPU_LEASE'])\n"
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
    assert "has opened its session already, so memory cannot change any more" in said
    assert "restart the kernel" in said


def test_connect_can_wait_for_room(server: Server) -> None:
    is_empty(server)
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
    # A busy server may look a little late.
    waited = re.search(r"\(waited for ([0-9.]+) (ms|s)\)", said[0])
    assert waited is not None, said[0]
    assert float(waited[1]) >= (200 if waited[2] == "ms" else 1)
    assert said[1] == str(1024 * MIB)


def leases(server: Server) -> dict[str, int]:
    """The keys of all leases and their memory."""
    done = run_rgpu("lease", "list", "--json", "--server", server.tcp)
    found = json.loads(done.stdout)["leases"]
    return {str(lease["key"]): int(lease["quota"]["memory_bytes"]) for lease in found}


def is_empty(server: Server) -> None:
    """Waits for the room of programs that have ended: a claim of the whole device does not."""
    wait_until(lambda: not leases_of(server.tcp))


@pytest.mark.parametrize("key", [None, "named"])
def test_a_refused_second_call_leaves_the_first_lease_alone(
    server: Server, key: str | None
) -> None:
    code = (
        "key = {} if len(sys.argv) < 3 else {'lease': sys.argv[2]}\n"
        "first = rgpu_client.connect(sys.argv[1], memory='64MiB', **key)\n"
        "before = dict(os.environ)\n"
        "attempt(sys.argv[1], memory='9GiB', **key)\n"
        "attempt('tcp:127.0.0.1:1', **key)\n"
        "print(os.environ == before, rgpu_client.connect() is first, first.key, flush=True)\n"
        "input()\n"
        "assert ctypes.CDLL('libcuda.so.1').cuInit(0) == 0\n"
        "size = ctypes.c_size_t(), ctypes.c_size_t()\n"
        "print('done')\n"
    )
    words = [f"tcp:{server.tcp}", *([key] if key else [])]
    clean = {k: v for k, v in os.environ.items() if not k.startswith("RGPU_")}
    with subprocess.Popen(
        [sys.executable, "-c", f"import ctypes, os, sys, rgpu_client\n{TRY}{code}", *words],
        env=clean, cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        too_much, nobody, kept = (process.stdout.readline() for _ in range(3))
        words = kept.split()
        assert leases(server)[words[2]] == 64 * MIB
        rest, _ = process.communicate("\n", timeout=60)
    assert too_much.startswith("NoSessionError a lease of 9 GiB does not fit")
    assert nobody.startswith("NoSessionError nothing listens at")
    if key is None:
        stays = "; the earlier connect() keeps its lease, which rgpu_client.disconnect() ends\n"
        assert too_much.endswith(stays)
    assert words[:2] == ["True", "True"]
    assert rest == "done\n"


def test_each_call_stands_alone(server: Server) -> None:
    code = (
        "a = rgpu_client.connect(sys.argv[1], memory='16MiB', share=0.25)\n"
        "b = rgpu_client.connect(sys.argv[1])\n"
        "print(b.memory_bytes, b.share, a.key == b.key)\n"
        "print(sorted(k for k in os.environ if k in ('RGPU_MEMORY', 'RGPU_SHARE')))\n"
        "print(rgpu_client.connect() is b, rgpu_client.connect(sys.argv[1]) is b)\n"
        "os.environ['RGPU_MEMORY'] = '8MiB'\n"
        "print(rgpu_client.connect(sys.argv[1]).memory_bytes)\n"
    )
    said = python(code, f"tcp:{server.tcp}")
    assert said == [f"{256 * MIB} 0.0 False", "[]", "True True", str(8 * MIB)]


def test_disconnect_gives_the_lease_up_until_the_session_is_open(server: Server) -> None:
    is_empty(server)
    code = (
        "rgpu_client.disconnect()\n"
        "os.environ['RGPU_MEMORY'] = '8MiB'\n"
        "rgpu_client.connect(sys.argv[1], memory='1GiB', tenant='t')\n"
        "rgpu_client.disconnect()\n"
        "print({k: v for k, v in os.environ.items() if k.startswith('RGPU_')})\n"
        "print(rgpu_client.connect(sys.argv[1], memory='1GiB', wait=30).memory_bytes)\n"
        "assert ctypes.CDLL('libcuda.so.1').cuInit(0) == 0\n"
        "try: rgpu_client.disconnect()\n"
        "except rgpu_client.UsageError as error: print(error)\n"
    )
    said = python(code, f"tcp:{server.tcp}")
    # Which path was chosen is noted for programs that this process starts.
    assert said[0].startswith("{'RGPU_MEMORY': '8MiB'")
    assert "RGPU_SERVER" not in said[0]
    assert said[1] == str(1024 * MIB)
    assert "has opened its session already, which lasts until the process ends" in said[2]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        ("'tcp:127.0.0.1:1', memory='lots'", "UsageError memory: 'lots' is not a number of bytes"),
        ("'a b'", "UsageError server: 'a b' is not an address"),
        ("7700", "UsageError server: 7700 is not a text"),
        ("share=2", "UsageError share: '2' is not a share"),
        ("device=-1", "UsageError device: '-1' is not a device"),
        ("policy='greedy'", "UsageError policy: 'greedy' is not a policy"),
        ("'tcp:127.0.0.1:1'", "or correct the address (the argument server)"),
        ("'tcp:127.0.0.1:1', transport='shm'", "the argument transport names shm"),
        ("transport='pigeon'", "UsageError there is no transport 'pigeon'"),
        ("sys.argv[1], policy='fixed'", "a share: it is the limit as well; give one with the ar"),
    ],
)
def test_errors_name_the_arguments_of_connect(server: Server, call: str, sentence: str) -> None:
    (said,) = python(f"attempt({call})\n", f"tcp:{server.tcp}")
    assert sentence in said
    assert " --" not in said.replace("'rgpu serve --listen", "")
    assert "RGPU_" not in said


def test_commands_that_a_sentence_quotes_stay_as_they_are() -> None:
    error = rgpu_client.UsageError("`rgpu run --memory SIZE` has --memory or RGPU_MEMORY, --wait")
    said = in_words_of_connect(error)
    assert isinstance(said, rgpu_client.UsageError)
    assert str(said) == "`rgpu run --memory SIZE` has the argument memory, --wait"
