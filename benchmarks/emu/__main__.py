"""How fast the emulated device runs kernels, beside C -O2 of the same algorithm and NumPy.

Each kernel runs in turn with its C code and with NumPy, in one process, once with one thread and
once with two (of the device and of the C code; NumPy has the threads that it takes).  The floor of
a row is the C code, so its ratio says how many times longer the device takes.  `compile` measures
how long the device takes to load and compile kernels as array libraries generate them.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.emu.corpus import corpus
from benchmarks.emu.nvrtc import compile_cuda
from benchmarks.harness import Row, arguments, below, report, say

HERE = Path(__file__).parent


def child(module: str, threads: int, *words: str) -> dict[str, dict[str, float]]:
    """Runs a module of this folder with so many threads of the device; what it printed."""
    result = subprocess.run(
        [sys.executable, "-m", f"benchmarks.emu.{module}", *words],
        env=os.environ | {"RGPU_EMU_THREADS": str(threads)},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=1800,
    )
    figures: dict[str, dict[str, float]] = json.loads(result.stdout)
    return figures


def reference(folder: Path) -> Path:
    """Compiles reference.c."""
    library = folder / "reference.so"
    flags = ["-O2", "-Wall", "-Wextra", "-fPIC", "-shared", "-fopenmp"]
    command = ["cc", *flags, "-o", str(library), str(HERE / "reference.c"), "-lm"]
    subprocess.run(command, check=True)
    return library


def speed_rows(folder: Path, quick: bool) -> list[Row]:
    """A row for each kernel and number of threads, and one for NumPy."""
    ptx = folder / "kernels.ptx"
    ptx.write_text(compile_cuda((HERE / "kernels.cu").read_text()))
    library = reference(folder)
    rows = []
    for threads in (1, 2):
        words = (str(threads), "3" if quick else "9", str(int(quick)), str(ptx), str(library))
        for kernel, figure in child("measure", threads, *words).items():
            value, floor = figure["device"] / 1e6, figure["c"] / 1e6
            if kernel == "empty":
                rows.append(Row(f"empty launch, {threads} thread(s)", "us", value * 1e3))
                continue
            rows.append(Row(f"{kernel}, {threads} thread(s)", "ms", value, floor, value / floor))
            if "numpy" in figure and threads == 1:
                beside = figure["numpy"] / 1e6
                rows.append(Row(f"{kernel}, beside NumPy", "ms", value, beside, value / beside))
    return rows


def compile_rows(folder: Path) -> list[Row]:
    """The median and the 99th percentile of the corpus."""
    texts = folder / "corpus.json"
    sources = corpus()
    say(f"NVRTC compiles {len(sources)} kernels to PTX")
    texts.write_text(json.dumps({name: compile_cuda(text) for name, text in sources.items()}))
    say("the device compiles them")
    times = sorted(child("compile_times", 1, str(texts)).values())
    hundredth = statistics.quantiles(times, n=100)[98]
    return [
        below("load and compile a kernel, median", "ms", statistics.median(times) / 1e6, 60),
        below("load and compile a kernel, p99", "ms", hundredth / 1e6, 1000),
    ]


def main() -> int:
    options = arguments(__doc__ or "", ("speed", "compile"))
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="rgpu-bench-") as name:
        if "speed" in options.parts:
            rows += speed_rows(Path(name), options.quick)
        if "compile" in options.parts:
            rows += compile_rows(Path(name))
    report("emu", rows, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
