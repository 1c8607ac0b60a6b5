"""`.ci/run [STAGE...]`: what main must always pass, on a clean checkout.

The stages are those of `stages.py`; named ones run with all that they need, and with
--only without it. Logs lie in build/ci/logs.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from runner import Run, select
from stages import STAGES

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "ci"
# Version 2 of control groups has one tree for all controllers.
_CGROUPS = (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup"))


def cache_folder() -> Path:
    """Returns the folder that stays from run to run."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rgpu-ci"


def environment() -> dict[str, str]:
    """Returns what the shells of the stages get."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    compiler_cache = {
        "CCACHE_DIR": str(cache_folder() / "ccache"),
        "CCACHE_MAXSIZE": "3G",
        # An object is found again in another checkout. The compiler is known by its content,
        # because scripts/wheel.py writes the one of the wheel anew.
        "CCACHE_BASEDIR": str(ROOT),
        "CCACHE_NOHASHDIR": "1",
        "CCACHE_COMPILERCHECK": "content",
        # What a file includes is what the compiler says, so that nothing is preprocessed twice.
        "CCACHE_DEPEND": "1",
        "CCACHE_SLOPPINESS": "pch_defines,time_macros,include_file_mtime,include_file_ctime",
        # scripts/wheel.py writes sums of precompiled headers, which hold the checkout's path.
        "CCACHE_PCH_EXTSUM": "1",
        "CMAKE_CXX_COMPILER_LAUNCHER": "ccache",
    }
    return {
        **kept,
        **compiler_cache,
        "WORK": str(WORK),
        "TOOLS": str(WORK / "tools"),
        "VENV": str(WORK / "venv"),
        # The list of what this machine lacks: the stages that find it out append to it.
        "LACKS": str(WORK / "lacks"),
    }


@contextlib.contextmanager
def memory_cgroup() -> Iterator[Path | None]:
    """Makes the control group that tests may write to; yields None where nobody may make one."""
    for parent in _CGROUPS:
        folder = parent / f"rgpu-tests-{os.getpid()}"
        try:
            folder.mkdir()
        except OSError:
            continue
        try:
            yield folder
        finally:
            with contextlib.suppress(OSError):
                folder.rmdir()
        return
    yield None


def main() -> int:
    parser = argparse.ArgumentParser(prog=".ci/run", description=__doc__)
    parser.add_argument("stages", nargs="*", metavar="STAGE", help="by default all")
    parser.add_argument(
        "--only", action="store_true", help="without what they need: a run before has done that"
    )
    parser.add_argument("--list", action="store_true", help="only list the stages")
    asked = parser.parse_args()
    if asked.list:
        print("\n".join(stage.name for stage in STAGES))
        return 0
    try:
        stages = select(STAGES, asked.stages, asked.only) if asked.stages else STAGES
    except ValueError as error:
        parser.error(str(error))
    os.chdir(ROOT)
    WORK.mkdir(parents=True, exist_ok=True)
    with memory_cgroup() as cgroup:
        variables = environment()
        lacks = "" if cgroup else "cgroup\n"
        (WORK / "lacks").write_text(lacks)
        if cgroup:
            variables["RGPU_TEST_CGROUP"] = str(cgroup)
        return 0 if Run(stages, WORK / "logs", variables).run() else 1


if __name__ == "__main__":
    sys.exit(main())
