"""Client processes of tests: Python source that runs beside a server, with the shim as its
libcuda.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import rgpu_client
from helpers import pki

TESTS = Path(__file__).resolve().parent.parent
# Addresses of each kind: "secret" ones, which hold the word s3cr3t, and "plain" ones.
_LINES = (TESTS / "native/secret_addresses.txt").read_text().splitlines()
_FORMS = [line.split(" ", 1) for line in _LINES]
SECRET_ADDRESSES = [address for kind, address in _FORMS if kind == "secret"]
PLAIN_ADDRESSES = [address for kind, address in _FORMS if kind == "plain"]
PRELUDE = "from helpers.driver import CudaError, Driver, wait_for_line\ncuda = Driver()\n"
# What a program may import that runs without the installed packages.
_HELPERS = ("add_one", "batches", "driver", "ipc", "maps", "shared_words", "waiting")
_PLAIN = {*sys.stdlib_module_names, *(f"helpers.{name}" for name in _HELPERS)} - {"site"}


def environment(server: str | None, **extra: str) -> dict[str, str]:
    """Returns the variables that a container image without a wrapper sets: the library path and
    RGPU_SERVER. With RGPU_TEST_NATIVE a program uses this machine's own driver instead, so that
    what the shim does can be told from what the driver does.
    """
    variables = {k: v for k, v in os.environ.items() if not k.startswith("RGPU_")}
    if "RGPU_TEST_NATIVE" in os.environ:
        return {**variables, "PYTHONPATH": str(TESTS), **extra}
    variables["LD_LIBRARY_PATH"] = str(rgpu_client.library_path())
    variables["PYTHONPATH"] = ":".join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH"))))
    variables.update(preload())
    if server is not None and server.startswith("tls:"):
        variables.update(trust())
    if server is not None:
        variables["RGPU_SERVER"] = server
    return {**variables, **extra}


def preload() -> dict[str, str]:
    """Returns the variables with which a client loads a shim that was built with sanitizers
    (tests/sanitize).
    """
    libraries = os.environ.get("RGPU_TEST_PRELOAD")
    return {"LD_PRELOAD": libraries} if libraries else {}


def trust() -> dict[str, str]:
    """Returns the variables with which a client trusts a server with the tests' certificates."""
    return {"RGPU_TLS_CA": str(pki.folder() / "ca.pem")}


def command(source: str) -> list[str]:
    """Returns the command that runs `source`, with the driver as `cuda`.

    A program that imports no installed package starts without them (`-S`): they hook themselves
    into Python's start, numba-cuda with 60 ms of it.
    """
    program = PRELUDE + textwrap.dedent(source)
    plain = ["-S"] if _imported(program) <= _PLAIN else []
    return [sys.executable, *plain, "-u", "-c", program]


def _imported(source: str) -> set[str]:
    """Returns the modules that a program imports: packages of the tests with their module."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return {name if name.startswith("helpers.") else name.partition(".")[0] for name in names}


def start(server: str | None, source: str, **extra: str) -> subprocess.Popen[str]:
    """Starts `source` (the driver is `cuda`) with pipes for its input and output."""
    return subprocess.Popen(
        command(source),
        env=environment(server, **extra),
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(
    server: str | None, source: str, timeout: float = 120, **extra: str
) -> tuple[int, str, str]:
    """Runs `source` to its end; returns (exit code, output, error output)."""
    process = start(server, source, **extra)
    try:
        output, errors = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        output, errors = process.communicate()
        raise AssertionError(f"the client did not end:\n{output}\n{errors}") from None
    return process.returncode, output, errors
