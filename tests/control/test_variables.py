"""Variables of the environment: misspelt ones are said, and every one that is read is known."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest
from helpers import clients
from helpers.command import rgpu_command, run_rgpu
from helpers.server import Server

from rgpu_common.variables import KNOWN, meant_by, misspelt

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("cudaspec", "netprobe", "rgpu_client", "rgpu_common", "rgpu_emu", "rgpu_server")
# What NVIDIA documents: the chapter on environment variables of the CUDA programming guide, and the
# guides of MPS, CUDA-GDB and CUPTI.
DOCUMENTED = """
    CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER CUDA_MANAGED_FORCE_DEVICE_ALLOC CUDA_CACHE_DISABLE
    CUDA_CACHE_PATH CUDA_CACHE_MAXSIZE CUDA_FORCE_PTX_JIT CUDA_DISABLE_PTX_JIT CUDA_FORCE_JIT
    CUDA_DISABLE_JIT CUDA_FORCE_PRELOAD_LIBRARIES CUDA_LAUNCH_BLOCKING CUDA_DEVICE_MAX_CONNECTIONS
    CUDA_DEVICE_MAX_COPY_CONNECTIONS CUDA_SCALE_LAUNCH_QUEUES CUDA_GRAPHS_USE_NODE_PRIORITY
    CUDA_DEVICE_WAITS_ON_EXCEPTION CUDA_DEVICE_DEFAULT_PERSISTING_L2_CACHE_PERCENTAGE_LIMIT
    CUDA_AUTO_BOOST CUDA_DISABLE_PERF_BOOST CUDA_MODULE_LOADING CUDA_MODULE_DATA_LOADING
    CUDA_BINARY_LOADER_THREAD_COUNT CUDA_LOG_FILE CUDA_MPS_* CUDA_ENABLE_COREDUMP_ON_EXCEPTION
    CUDA_INJECTION64_PATH
"""
# Names of macros, and a prefix that code puts names behind.
_NO_VARIABLES = re.compile(
    r"RGPU_(EXPORT|FIND|UNARY|BINARY|ABI|ENUM_\w+|CUDA_ABI\w*|RELEASE|TLS_)?"
)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("RGPU_MEMROY", "RGPU_MEMORY"), ("RGPU_MEM", "RGPU_MEMORY"), ("RGPU_SEVER", "RGPU_SERVER"),
        ("RGPU_TOKENFILE", "RGPU_TOKEN_FILE"), ("RGPU_SHARES", "RGPU_SHARE"),
        ("RGPU_SERVER", None), ("RGPU_EMU_MEMORY", None), ("RGPU_AGENT", None),
        ("RGPU_NODE", None), ("RGPU_SECRETS", None), ("PATH", None), ("rgpu_memroy", None),
    ],
)  # fmt: skip
def test_a_misspelt_variable_is_told_from_somebody_elses(name: str, meant: str | None) -> None:
    assert meant_by(name) == meant


def test_a_misspelt_variable_is_said_with_the_closest_known_name() -> None:
    assert misspelt({"RGPU_SEVER": "a", "RGPU_MEMORY": "1GiB", "HOME": "/"}) == [
        "RGPU_SEVER is no variable of rgpu and changes nothing: did you mean RGPU_SERVER?"
    ]


def test_every_variable_that_the_code_reads_is_known() -> None:
    named = set()
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*"):
            if path.suffix in (".py", ".cc", ".h") and "tests" not in path.parts:
                named |= set(re.findall(r'"(RGPU_[A-Z_]+)[="]', path.read_text()))
    read = {name for name in named if not _NO_VARIABLES.fullmatch(name)}
    assert "RGPU_SERVER" in read
    assert {name for name in read if meant_by(name) is not None} == set()
    written = (ROOT / "docs/reference/client.md").read_text()
    written += (ROOT / "docs/reference/server.md").read_text()
    assert {name for name in KNOWN if name not in written} == set()


def test_the_page_names_the_variables_of_cuda_that_each_seam_reads() -> None:
    page = (ROOT / "docs/reference/client.md").read_text()
    effective = page.split("these have an effect:")[1].split("The others have none:")[0]
    listed = set(re.findall(r"^\| `(CUDA_[A-Z_]+)`", effective, re.MULTILINE))
    shim = _cuda_variables(ROOT / "rgpu_client/shim/settings.cc")
    arrays = _cuda_variables(ROOT / "rgpu_client/arrays/opening.py")
    assert listed == shim | arrays == {"CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING"}
    assert arrays == {"CUDA_LAUNCH_BLOCKING"}
    row = next(line for line in effective.splitlines() if "`CUDA_LAUNCH_BLOCKING`" in line)
    assert "`--arrays` and `--torch`" in row


def test_the_page_has_every_variable_of_the_driver_once() -> None:
    tables = (ROOT / "docs/reference/client.md").read_text().split("NVIDIA's driver reads")[1]
    rows = [line.split("|")[1] for line in tables.splitlines() if line.startswith("| `CUDA_")]
    assert sorted(re.findall(r"`(CUDA_[A-Z0-9_*]+)`", "".join(rows))) == sorted(DOCUMENTED.split())


def _cuda_variables(path: Path) -> set[str]:
    return set(re.findall(r'"(CUDA_[A-Z_]+)"', path.read_text()))


def test_run_connect_and_serve_say_a_misspelt_variable_once() -> None:
    wrong = {"RGPU_MEMROY": "1GiB"}
    sentence = "rgpu: RGPU_MEMROY is no variable of rgpu and changes nothing: did you mean"
    program = "import rgpu_client; rgpu_client.connect(); rgpu_client.connect()"
    with Server(**wrong) as server:
        assert sum(line.startswith(sentence) for line in server.log) == 1
        variables = clients.environment(server.tcp, **wrong)
        for command in (
            [sys.executable, "-c", program],
            [rgpu_command(), "run", "--", sys.executable, "-c", program],
        ):
            ended = subprocess.run(
                command, env=variables, cwd="/", capture_output=True, text=True, timeout=60,
                check=True,
            )  # fmt: skip
            lines = io.StringIO(ended.stderr).readlines()
            assert sum(line.startswith(sentence) for line in lines) == 1, ended.stderr


def test_an_address_of_the_environment_that_is_none_is_named() -> None:
    done = run_rgpu("ps", RGPU_SERVER="a:b")
    assert done.returncode == 2
    assert done.stderr.startswith("rgpu: RGPU_SERVER: 'a:b' is not an address")


INIT = "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"
INVALID_VALUE, DEVICE_UNAVAILABLE = 1, 46


@pytest.mark.parametrize("secret", clients.SECRET_ADDRESSES)
@pytest.mark.parametrize(
    ("variable", "before", "result"),
    [
        ("RGPU_SERVER", "", DEVICE_UNAVAILABLE),
        ("RGPU_PATHS", "", DEVICE_UNAVAILABLE),
        ("RGPU_DEVICE", "", INVALID_VALUE),
        ("RGPU_DEVICE", "0@", INVALID_VALUE),
        ("RGPU_DEVICE", "none,0@", INVALID_VALUE),
    ],
)
def test_the_driver_library_repeats_no_secret_of_an_address(
    variable: str, before: str, result: int, secret: str
) -> None:
    """As `rgpu run` does; other programs get these variables without it."""
    variables = {
        **clients.environment("127.93.17.211"),
        "RGPU_LOG": "debug",
        variable: before + secret,
    }
    ended = subprocess.run(
        [sys.executable, "-c", INIT],
        env=variables, cwd="/", capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ended.stdout == f"{result}\n"
    assert "RGPU_TOKEN_FILE" in ended.stderr
    assert "s3cr3t" not in ended.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["devices", "--server"],
        ["run", "--server"],
        ["run", "--device"],
        ["probe"],
        ["pool", "--manager"],
        ["serve", "--check-config", "--join"],
        ["serve", "--check-config", "--listen"],
    ],
    ids=" ".join,
)
def test_commands_repeat_no_secret_of_an_address(words: list[str]) -> None:
    """`test_a_secret_in_an_address_is_not_repeated` has the other forms."""
    for secret in clients.SECRET_ADDRESSES[3:12:2]:
        done = run_rgpu(*words, secret, *(["--", "true"] if words[0] == "run" else []))
        assert done.returncode == 2, (secret, done.stderr)
        assert "RGPU_TOKEN_FILE" in done.stderr
        assert "s3cr3t" not in done.stderr + done.stdout


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_says_that_it_is_typed(package: str) -> None:
    assert (files(package) / "py.typed").is_file()


@pytest.mark.parametrize("form", ["{}", "tcp:{}", "tls:{}"])
def test_a_server_without_a_port_is_at_7700(form: str) -> None:
    """Nothing listens at this address of the machine, so the errors name the port that was
    tried.
    """
    address = form.format("127.93.17.211")
    variables = {**clients.environment(address), "RGPU_LOG": "error"}
    where = "127.93.17.211:7700"
    for command in (
        [sys.executable, "-c", "import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)"],
        [rgpu_command(), "devices"],
        [rgpu_command(), "top", "--once"],
        [rgpu_command(), "probe", address],
    ):
        ended = subprocess.run(
            command, env=variables, cwd="/", capture_output=True, text=True, timeout=60, check=False
        )
        assert f"nothing listens at {where}" in ended.stderr, (command, ended.stderr)
