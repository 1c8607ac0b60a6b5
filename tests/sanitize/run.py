"""`make sanitize`: tests against a worker, a gateway, an emulated device and a client library that
were built with AddressSanitizer and UBSan, and the client library's own unit tests.

The compiled parts are put in place of the installed ones in a copy of the installed packages, so
that every process of a test finds them.  A finding ends its process: that fails the test, or is
seen in the server's log.

`--build` only compiles, the fuzz targets too; `--build-fuzz` compiles these alone: both in
build/sanitized, so that what they share is compiled once. The compiler is clang, because libFuzzer belongs to it.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("cudaspec", "netprobe", "rgpu_client", "rgpu_cluster", "rgpu_common", "rgpu_emu",
            "rgpu_server")  # fmt: skip
FOLDER = ROOT / "build" / "sanitized"
# All that is installed.
TARGETS = ("rgpu-worker", "rgpu-gateway", "rgpu_emu", "rgpu_shim", "rgpu_shim_link", "rgpu_nvml",
           "rgpu_native", "netprobe-responder", "rgpu_no_nvjitlink_12",
           "rgpu_no_nvjitlink_13")  # fmt: skip
# Programs of tests/native and tests/emu_exec, which find them by RGPU_TEST_BUILD.
PROGRAMS = ("rgpu_native_tests", "rgpu_exec_tests")
# The shim's parts are tested in their build folder, because they need the generated code.
UNITS = "rgpu_shim_test"
SANITIZERS = "address,undefined"
# Ending processes do not free their memory, on purpose; the tests check the exit code.
OPTIONS = "detect_leaks=0:exitcode=99"
# Garbage frames and calls of every area, programs in process and over both transports, doors.
TESTS = (
    "tests/worker", "tests/litmus", "tests/shim/test_copies.py", "tests/shim/test_process.py",
    "tests/attack/test_door.py", "tests/attack/test_fuzz.py", "tests/transport/test_tls.py",
    "tests/transport/test_tls_gateway.py",
    # Freed memory stays in the sanitizer's quarantine, so sizes of processes mean nothing.
    "--deselect=tests/transport/test_tls_gateway.py::test_a_slow_reader_is_waited_for_in_bounded_memory",
    # Half a million nodes one by one, which takes half a minute here and finds nothing more.
    "--deselect=tests/worker/test_graphs.py::test_nodes_have_a_limit_per_session",
)  # fmt: skip


def call(*words: str | Path, **environment: str) -> int:
    """Runs a command in the repository; returns its exit code."""
    command = [str(word) for word in words]
    # CMake and Ninja may be Python packages beside this Python.
    path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
    env = {**os.environ, "PATH": path, **environment}
    return subprocess.run(command, cwd=ROOT, env=env, check=False).returncode


def must(*words: str | Path, **environment: str) -> None:
    """Runs a command that has to succeed."""
    code = call(*words, **environment)
    if code != 0:
        sys.exit(code)


def build(*targets: str) -> None:
    """Compiles the targets, by clang."""
    if not shutil.which("clang++"):
        sys.exit("there is no clang++: `apt-get install clang libclang-rt-dev`, or your system's")
    must("cmake", "-S", ".", "-B", FOLDER, "-G", "Ninja", "-DRGPU_TESTS=ON", "-DRGPU_FUZZ=ON",
         "-DCMAKE_C_COMPILER=clang", "-DCMAKE_CXX_COMPILER=clang++",
         f"-DRGPU_SANITIZE={SANITIZERS}", f"-DPython3_EXECUTABLE={sys.executable}",
         # Several files as one: half the time.
         "-DCMAKE_UNITY_BUILD=ON")  # fmt: skip
    must("cmake", "--build", FOLDER, "--target", *targets)


def fuzz_targets() -> list[str]:
    """Returns the names of the programs that CMake makes of fuzz/*.cc."""
    sources = (path.stem for path in (ROOT / "fuzz").glob("*.cc"))
    return sorted(f"fuzz_{name}" for name in sources if name != "replay")


def overlay(site: Path) -> None:
    """Copies the installed packages to `site`, with the parts that are built with sanitizers."""
    shutil.rmtree(site, ignore_errors=True)
    for package in PACKAGES:
        spec = find_spec(package)
        if spec is None or spec.origin is None or Path(spec.origin).is_relative_to(ROOT / package):
            sys.exit(f"{package} is not installed: `python -m pip install '.[test]'` first")
        shutil.copytree(Path(spec.origin).parent, site / package)
    parts = {
        "rgpu-worker": "rgpu_server/bin",
        "rgpu-gateway": "rgpu_server/bin",
        "librgpu_emu.so": "rgpu_emu/lib",
        "libcuda.so.1": "rgpu_client/lib",
    }
    for name, place in parts.items():
        (built,) = (path for path in FOLDER.rglob(name) if path.is_file())
        shutil.copy2(built, site / place / name)


def libraries() -> list[str]:
    """Returns the runtime that a process without sanitizers loads before it loads a part of ours.

    AddressSanitizer's comes first: it has UBSan's too.
    """
    names = f"libclang_rt.asan-{platform.machine()}.so", "libstdc++.so.6"
    commands = [["clang++", f"-print-file-name={name}"] for name in names]
    return [subprocess.check_output(command, text=True).strip() for command in commands]


def main() -> int:
    site = FOLDER.with_name("sanitized-site")
    # The repository's own folders are not the installed package.
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != ROOT]
    if sys.argv[1:] == ["--build-fuzz"]:
        build(*fuzz_targets())
        return 0
    build(*TARGETS, *PROGRAMS, UNITS, *fuzz_targets())
    if sys.argv[1:] == ["--build"]:
        return 0
    overlay(site)
    runtime = libraries()
    if not sys.argv[1:]:
        (units,) = (path for path in FOLDER.rglob(UNITS) if path.is_file())
        must(units, ASAN_OPTIONS=OPTIONS)
    return call(
        sys.executable,
        "-c",
        # Not from the repository's folder, which `-c` puts first: it has no compiled parts.
        "import sys; del sys.path[0]; import pytest; sys.exit(pytest.main(sys.argv[1:]))",
        "-p",
        "no:cacheprovider",
        # Sanitized processes take several times the memory and processor time.
        "--numprocesses=2",
        *(sys.argv[1:] or TESTS),
        PYTHONPATH=str(site),
        # Programs of tests are built with the same sanitizers; Python gets their runtime.
        CC=f"clang -fsanitize={SANITIZERS} -shared-libasan -Wl,-rpath,{Path(runtime[0]).parent}",
        RGPU_TEST_PRELOAD=":".join(runtime),
        ASAN_OPTIONS=OPTIONS,
    )


if __name__ == "__main__":
    sys.exit(main())
