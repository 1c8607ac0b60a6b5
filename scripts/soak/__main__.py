"""`python -m soak [--list] [--due] [PART...]`, in the folder `scripts`: runs long parts.

A part is a name or a pattern, as `fuzz-*`; without any, all parts run, which takes more than a day.
Outputs lie in `build/soak`. The exit status is 1 if a part did not pass or could not run.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from soak import parts, results
from soak.results import ENDED, FAILED, PASSED, ROOT, Run

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from soak.parts import Part

LOGS = ROOT / "build" / "soak"
SECONDS_BETWEEN_LINES = 60.0
# What a part has after each signal to end its servers.
SECONDS_TO_END = 30.0
LINES_OF_A_FAILURE = 30
# The load of a machine without other work, when a part begins.
QUIET_LOAD = 0.5


def main() -> int:
    options = _options()
    try:
        chosen = parts.chosen(options.parts)
    except ValueError as error:
        print(f"make soak: {error}", file=sys.stderr)
        return 2
    if options.list:
        _list(chosen)
        return 0
    if options.page:
        with results.changed(parts.PARTS):
            return 0
    if wrong := results.not_installed():
        print(f"make soak: {wrong}", file=sys.stderr)
        return 2
    if options.due:
        kept = results.Results.loaded()
        chosen = [part for part in chosen if kept.due(part)]
    # A shell that starts this in the background has it ignore SIGINT, and so would the parts.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        passed = [_part(part) for part in chosen]
    except KeyboardInterrupt:
        print("make soak: interrupted; nothing is kept of the part that ran", file=sys.stderr)
        return 130
    print(f"{sum(passed)} of {len(passed)} parts passed")
    return 0 if all(passed) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help="names or patterns; all if none")
    parser.add_argument("--list", action="store_true", help="show the parts and their last runs")
    parser.add_argument("--due", action="store_true", help="run only the parts that are due")
    parser.add_argument("--page", action="store_true", help="write the page, and run nothing")
    return parser.parse_args()


def _list(chosen: Sequence[Part]) -> None:
    kept = results.Results.loaded()
    for part in chosen:
        run, due, lacks = kept.runs.get(part.name), kept.due(part), part.lacks()
        told = [f"{results.age(run)}, {run.commit}, {run.seconds} s: {run.result}"] if run else []
        told += [f"due: {due}"] if due else []
        told += [f"this machine lacks {lacks}"] if lacks else []
        print(f"{part.name:24} about {part.minutes:2} min  {'; '.join(told)}")


def _part(part: Part) -> bool:
    """Runs a part and keeps its result; False if it did not pass."""
    if lacks := part.lacks():
        print(f"{part.name}: not run, because this machine lacks {lacks}", flush=True)
        return False
    counts = counts_of(part, os.environ)
    told = results.counts_in_words(counts) or "no counts"
    print(f"{part.name}: {part.title}; {told}", flush=True)
    log = LOGS / f"{part.name}.log"
    run = run_part(part, counts, log, part.deadline_seconds)
    with results.changed(parts.PARTS) as kept:
        kept.runs[part.name] = run
    if run.result != PASSED:
        lines = log.read_text(errors="replace").splitlines()
        print("\n".join(lines[-LINES_OF_A_FAILURE:]))
    seen = run.seen or "no counts seen"
    print(f"{part.name}: {run.result} after {run.seconds} s: {seen} ({log})", flush=True)
    return run.result == PASSED


def counts_of(part: Part, environment: Mapping[str, str]) -> dict[str, int]:
    """Returns how often a run repeats: what the caller has set goes before what the part asks."""
    return {name: int(environment.get(name, count)) for name, count in part.counts.items()}


def run_part(part: Part, counts: Mapping[str, int], log: Path, most_seconds: float) -> Run:
    """Runs a part's command, at most so long, with its output in `log`."""
    began, before, load = datetime.now(timezone.utc), results.commit(), os.getloadavg()[0]
    start = time.monotonic()
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as output, _started(part, counts, output.fileno()) as process:
        in_time = _watch(process, part, log, most_seconds)
    seconds = round(time.monotonic() - start)
    seen = part.seen(log.read_text(errors="replace"))
    result = ENDED if not in_time else PASSED if process.returncode == 0 and seen else FAILED
    if part.judged and load > QUIET_LOAD and seen:
        seen += ", which says nothing: the machine had other work"
    at = began.isoformat(timespec="seconds")
    # A tree that changes meanwhile is no commit.
    found = before if before == results.commit() else results.with_changes(before)
    return Run(at, found, dict(counts), seconds, round(load, 1), result, seen)


@contextlib.contextmanager
def _started(
    part: Part, counts: Mapping[str, int], output: int
) -> Iterator[subprocess.Popen[bytes]]:
    """The command as a process group of its own, which has ended at the end."""
    told = {name: str(count) for name, count in counts.items()}
    places = {"python": sys.executable, "venv": sys.prefix, **told}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    process = subprocess.Popen(
        [word.format(**places) for word in part.command],
        cwd=ROOT / part.folder, env={**os.environ, "PATH": path, **told},
        stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        end_group(process)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Ends a process and its group. The process is asked first, so that tests end their servers."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if process.poll() is None:
            os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(SECONDS_TO_END)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _watch(process: subprocess.Popen[bytes], part: Part, log: Path, most_seconds: float) -> bool:
    """Waits for the process, says how far it is, and returns whether it ended in time."""
    start = time.monotonic()
    while (left := start + most_seconds - time.monotonic()) > 0:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(min(left, SECONDS_BETWEEN_LINES))
            return True
        minutes = round((time.monotonic() - start) / 60)
        print(f"{part.name}: {minutes} min of about {part.minutes}; {_last_line(log)}", flush=True)
    return False


def _last_line(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(file.seek(0, os.SEEK_END) - 4096, 0))
        lines = file.read().decode(errors="replace").split("\n")
    return next((line.strip()[-100:] for line in reversed(lines) if line.strip()), "no output yet")


if __name__ == "__main__":
    sys.exit(main())
