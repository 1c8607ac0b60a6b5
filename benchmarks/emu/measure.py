"""Measures in a process of its own: the device reads its number of threads once a process.

`python -m benchmarks.emu.measure THREADS ROUNDS QUICK PTX LIBRARY`: prints, as JSON, the median
times of every kernel on the device, of its C code and of NumPy, in nanoseconds of wall time.  The
three run in turn, ROUNDS times, so a disturbance of the machine meets all of them.
"""

from __future__ import annotations

import ctypes
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.emu.cases import Array, Case, cases
from benchmarks.emu.device import Device, Launch

# A sample of a short run is the mean of so many runs that it takes this long.
SAMPLE_NS = 5_000_000


def reference(
    library: ctypes.CDLL, case: Case, arrays: list[Array], threads: int
) -> Callable[[], None]:
    """The C code of the case over its own copies of the arrays."""
    own = iter(arrays)
    passed: list[object] = []
    for argument in case.arguments:
        if isinstance(argument, np.ndarray):
            passed.append(ctypes.c_void_p(next(own).ctypes.data))
        elif isinstance(argument, np.float32):
            passed.append(ctypes.c_float(float(argument)))
        else:
            passed.append(ctypes.c_int(int(argument)))
    function = library[case.kernel]
    return lambda: function(*passed, ctypes.c_int(threads))


def check(case: Case, got: Array, wanted: Array) -> None:
    """The device and the C code agree, or the benchmark ends."""
    error = np.abs(got.astype(np.float64) - wanted) / (1 + np.abs(wanted.astype(np.float64)))
    # At the edge of a set a last bit may decide; whole images do not differ.
    if np.isinf(case.tolerance):
        if np.mean(error != 0) > 0.01:
            raise SystemExit(f"{case.kernel}: more than 1 % of the results are not those of C")
    elif error.max() > case.tolerance:
        raise SystemExit(f"{case.kernel}: a result is off by {error.max():g} of its size")


def sampler(run: Callable[[], object]) -> Callable[[], float]:
    """Returns a function that gives one sample of `run` in nanoseconds of wall time."""
    run()
    start = time.perf_counter_ns()
    run()
    repeats = max(1, SAMPLE_NS // max(1, time.perf_counter_ns() - start))

    def sample() -> float:
        start = time.perf_counter_ns()
        for _ in range(repeats):
            run()
        return (time.perf_counter_ns() - start) / repeats

    return sample


def measure(
    device: Device, library: ctypes.CDLL, ptx: bytes, case: Case, threads: int, rounds: int
) -> dict[str, float]:
    """The medians of one case."""
    arrays = [a.copy() for a in case.arguments if isinstance(a, np.ndarray)]
    addresses = iter([device.upload(a) for a in arrays])
    arguments = [next(addresses) if isinstance(a, np.ndarray) else a for a in case.arguments]
    launch = Launch(device, device.function(ptx, case.kernel), case.grid, case.block, arguments)
    in_c = reference(library, case, arrays, threads)
    launch.run()
    in_c()
    if case.result >= 0:
        place = sum(isinstance(a, np.ndarray) for a in case.arguments[: case.result])
        got = np.empty_like(arrays[place])
        device.download(int(arguments[case.result]), got)
        check(case, got, arrays[place])
    runs = {"device": sampler(launch.run), "c": sampler(in_c)}
    if case.numpy is not None:
        runs["numpy"] = sampler(case.numpy)
    samples: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, sample in runs.items():
            samples[name].append(sample())
    return {name: statistics.median(values) for name, values in samples.items()}


def main() -> int:
    threads, rounds, quick = (int(word) for word in sys.argv[1:4])
    ptx = Path(sys.argv[4]).read_bytes()
    library = ctypes.CDLL(sys.argv[5])
    device = Device()
    figures = {}
    for case in cases(bool(quick)):
        print(f"{case.kernel}, {threads} thread(s)", file=sys.stderr, flush=True)
        figures[case.kernel] = measure(device, library, ptx, case, threads, rounds)
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
