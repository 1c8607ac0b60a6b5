"""`make gpu-check`: the litmus programs and the cost of calls on NVIDIA's driver, in process and
over the wire, side by side.

Needs a C compiler, Python's standard library and what was built (`make native`, or an installed
rgpu-cuda); no registry, no CUDA toolkit.  Where there is no GPU it says so in one sentence.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from litmus import programs  # noqa: E402

START_SECONDS = 20.0
FIGURES_LIMIT_SECONDS = 120.0
# Two processes in one lease; a worker on its own serves one.
NEEDS_SERVER = ("free_across_processes", "processes_share")
SLICE = re.compile(r"^\s+MIG (\S+)\s.*\(UUID: (MIG-[0-9a-f-]+)\)", re.MULTILINE)
FIGURE = re.compile(r"^(\w+) ([\d.]+) (\S+)$", re.MULTILINE)


class CannotCheckError(Exception):
    """The check cannot run here; the text is a sentence with the reason."""


class NotBuiltError(Exception):
    """There is a GPU, but rgpu is not built; the text says what to do."""


@dataclass(frozen=True)
class Parts:
    """The built parts: the folder of the shim, and the worker."""

    shim: Path
    worker: Path


def find_driver(name: str) -> str:
    """Returns `name` when it is NVIDIA's driver library and has a device.

    Raises:
        CannotCheckError: there is no driver or no GPU.
    """
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        raise CannotCheckError(f"There is no GPU to check on: {error}.") from error
    if hasattr(library, "rgpu_shim_version"):
        raise CannotCheckError(
            f"{name} is rgpu's own library; unset LD_LIBRARY_PATH and try again."
        )
    result = library.cuInit(0)
    count = ctypes.c_int()
    if result != 0 or library.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value == 0:
        raise CannotCheckError(
            f"There is no GPU to check on: {name} found none (cuInit gave CUresult {result})."
        )
    return name


def find_parts(build: Path | None) -> Parts:
    """Looks in `build`, where `make native` builds, then among the installed packages.

    Raises:
        NotBuiltError: nothing was built.
    """
    # Other files in build/ may work only with sanitizers.
    for place in [build] if build else [ROOT / "build" / "dev"]:
        shims = sorted(place.glob("**/libcuda.so.1")) if place.is_dir() else []
        workers = [p for p in sorted(place.glob("**/rgpu-worker")) if os.access(p, os.X_OK)]
        if shims and workers:
            return Parts(shims[0].parent, workers[0])
    for place in map(Path, [] if build else sys.path[1:]):
        shim, worker = place / "rgpu_client" / "lib", place / "rgpu_server" / "bin" / "rgpu-worker"
        if (shim / "libcuda.so.1").exists() and worker.exists():
            return Parts(shim, worker)
    raise NotBuiltError("Nothing is built: run `make native` or `pip install .` first.")


@contextlib.contextmanager
def worker(parts: Parts, driver: str, folder: Path, visible: str = "") -> Iterator[str]:
    """A worker on NVIDIA's driver that listens on a Unix socket; gives its address.

    visible: the UUID of the only device that it sees; "": it sees all.
    """
    environment = {**os.environ, **({"CUDA_VISIBLE_DEVICES": visible} if visible else {})}
    address = f"unix:{folder}/worker.sock"
    command = [str(parts.worker), "--listen", address, "--library", driver, "--no-sandbox"]
    log = folder / "worker.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            command, cwd="/", env=environment, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        deadline = time.monotonic() + START_SECONDS
        while not listens(folder / "worker.sock"):
            if process.poll() is not None or time.monotonic() > deadline:
                raise NotBuiltError(
                    f"The worker did not start ({' '.join(command)}):\n{log.read_text()}"
                )
            time.sleep(0.01)
        yield address
    finally:
        process.terminate()
        try:
            process.wait(START_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        (folder / "worker.sock").unlink(missing_ok=True)


def listens(path: Path) -> bool:
    """Whether a Unix socket listens there; asked without connecting, which would be a session."""
    rows = [row.split() for row in Path("/proc/net/unix").read_text().splitlines()]
    return any(row[-1] == str(path) and row[3] == "00010000" for row in rows)


def environments(parts: Parts, driver: str, address: str) -> dict[str, dict[str, str]]:
    """How a program finds its library: in process, and over the wire."""
    ours = ("RGPU_SERVER", "RGPU_LIBCUDA", "RGPU_LEASE", "RGPU_MEMORY", "LD_LIBRARY_PATH")
    base = {k: v for k, v in os.environ.items() if k not in ours}
    base.setdefault("LITMUS_ROUNDS", "10")
    wire = {**base, "RGPU_SERVER": address, "RGPU_LIBCUDA": str(parts.shim / "libcuda.so.1")}
    return {"in process": {**base, "RGPU_LIBCUDA": driver}, "over the wire": wire}


def check_programs(
    names: list[str], binaries: Path, parts: Parts, driver: str, folder: Path
) -> bool:
    """Runs litmus programs both ways and prints a table; true when all are right."""
    print(f"{'program':10} {'in process':>14} {'over the wire':>14}")
    right = True
    for name in names:
        cells: list[str] = []
        with worker(parts, driver, folder) as address:
            for where, environment in environments(parts, driver, address).items():
                if name in NEEDS_SERVER and where != "in process":
                    cells.append("-")
                    continue
                result = programs.run(binaries / name, environment)
                cells.append(f"{result.seconds:.2f} s" if result.ok else "FAILED")
                if not result.ok:
                    right = False
                    print(f"--- {name} {where}\n{result.text}", file=sys.stderr)
        print(f"{name:10} {cells[0]:>14} {cells[1]:>14}", flush=True)
    print("(-: needs a server with leases)")
    return right


def mig_slices() -> list[tuple[str, str]]:
    """Returns the profile and the UUID of each MIG slice of this machine."""
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    except OSError:
        return []
    return SLICE.findall(done.stdout)


def check_slices(name: str, binaries: Path, parts: Parts, driver: str, folder: Path) -> bool:
    """Runs a litmus program on each MIG slice both ways, as a server's worker opens it."""
    right, slices = True, mig_slices()
    print(f"\n{'MIG slice':44} {'in process':>14} {'over the wire':>14}" if slices else
          "\nThere is no MIG slice to check on.")  # fmt: skip
    for profile, uuid in slices:
        cells = []
        with worker(parts, driver, folder, uuid) as address:
            for where, variables in environments(parts, driver, address).items():
                if where == "in process":  # over the wire the worker has it
                    variables["CUDA_VISIBLE_DEVICES"] = uuid
                result = programs.run(binaries / name, variables)
                cells.append(f"{result.seconds:.2f} s" if result.ok else "FAILED")
                if not result.ok:
                    right = False
                    print(f"--- {name} on {uuid} {where}\n{result.text}", file=sys.stderr)
        print(f"{profile:10} {uuid[:33]:33} {cells[0]:>14} {cells[1]:>14}", flush=True)
    return right


def check_costs(binaries: Path, parts: Parts, driver: str, folder: Path) -> bool:
    """Prints what calls cost both ways, and the ratio; true when both ran."""
    figures: list[dict[str, tuple[float, str]]] = []
    with worker(parts, driver, folder) as address:
        for environment in environments(parts, driver, address).values():
            result = programs.run(binaries / "calls", environment, FIGURES_LIMIT_SECONDS)
            found = {n: (float(v), unit) for n, v, unit in FIGURE.findall(result.text)}
            if not found:
                print(f"--- calls\n{result.text}", file=sys.stderr)
                return False
            figures.append(found)
    native, wire = figures
    print(f"\n{'figure':18} {'in process':>14} {'over the wire':>14} {'ratio':>8}")
    for name, (value, unit) in native.items():
        other = wire.get(name, (0.0, unit))[0]
        ratio = f"{other / value:.2f}" if value else "-"
        print(f"{name:18} {value:>9.2f} {unit:4} {other:>9.2f} {unit:4} {ratio:>8}")
    return True


def build_programs(folder: Path) -> Path:
    """Compiles the programs against our own declaration of the driver API."""
    programs.generate_header(folder, PYTHONPATH=str(ROOT))
    sources = [programs.FOLDER / f"{name}.c" for name in programs.NAMES]
    sources.append(Path(__file__).resolve().parent / "calls.c")
    return programs.build(folder / "bin", folder, tuple(sources))


def main() -> int:
    parser = argparse.ArgumentParser(description="check rgpu on NVIDIA's driver")
    parser.add_argument("--driver", default="libcuda.so.1", help="NVIDIA's driver library")
    parser.add_argument("--build", type=Path, help="where libcuda.so.1 and rgpu-worker lie")
    parser.add_argument("names", nargs="*", help="litmus programs to run (all of them)")
    options = parser.parse_args()
    names = options.names or [*programs.NAMES]
    folder = Path(tempfile.mkdtemp(prefix="rgpu-gpu-check-"))
    try:
        driver = find_driver(options.driver)
        parts = find_parts(options.build)
        binaries = build_programs(folder)
        right = check_programs(names, binaries, parts, driver, folder)
        right = check_costs(binaries, parts, driver, folder) and right
        right = check_slices(names[0], binaries, parts, driver, folder) and right
    except CannotCheckError as error:
        print(error)
        return 0
    except NotBuiltError as error:
        print(error)
        return 1
    except programs.BuildError as error:
        print(f"The programs could not be compiled: {error}")
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
