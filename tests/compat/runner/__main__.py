"""`python -m compat.runner [PROGRAM...]`, in the folder `tests`: see `make compat`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from compat.runner import execute, page
from compat.runner.judge import Verdict, judge
from compat.runner.rows import Program, load_all

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "reference" / "compatibility.md"
RESULTS = Path(__file__).parents[1] / "results.json"


def main() -> int:
    """Runs the programs one after the other; 1 if one is not as its row says."""
    options = _options()
    try:
        programs = load_all(options.programs)
    except (ValueError, KeyError, TypeError) as error:
        print(f"make compat: {error}", file=sys.stderr)
        return 2
    wrong = [p.name for p in programs if not _program(p, options)]
    PAGE.write_text(page.replaced(PAGE.read_text(), _results()))
    if wrong:
        print(f"not as their rows say: {' '.join(wrong)}", file=sys.stderr)
    return 1 if wrong else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m compat.runner", description=__doc__)
    parser.add_argument("programs", nargs="*", help="files of rows/, without .toml; all if none")
    parser.add_argument("--device", default="emulated:8GiB", help="device of the servers")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "build" / "compat", help="folder of reports and logs"
    )
    parser.add_argument(
        "--judge", action="store_true", help="judge the reports of the last run, and run nothing"
    )
    return parser.parse_args()


def _program(program: Program, options: argparse.Namespace) -> bool:
    """Runs one program and keeps its result; False if it is not as its row says."""
    folder = options.out / program.name
    if not options.judge:
        print(f"{program.name} {program.version}: {program.suite}", flush=True)
        execute.run(program, options.device, folder)
    verdict = judge(program, _reports(folder / "reports.jsonl"))
    _keep(program, verdict)
    for problem in verdict.problems:
        print(f"{program.name}: {problem}")
    print(
        f"{program.name}: {verdict.passed} passed, {verdict.failed} failed, "
        f"{verdict.skipped} skipped, {len(verdict.problems)} problems",
        flush=True,
    )
    return not verdict.problems


def _reports(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _results() -> dict[str, dict[str, Any]]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def _keep(program: Program, verdict: Verdict) -> None:
    results = {**_results(), program.name: page.summary(program, verdict)}
    RESULTS.write_text(json.dumps(results, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    sys.exit(main())
