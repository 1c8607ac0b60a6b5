"""A node that is lost, by a kill or a cut, comes up as one sentence at the line that needs it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import pytest
from helpers import clients
from helpers.asking import running_on
from helpers.needs import needs
from helpers.proxy import CuttingProxy
from helpers.server import Server, patient_server

CUPY = """
import rgpu_client.cupy as cp
a = cp.arange(4)
def read():
    return a.get()
"""
TORCH = """
import torch, rgpu_client.torch
a = torch.arange(4).to("rgpu")
def read():
    return a.cpu()
"""
THEN = """
read()
print("here")
input()
try:
    read()
except RuntimeError as error:
    print(type(error).__name__, error)
try:
    a + 1
    read()
except RuntimeError as error:
    print(type(error).__name__, error)
"""
LIBRARIES = [pytest.param(CUPY, id="cupy"), pytest.param(TORCH, id="torch", marks=needs("torch"))]


@pytest.fixture
def server() -> Iterator[Server]:
    with patient_server() as one:
        yield one


def start(address: str, source: str) -> subprocess.Popen[str]:
    """Starts a program and returns when it has read an array."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", textwrap.dedent(source)], env=clients.environment(address),
        cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "here\n"
    return process


def check(process: subprocess.Popen[str]) -> None:
    """The program gets the sentence, at each use, and ends."""
    output, errors = process.communicate("\n", timeout=60)
    assert process.returncode == 0, errors
    said = output.splitlines()
    assert len(said) == 2, output
    for line in said:
        assert line.startswith("SessionLostError the session "), output
    assert said[0] == said[1]


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_connection_that_is_cut(server: Server, library: str) -> None:
    with CuttingProxy(server.address("tcp")) as proxy:
        process = start(proxy.address, library + THEN)
        proxy.cut()
        check(process)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_worker_that_is_killed(server: Server, library: str) -> None:
    process = start(server.unix, library + THEN)
    (session,) = running_on(server.tcp)["sessions"]
    os.kill(session["worker_pid"], signal.SIGKILL)
    check(process)
