"""Runs the suite of one program over the wire, with a server of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from compat.runner import prepare
from compat.runner.rows import Program
from helpers.command import rgpu_command
from helpers.server import Server

RECORDER = Path(__file__).parent / "recorder.py"
# A process that died in a case is replaced, so the others run.
PYTEST = ("-q", "--numprocesses=1", "--max-worker-restart=10000", "--timeout-method=thread",
          "-p", "no:cacheprovider", "--color=no")  # fmt: skip
MEMORY = "4GiB"
# For tests in this project: its own settings of pytest are not for them.
ALONE = ("-c", os.devnull, "--rootdir=.", "--confcutdir=.")
SECONDS_BETWEEN_LINES = 30.0


def run(program: Program, device: str, folder: Path) -> None:
    """Runs all cases.

    Leaves in `folder`: reports.jsonl (see `recorder`), and what suite and server printed.  A suite
    past its limit is ended.  The cases that it did not reach are in no report, and neither is the
    last line, which says that all are.
    """
    interpreter = prepare.python(program)
    tests = prepare.tests(program)
    folder.mkdir(parents=True, exist_ok=True)
    record = folder / "reports.jsonl"
    record.write_text("")
    with Server(device=device) as server, (folder / "output").open("w") as output:
        process = subprocess.Popen(
            _command(program, server.unix, interpreter),
            cwd=tests,
            env=_environment(program, interpreter, tests, record),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            _watch(process, program, record)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            (folder / "server").write_text("".join(server.log))


def _command(program: Program, server: str, interpreter: Path) -> list[str]:
    pytest = [*PYTEST, *([] if program.source else ALONE), f"--timeout={program.case_seconds}"]
    pytest += ["-p", RECORDER.stem, *program.tests]
    run = [rgpu_command(), "run", "--server", server, "--memory", MEMORY, "--"]
    return [*run, str(interpreter), "-m", "pytest", *pytest]


def _environment(program: Program, interpreter: Path, tests: Path, record: Path) -> dict[str, str]:
    """Returns the caller's variables without those of Python, pytest and rgpu, and the program's."""
    own = {
        name: text
        for name, text in os.environ.items()
        if not name.startswith(("PYTEST_", "PYTHON", "RGPU_", "VIRTUAL_ENV"))
    }
    # The plugin alone, not the folder that it lies in: that one's modules have common names.
    plugin = record.parent / "plugin"
    plugin.mkdir(exist_ok=True)
    (plugin / RECORDER.name).write_text(RECORDER.read_text())
    return {
        **own,
        "PYTHONPATH": f"{plugin}:{program.own}:{tests}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "RGPU_COMPAT_RECORD": str(record),
        **prepare.filled(program, interpreter, program.environment),
    }


def _watch(process: subprocess.Popen[bytes], program: Program, record: Path) -> None:
    """Waits for the suite, at most its limit, and says how far it is."""
    until = time.monotonic() + program.seconds
    for _ in _ticks(process, until):
        print(f"{program.name}: {_lines(record)} cases done", flush=True)
    if process.poll() is None:
        print(f"{program.name}: ended after its limit of {program.seconds} s", flush=True)


def _ticks(process: subprocess.Popen[bytes], until: float) -> Iterator[None]:
    while (left := until - time.monotonic()) > 0:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(min(left, SECONDS_BETWEEN_LINES))
            return
        yield


def _lines(record: Path) -> int:
    return record.read_bytes().count(b"\n")
