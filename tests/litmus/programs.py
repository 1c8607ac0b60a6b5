"""Builds and runs the litmus programs.  Standard library only: `make gpu-check` uses it too."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.c")))
# For programs that hang: on a quiet machine each ends within five seconds, and beside many others
# in many times that.
LIMIT_SECONDS = 150.0


@dataclass(frozen=True)
class Result:
    """The result of one run.

    ok: within the limit, with exit code 0, and for a litmus program with a line "NAME ok". text:
    the program's output.
    """

    ok: bool
    seconds: float
    text: str


class BuildError(Exception):
    """A program did not compile; the text is the compiler's."""


def generate_header(out: Path, **environment: str) -> None:
    """Writes `gen/cuda_abi.gen.h` below `out`, from the specification that is installed."""
    command = [sys.executable, "-m", "cudaspec", str(out)]
    subprocess.run(command, check=True, cwd="/", env={**os.environ, **environment})


def build(
    out: Path, include: Path, sources: tuple[Path, ...] = (), *, vendor: bool = False
) -> Path:
    """Compiles the programs (or `sources`) into `out` and returns it.

    Args:
        include: the folder that holds `gen/cuda_abi.gen.h`, or with `vendor` the vendor's `cuda.h`.

    Raises:
        BuildError: there is no compiler, or it refuses.
    """
    out.mkdir(parents=True, exist_ok=True)
    compiler = shlex.split(os.environ.get("CC", "cc"))
    for source in sources or tuple(FOLDER / f"{name}.c" for name in NAMES):
        flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{include}", f"-I{FOLDER}"]
        # low_heap is about a program whose heap lies low.
        flags += ["-no-pie", "-fno-pie"] if source.stem == "low_heap" else []
        flags += ["-DRGPU_VENDOR_HEADER"] if vendor else []
        command = [*compiler, *flags, str(source), "-o", str(out / source.stem), "-pthread", "-ldl"]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except FileNotFoundError as error:
            raise BuildError(f"no C compiler: {error}") from error
        except subprocess.CalledProcessError as error:
            raise BuildError(error.stderr) from error
    return out


def run(program: Path, environment: dict[str, str], limit: float = LIMIT_SECONDS) -> Result:
    """Runs one program to its end or to the limit (seconds)."""
    begin = time.monotonic()
    process = subprocess.Popen(
        [str(program)],
        env=environment,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        text, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        process.kill()
        text, _ = process.communicate()
        return Result(False, limit, f"it did not end within {limit:g} s\n{text}")
    seconds = time.monotonic() - begin
    said = any(line.startswith(f"{program.stem} ok") for line in text.splitlines())
    ok = process.returncode == 0 and (said or program.stem not in NAMES)
    return Result(ok, seconds, f"exit code {process.returncode}\n{text}")
