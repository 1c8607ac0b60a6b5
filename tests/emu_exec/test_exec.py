"""Compiles the launch runtime's C++ unit tests with sanitizers, and runs them.

The kernels are plain object files that the tests load: no PTX compiler takes part.  Without
RGPU_TEST_BUILD only `pytest --all` compiles and runs them.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from helpers.builder import LONG_BUILD, ROOT, Builder, built, checked, run

HERE = ROOT / "tests" / "emu_exec"
EXEC = ROOT / "rgpu_emu" / "device" / "exec"
pytestmark = [LONG_BUILD, pytest.mark.timeout(900)]
GROUPS = ["compiler", "faults", "grid", "loader", "numbers", "printf", "processors", "textures"]
KERNEL = re.compile(r"defined\(KERNEL_(\w+)\)")
# Compiled kernels are plain code that needs no other symbol.
KERNEL_FLAGS = [
    "-std=c++20", "-O1", "-fPIC", "-fno-builtin", "-fno-exceptions", "-fno-rtti",
    "-fno-stack-protector", "-fno-asynchronous-unwind-tables",
]  # fmt: skip


@pytest.fixture(scope="module")
def tests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    there = built("rgpu_exec_tests")
    if there is not None:
        return there
    folder = tmp_path_factory.mktemp("exec")
    checked(sys.executable, "-m", "cudaspec", folder)
    kernels = folder / "kernels"
    kernels.mkdir()
    builder = Builder(folder, f'-DRGPU_TEST_OBJECTS="{kernels}"')
    for name in sorted(set(KERNEL.findall((HERE / "kernels.cc").read_text()))):
        command = [builder.compiler, *KERNEL_FLAGS, f"-DKERNEL_{name}", f"-I{ROOT}"]
        checked(*command, "-c", HERE / "kernels.cc", "-o", kernels / f"{name}.o")
    wire = [ROOT / f"rgpu_common/native/wire/{name}.cc" for name in ("fields", "text")]
    codec = [builder.generate() / "compiler.gen.cc", *wire]
    own = [source for source in sorted(HERE.glob("*.cc")) if source.name != "kernels.cc"]
    main = ROOT / "tests" / "native" / "main.cc"
    return builder.link(
        "rgpu_exec_tests", builder.objects([*sorted(EXEC.glob("*.cc")), *codec, *own, main])
    )


def test_every_group_is_here(tests: Path) -> None:
    assert run(tests, "--list").stdout.split() == GROUPS


@pytest.mark.parametrize("group", GROUPS)
def test_exec(tests: Path, group: str) -> None:
    done = run(tests, group)
    assert done.returncode == 0, done.stdout + done.stderr
