"""What an installation weighs, and how long the first import takes."""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from benchmarks.harness import Row, below

_PACKAGE = "rgpu-cuda"
# They are left out of the figure, and their own requirements too.
_LEFT_OUT = frozenset({"numpy", "grpcio"})
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_TIMED = "import time; b = time.perf_counter(); import {}; print(time.perf_counter() - b)"


def installed(rounds: int) -> Iterator[Row]:
    """Rows of bytes on the disk, without compiled Python, and of a fresh process's import."""
    sizes: dict[str, float] = {}
    _weigh(_PACKAGE, sizes)
    for name, size in sizes.items():
        yield Row(f"installed {name}", "MB", size)
    total = sum(sizes.values())
    yield below("base install without NumPy and gRPC", "MB", total, 15)
    numpy, client = [], []
    for _ in range(rounds):
        numpy.append(_import("numpy"))
        client.append(_import("rgpu_client.cupy"))
    value, floor = statistics.median(client), statistics.median(numpy)
    yield below("import rgpu_client.cupy", "s", value, 0.3, floor)


def _weigh(name: str, sizes: dict[str, float]) -> None:
    """Adds a package and what it requires without extras."""
    known = re.sub(r"[-_.]+", "-", name).lower()
    if known in sizes or known in _LEFT_OUT:
        return
    try:
        found = distribution(known)
    except PackageNotFoundError:
        return
    files = [Path(str(one.locate())) for one in found.files or () if one.suffix != ".pyc"]
    sizes[known] = sum(one.stat().st_size for one in files if one.is_file()) / 1e6
    for requirement in found.requires or ():
        if "extra ==" not in requirement:
            matched = _NAME.match(requirement)
            assert matched is not None
            _weigh(matched.group(), sizes)


def _import(module: str) -> float:
    command = [sys.executable, "-c", _TIMED.format(module)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
