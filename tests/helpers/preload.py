"""Compiles a library for LD_PRELOAD, which changes what a process of a test does."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

DEADLINE_SECONDS = 600


def preload(source: Path, folder: Path) -> dict[str, str]:
    """Compiles `source` into `folder`; returns the environment that loads the library."""
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    assert compiler, "no C++ compiler: install g++ ('apt-get install g++')"
    library = folder / f"{source.stem}.so"
    command = [compiler, "-std=c++20", "-O1", "-shared", "-fPIC", source, "-o", library, "-ldl"]
    subprocess.run(command, check=True, timeout=DEADLINE_SECONDS)
    # Programs built with AddressSanitizer refuse to start if another library is loaded first.
    return {"LD_PRELOAD": str(library), "ASAN_OPTIONS": "verify_asan_link_order=0"}
