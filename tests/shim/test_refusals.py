"""Functions that a program asked for and rgpu lacks: they are named once if the program
then fails.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import clients
from helpers.ends import plant
from helpers.needs import needs, static_runtime
from helpers.server import Server

CALLED = (
    "after it called cuImportExternalMemory, which rgpu does not support (CUDA_ERROR_NOT_SUPPORTED)"
)
MISSING = "after it asked for the function cuImportExternalSemaphore, which rgpu does not have"
TABLES = "private tables of NVIDIA's driver"
ASK = """
import os, sys
from ctypes import byref, c_uint64, c_void_p
place = c_void_p()
def call():
    print(cuda.result("cuImportExternalMemory", byref(place), byref(place)))
def look(name=b"cuImportExternalSemaphore"):
    cuda.result("cuGetProcAddress_v2", name, byref(place), 13000, c_uint64(0), None)
def tables():
    cuda.result("cuGetExportTable", byref(place), b"0" * 16)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with Server(device="emulated:256MiB") as running:
        yield running.tcp


def said(server: str | None, source: str) -> tuple[int, list[str]]:
    """Runs a program; returns its exit code and the lines of the driver library."""
    code, _, errors = clients.run(server, ASK + source)
    return code, [line for line in errors.splitlines() if line.startswith("rgpu: ")]


@pytest.mark.parametrize(
    ("end", "how", "wanted"),
    [
        ("raise SystemExit(3)", "failed", 3),
        ("1 / 0", "failed", 1),
        ("os.abort()", "aborted", -signal.SIGABRT),
        ("os.kill(os.getpid(), 6); cuda.synchronize()", "aborted", -signal.SIGABRT),
    ],
)
def test_an_unsupported_call_that_a_program_fails_of_is_named_once(
    server: str, end: str, how: str, wanted: int
) -> None:
    plant(signal.SIGABRT)
    code, lines = said(server, f"cuda.open()\ncall()\ncall()\n{end}")
    assert code == wanted
    assert lines == [
        f"rgpu: this program {how} {CALLED}. `rgpu help compatibility` says what works, "
        "`rgpu trace -- PROGRAM` lists all such calls."
    ]


@pytest.mark.parametrize("ask", ["call()", "look()", "tables()", "call(); look(); tables()"])
def test_a_program_that_only_looks_and_goes_on_hears_nothing(server: str, ask: str) -> None:
    code, lines = said(server, f"cuda.open()\n{ask}\ncuda.free(cuda.alloc(64))\ncuda.synchronize()")
    assert (code, lines) == (0, [])


def test_a_program_that_fails_of_something_else_much_later_hears_nothing(server: str) -> None:
    work = "for _ in range(100): cuda.free(cuda.alloc(64))"
    code, lines = said(
        server, f"cuda.open()\ncall()\nlook()\ntables()\n{work}\nraise SystemExit(1)"
    )
    assert (code, lines) == (1, [])


def test_the_function_that_was_looked_up_last_is_named(server: str) -> None:
    code, lines = said(server, "cuda.open()\nlook()\nraise SystemExit(1)")
    assert (code, len(lines)) == (1, 1)
    assert MISSING in lines[0]


def test_a_program_that_lists_functions_and_fails_of_something_else_hears_nothing(
    server: str,
) -> None:
    """cuda.bindings, below numba, looks all functions up; only what is called may be refused."""
    survey = "for i in range(20): look(b'cuNoSuch%d' % i)"
    assert said(server, f"cuda.open()\n{survey}\nraise SystemExit(1)") == (1, [])


def test_private_tables_are_said_if_the_program_then_fails(server: str) -> None:
    plant(signal.SIGABRT)
    for wanted, source in (
        (1, "tables()\nraise SystemExit(1)"),
        (-signal.SIGABRT, "cuda.open()\ntables()\nos.abort()"),
    ):
        code, lines = said(server, source)
        assert (code, len(lines)) == (wanted, 1)
        assert TABLES in lines[0]
        assert "CuPy needs `rgpu run --arrays` and PyTorch `rgpu run --torch`" in lines[0]
        assert "`rgpu help compatibility` says what to use instead." in lines[0]


def test_private_tables_are_said_if_the_program_gives_up_cuda(server: str) -> None:
    code, lines = said(server, "cuda('cuInit', 0)\ntables()")
    assert (code, len(lines)) == (0, 1)
    assert "ended without using the device after it asked for private tables" in lines[0]


def test_a_child_does_not_speak_for_its_parent(server: str) -> None:
    fork = "child = os.fork()\nif child == 0: sys.exit(7)\nos.waitpid(child, 0)"
    assert said(server, f"cuda.open()\ncall()\ncuda.synchronize()\n{fork}") == (0, [])


def test_a_program_with_a_handler_of_its_own_for_abort_keeps_it(server: str) -> None:
    source = """
import faulthandler
faulthandler.enable()
cuda.open()
call()
os.abort()
"""
    plant(signal.SIGABRT)
    code, _, errors = clients.run(server, ASK + source)
    assert code == -signal.SIGABRT
    assert "Fatal Python error: Aborted" in errors
    assert "rgpu: this program" not in errors


STATIC = """
#include <cstdio>
extern "C" int cudaMalloc(void**, unsigned long);
extern "C" const char* cudaGetErrorString(int);
int main() {
  void* place = nullptr;
  const int error = cudaMalloc(&place, 64);
  std::printf("%d\\n", error);
  return error == 0 ? 0 : 1;
}
"""


@needs("static-cuda-runtime")
def test_a_statically_linked_runtime_is_explained(server: str, tmp_path: Path) -> None:
    """The program of a user who runs nvcc with its default options."""
    (tmp_path / "program.cc").write_text(STATIC)
    subprocess.run(
        ["g++", "program.cc", "-o", "program", str(static_runtime()), "-ldl", "-lrt",
         "-lpthread"],
        cwd=tmp_path, check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    ended = subprocess.run(
        [tmp_path / "program"], env=clients.environment(server), capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode == 1, ended.stdout
    assert ended.stderr.count("rgpu: ") == 1
    assert TABLES in ended.stderr


NVRTC = """
from cuda.bindings import driver, nvrtc
assert driver.cuInit(0)[0] == 0
_, program = nvrtc.nvrtcCreateProgram(b"__global__ void kernel() {}", b"kernel.cu", 0, [], [])
(result,) = nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=compute_80"])
assert result == 0, result
"""


@needs("cuda-bindings")
@pytest.mark.parametrize("end", ["", "raise SystemExit(3)"])
def test_a_program_that_compiles_with_nvrtc_hears_nothing_of_tables(server: str, end: str) -> None:
    """NVRTC asks for a private table and works without it."""
    code, lines = said(server, NVRTC + end)
    assert code == (3 if end else 0)
    assert not any(TABLES in line for line in lines)
    assert not lines or end
