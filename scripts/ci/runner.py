"""Runs stages of shell commands side by side, as far as the processors go.

A stage begins when the stages that it needs have passed and enough processors are free. The first
stage that fails ends all others. Each stage writes a log. At the end, also after a failure, a table
says what each stage took. No process that a stage started outlives `run`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# The kernel gives orphans of our descendants to this process, which can then end them.
_PR_SET_CHILD_SUBREAPER = 36
_GRACE_SECONDS = 20.0
_INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_FAILED_LINES = 400
# The kernel schedules idle tasks where nobody else wants the processor. Some kernels share the
# processor among sessions first; there the session gets the least weight.
_IDLE = "chrt --idle --pid 0 $$ >/dev/null\necho 19 2>/dev/null >/proc/self/autogroup || true\n"


@dataclass(frozen=True)
class Stage:
    """Shell commands that pass or fail together.

    after: the stages that must have passed before. processors: how many the stage keeps busy. idle:
    the stage takes only what all others leave, so it needs no free processor. shown: how many last
    lines of its log are printed when it has passed.
    """

    name: str
    commands: str
    after: tuple[str, ...] = ()
    processors: int = 1
    idle: bool = False
    shown: int = 1


@dataclass
class Outcome:
    """What became of a stage. began: seconds after the run began."""

    stage: Stage
    result: str = "not begun"
    began: float = 0.0
    wall: float = 0.0
    cpu: float = 0.0


@dataclass
class Run:
    """One run of stages. logs: the folder of their logs. environment: what their shells get."""

    stages: Sequence[Stage]
    logs: Path
    environment: Mapping[str, str]
    processors: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))

    def __post_init__(self) -> None:
        _check(self.stages)
        self._outcomes = {stage.name: Outcome(stage) for stage in self.stages}
        self._running: dict[int, Outcome] = {}
        self._start = 0.0

    def run(self) -> bool:
        """Runs all stages; returns whether all passed. A signal ends them as a failure does."""
        shutil.rmtree(self.logs, ignore_errors=True)
        self.logs.mkdir(parents=True)
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        # `_wait` takes these, so that none can arrive while a stage begins or is noted.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, *_INTERRUPTS})
        self._start = time.monotonic()
        busy = _busy_seconds()
        try:
            passed = self._run_all()
        finally:
            self._end_all()
        self._print_table(_busy_seconds() - busy)
        return passed

    def _run_all(self) -> bool:
        """Begins stages and waits for them, until all have passed or one has failed."""
        while True:
            for outcome in self._ready():
                self._begin(outcome)
            if not self._running:
                return True
            if self._wait() in _INTERRUPTS:
                self._say("interrupted")
                return False
            judged = [self._judge(*ended) for ended in self._reap()]
            if not all(judged):
                return False

    def _ready(self) -> list[Outcome]:
        """Returns the stages that can begin now, the first ones first."""
        free = self.processors - sum(_needs(outcome.stage) for outcome in self._running.values())
        ready = []
        for outcome in self._outcomes.values():
            stage = outcome.stage
            if outcome.result != "not begun" or not self._have_passed(stage.after):
                continue
            # A stage that wants more processors than there are begins when it has all of them.
            wanted = min(_needs(stage), self.processors)
            if wanted <= free:
                ready.append(outcome)
                free -= wanted
            elif not stage.idle:
                # What comes later in the list waits too, or this stage might never find room.
                free = 0
        return ready

    def _have_passed(self, names: Sequence[str]) -> bool:
        return all(self._outcomes[name].result == "passed" for name in names)

    def _begin(self, outcome: Outcome) -> None:
        stage = outcome.stage
        log = self._log(stage)
        with log.open("wb") as file:
            process = subprocess.Popen(
                ["bash", "-euo", "pipefail", "-c", (_IDLE if stage.idle else "") + stage.commands],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=self.environment,
                start_new_session=True,
                preexec_fn=_unblock,
            )
        # os.wait4 gets its status, and Popen would look for it again.
        process.returncode = 0
        outcome.result = "running"
        outcome.began = time.monotonic()
        self._running[process.pid] = outcome
        self._say(f"{stage.name}: begins ({log})")

    def _wait(self) -> int:
        """Waits until a child has ended or a signal asks for the end; returns the signal."""
        return signal.sigwait({signal.SIGCHLD, *_INTERRUPTS})

    def _judge(self, outcome: Outcome, code: int) -> bool:
        """Notes and prints how a stage ended; returns whether it passed."""
        stage = outcome.stage
        outcome.result = "passed" if code == 0 else "FAILED"
        took = f"{outcome.wall:.0f} s, {outcome.cpu:.0f} s of processor time"
        lines = self._log(stage).read_text(errors="replace").splitlines()
        if code == 0:
            self._say(f"{stage.name}: passed ({took})", *lines[-stage.shown :])
        else:
            said = f"{stage.name}: FAILED with exit status {code} ({took}); its log ends so:"
            self._say(said, *lines[-_FAILED_LINES:], f"== {stage.name} FAILED")
        return code == 0

    def _end_all(self) -> None:
        """Ends the stages that still run, and whatever an ended one has left behind."""
        for pid, outcome in self._running.items():
            outcome.result = "ended"
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGINT)
        deadline = time.monotonic() + _GRACE_SECONDS
        while self._running and time.monotonic() < deadline:
            self._reap()
            time.sleep(0.05)
        while children := _children():
            for pid in children:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._reap()
            time.sleep(0.01)

    def _reap(self) -> list[tuple[Outcome, int]]:
        """Takes the status of each child that has ended; returns the stages among them."""
        ended = []
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return ended
            if pid == 0:
                return ended
            outcome = self._running.pop(pid, None)
            if outcome is not None:
                outcome.wall = time.monotonic() - outcome.began
                outcome.cpu = usage.ru_utime + usage.ru_stime
                ended.append((outcome, os.waitstatus_to_exitcode(status)))

    def _print_table(self, busy: float) -> None:
        wall = time.monotonic() - self._start
        rows = [("stage", "result", "began", "seconds", "processor seconds")]
        for outcome in self._outcomes.values():
            began = f"{outcome.began - self._start:.0f}" if outcome.began else ""
            figures = (began, f"{outcome.wall:.0f}", f"{outcome.cpu:.0f}")
            rows.append((outcome.stage.name, outcome.result, *figures))
        share = busy / (wall * (os.cpu_count() or 1))
        rows.append(("all", "", "0", f"{wall:.0f}", f"{busy:.0f} ({share:.0%} of the machine)"))
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        print()
        for name, result, began, seconds, cpu in rows:
            print(f"{name:<{widths[0]}}  {result:<{widths[1]}}  {began:>5}  {seconds:>7}  {cpu}")
        sys.stdout.flush()

    def _log(self, stage: Stage) -> Path:
        return self.logs / f"{stage.name}.log"

    def _say(self, first: str, *lines: str) -> None:
        elapsed = int(time.monotonic() - self._start)
        print(f"== {elapsed // 60:02}:{elapsed % 60:02} {first}", *lines, sep="\n", flush=True)


def select(stages: Sequence[Stage], names: Sequence[str], only: bool = False) -> list[Stage]:
    """Returns the named stages and all that they need, in the order of the list.

    only: without what they need, which has passed in a run before.

    Raises:
        ValueError: there is no such stage.
    """
    by_name = {stage.name: stage for stage in stages}
    if unknown := sorted(set(names) - set(by_name)):
        raise ValueError(f"there is no stage {unknown[0]}; there are {', '.join(by_name)}")
    wanted: set[str] = set()
    left = list(names)
    while left:
        name = left.pop()
        if name not in wanted:
            wanted.add(name)
            left += () if only else by_name[name].after
    return [
        replace(stage, after=tuple(name for name in stage.after if name in wanted))
        for stage in stages
        if stage.name in wanted
    ]


def _check(stages: Sequence[Stage]) -> None:
    """Raises ValueError unless each stage needs only stages that stand before it."""
    before: set[str] = set()
    for stage in stages:
        if stage.name in before:
            raise ValueError(f"two stages are called {stage.name}")
        if later := [name for name in stage.after if name not in before]:
            raise ValueError(f"stage {stage.name} needs {later[0]}, which does not stand before it")
        before.add(stage.name)


def _needs(stage: Stage) -> int:
    return 0 if stage.idle else stage.processors


def _children() -> list[int]:
    text = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return [int(word) for word in text.split()]


def _busy_seconds() -> float:
    """Returns the time that the processors of this machine have computed since it started."""
    words = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _idle, _iowait, irq, softirq = (int(word) for word in words[:7])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def _unblock() -> None:
    """Lets a stage's shell get the signals that the runner has blocked for itself."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD, *_INTERRUPTS})
