"""The runs in the background of this user on this machine, as files: what they are, how they ended,
and what they have printed.

A run has a folder with its record, its output, and the older half of a long output. The folder is
below $XDG_STATE_HOME/rgpu/runs, by default ~/.local/state/rgpu/runs, and only its user can read it.
Several machines may share a home folder; each one knows its own runs.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from netprobe.identity import read_boot_id
from rgpu_client.program import BACKGROUND
from rgpu_common.clusters import begins_id
from rgpu_common.errors import RgpuError, UsageError
from rgpu_common.texts import may_be

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

# Records and outputs of runs that have ended are kept so long, and of so many runs.
KEPT_SECONDS = 7 * 86400.0
MOST_KEPT = 100
# What `rgpu ps --all` shows of those that have ended, and of leases.
SHOWN_SECONDS = 3600.0
_RECORD, _OUTPUT, _OLDER = "run.json", "output", "output.0"
_ID = re.compile(r"run-[0-9a-f]{12}")
# What the key of a lease of a run has behind the run's id: what a manager's request adds to it, and
# the number of a further card.
_BEHIND_ID = re.compile(r"([0-9a-f]{20})?(\.[0-9]+)?")
# In /proc/PID/stat, counted from what is behind the program's name.
_SESSION, _STARTTIME = 3, 19


class Run(NamedTuple):
    """A run in the background.

    pid: its `rgpu run`, then its program; 0: it was not started yet. supervisor: the process that
    keeps its output. began, ended: seconds since 1970; ended 0.0: it has not. status: its exit code
    as a shell has it. lost: its supervisor was killed, so nobody knows how it ended. machine: the
    name of its machine. boot: what tells whose numbers pid and supervisor are. since: when its
    supervisor began, in the kernel's ticks; a later process may get the same number. alone: its
    supervisor was killed, and its processes run on.
    """

    id: str
    name: str
    words: tuple[str, ...] = ()
    pid: int = 0
    supervisor: int = 0
    began: float = 0.0
    ended: float = 0.0
    status: int = 0
    lost: bool = False
    machine: str = ""
    boot: str = ""
    since: int = 0
    alone: bool = False

    @property
    def over(self) -> bool:
        """Whether it has ended, as far as anybody knows."""
        return bool(self.ended) or self.lost

    def has_lease(self, key: str) -> bool:
        """Returns whether a key is that of a lease which the run has made for itself."""
        rest = key.removeprefix(self.id)
        return rest != key and _BEHIND_ID.fullmatch(rest) is not None

    def supervised(self) -> Run:
        """Returns it with this process as its supervisor."""
        return self._replace(supervisor=os.getpid(), since=_since(os.getpid()) or 0)

    @property
    def state(self) -> str:
        """Returns its state in a few words."""
        if self.lost:
            return "lost: its supervisor was killed"
        if self.alone:
            return "running: its supervisor was killed"
        if not self.ended:
            return "running"
        return f"exited ({self.status})"


class Store:
    """The runs of this user on this machine."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        home = environment.get("HOME") or os.path.expanduser("~")
        state = environment.get("XDG_STATE_HOME", "")
        if not os.path.isabs(state):  # it means none, as the XDG specification says
            state = os.path.join(home, ".local", "state")
        self._folder = Path(state) / "rgpu" / "runs"

    def new(self, name: str, words: Sequence[str]) -> Run:
        """Makes the record of a run, of which this process is the first supervisor; RgpuError: its
        folder cannot be made.
        """
        run = Run(f"run-{secrets.token_hex(6)}", name, tuple(words), began=time.time(),
                  machine=os.uname().nodename, boot=_boot()).supervised()  # fmt: skip
        if not self._folder.is_absolute():
            raise RgpuError("you have no home folder: name a folder with XDG_STATE_HOME")
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._is_own():
                raise RgpuError(
                    f"{self._folder} belongs to another user, or others can write there; name "
                    "another folder with XDG_STATE_HOME"
                )
            self.folder(run).mkdir(mode=0o700)
            self.output(run).touch(mode=0o600)
            self.write(run)
        except OSError as error:
            raise RgpuError(
                f"{self._folder} cannot be written: {error.strerror}; name another folder with "
                "XDG_STATE_HOME"
            ) from None
        return run

    def _is_own(self) -> bool:
        """Returns whether only this user can have written what is in the folder. OSError."""
        found = os.stat(self._folder)
        return found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)

    def folder(self, run: Run) -> Path:
        """Returns the folder of a run."""
        return self._folder / run.id

    def output(self, run: Run) -> Path:
        """Returns the file with what it printed last."""
        return self.folder(run) / _OUTPUT

    def older(self, run: Run) -> Path:
        """Returns the file with what it printed before, if that was much."""
        return self.folder(run) / _OLDER

    def write(self, run: Run) -> None:
        """Replaces the record of a run; OSError."""
        record = self.folder(run) / _RECORD
        new = record.with_suffix(".new")
        new.touch(mode=0o600)
        new.write_text(json.dumps(run._asdict()), encoding="utf-8")
        os.replace(new, record)

    def read(self, run: str) -> Run | None:
        """Returns the run of this id; None: this machine has none."""
        known = self._known(run)
        if known is None or known.ended or _lives(known):
            return known
        # It may have ended just now; then its record says how.
        known = self._known(run) or known
        if known.ended:
            return known
        return known._replace(alone=True) if processes_of(known) else known._replace(lost=True)

    def _known(self, run: str) -> Run | None:
        """Returns what is written of a run of this machine."""
        if not _ID.fullmatch(run):
            return None
        try:
            if not self._is_own():
                return None
            found = json.loads((self._folder / run / _RECORD).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        known = _run_of(found)
        here = known is not None and known.id == run and known.machine == os.uname().nodename
        return known if here else None

    def all(self) -> list[Run]:
        """Returns all runs, the oldest first."""
        names = []
        with contextlib.suppress(OSError):
            names = os.listdir(self._folder)
        runs = (self.read(name) for name in names)
        return sorted((run for run in runs if run is not None), key=lambda run: run.began)

    def find(self, text: str) -> Run | None:
        """Returns the run that the user means: by its id, its name, or how its id begins. Of
        several with one name it is the one that runs, else the newest. None: there is none.

        Raises:
            UsageError: it may be one of several.
        """
        runs = [run for run in self.all() if text]
        ended = [run for run in runs if run.name == text and run.over]
        rules: tuple[Callable[[Run], bool], ...] = (
            lambda run: run.has_lease(text),
            lambda run: run.name == text and not run.over,
            lambda run: run in ended[-1:],
            lambda run: begins_id(run.id, text),
        )
        for rule in rules:
            found = [run for run in runs if rule(run)]
            if len(found) > 1:
                raise UsageError(may_be(text, [f"{run.name} ({run.id})" for run in found]))
            if found:
                return found[0]
        return None

    def namesakes(self, run: Run) -> int:
        """Returns how many runs have the name of this one."""
        return sum(one.name == run.name for one in self.all())

    def clean(self, now: float) -> None:
        """Removes what is left of runs that ended long ago, or that are too many."""
        ended = [run for run in self.all() if run.over]
        old = [run for run in ended if max(run.ended, run.began) < now - KEPT_SECONDS]
        for run in {*old, *ended[: max(len(ended) - MOST_KEPT, 0)]}:
            shutil.rmtree(self.folder(run), ignore_errors=True)

    def printed(self, run: Run) -> Iterator[bytes]:
        """Yields what a run has printed, as far as it is kept."""
        for file in (self.older(run), self.output(run)):
            with contextlib.suppress(OSError):
                yield file.read_bytes()


def _run_of(record: Any) -> Run | None:
    """Returns what `Store.write` wrote, perhaps of another release; None for anything else."""
    if not isinstance(record, dict):
        return None
    kinds = {"id": str, "name": str, "words": list, "pid": int, "supervisor": int, "began": float,
             "ended": float, "status": int, "lost": bool, "machine": str, "boot": str,
             "since": int}  # fmt: skip
    known = {name: record[name] for name, kind in kinds.items() if type(record.get(name)) is kind}
    if not known.get("id"):
        return None
    known["words"] = tuple(map(str, known.get("words", ())))
    return Run(**{"name": "", **known})


def _boot() -> str:
    """Returns what tells the processes of this machine, or container, from all that ever were."""
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    return f"{read_boot_id()} {namespace}"


def _lives(run: Run) -> bool:
    """Returns whether a run's supervisor still runs."""
    return run.boot == _boot() and run.since == _since(run.supervisor)


def _since(pid: int) -> int | None:
    """Returns when a process began; None: there is none."""
    words = _stat(pid)
    return None if words is None else words[_STARTTIME]


def _stat(pid: int) -> list[int] | None:
    """Returns what /proc/PID/stat says behind the program's name, the state as its letter's number;
    None: there is no such process.
    """
    try:
        # The program's name is in parentheses, and may have some itself.
        state, *words = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return [ord(state), *map(int, words)]
    except (OSError, ValueError, TypeError):
        return None


def processes_of(run: Run) -> list[int]:
    """Returns the processes of a run by its id in their environment, which the first of them got
    from the supervisor. Those that have left its session do not count: they may be other runs.
    """
    if run.boot != _boot():
        return []
    mark = f"{BACKGROUND}={run.id}".encode()
    return [
        pid
        for pid in map(int, filter(str.isdecimal, os.listdir("/proc")))
        if (words := _stat(pid)) is not None
        and words[_SESSION] == (run.pid or words[_SESSION])
        and mark in _environment(pid)
    ]


def _environment(pid: int) -> list[bytes]:
    """Returns the variables that a process was started with; none if it has ended, or is another
    user's.
    """
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def opened(run: Run) -> int | None:
    """Returns a descriptor of a run's supervisor; None: it has ended. OSError."""
    if not _lives(run):
        return None
    try:
        descriptor = os.pidfd_open(run.supervisor)
    except ProcessLookupError:
        return None
    # It may have ended before; from now on its number cannot become another process's unseen.
    if _lives(run):
        return descriptor
    os.close(descriptor)
    return None
