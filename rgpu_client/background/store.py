"""The runs in the background of this user on this machine, as files: what they are, how they ended,
and what they have printed.

A run has a folder with its record, its output, and the older half of a long output. The folder is
below $XDG_STATE_HOME/rgpu/runs, by default ~/.local/state/rgpu/runs, and only its user can read it.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rgpu_common.errors import RgpuError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# Records and outputs of runs that have ended are kept so long, and of so many runs.
KEPT_SECONDS = 7 * 86400.0
MOST_KEPT = 100
# What `rgpu ps --all` shows of those that have ended.
SHOWN_SECONDS = 3600.0
_RECORD, _OUTPUT, _OLDER = "run.json", "output", "output.0"
_MOST_NAMED = 8


class Run(NamedTuple):
    """A run in the background.

    pid: its `rgpu run`, then its program; 0: it was not started yet. supervisor: the process that
    keeps its output. began, ended: seconds since 1970; ended 0.0: it has not. status: its exit code
    as a shell has it. lost: its supervisor was killed, so nobody knows how it ended.
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

    @property
    def state(self) -> str:
        """Returns its state in a few words."""
        if self.lost:
            return "lost: its supervisor was killed"
        if not self.ended:
            return "running"
        return f"exited ({self.status})"


class Store:
    """The runs of this user on this machine."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        home = environment.get("HOME") or os.path.expanduser("~")
        state = environment.get("XDG_STATE_HOME") or os.path.join(home, ".local", "state")
        self._folder = Path(state) / "rgpu" / "runs"

    def new(self, name: str, words: Sequence[str]) -> Run:
        """Makes the record of a run; RgpuError: its folder cannot be made."""
        run = Run(f"run-{secrets.token_hex(6)}", name, tuple(words), began=time.time())
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.folder(run).mkdir(mode=0o700)
            self.output(run).touch(mode=0o600)
            self.write(run)
        except OSError as error:
            raise RgpuError(
                f"{self._folder} cannot be written: {error.strerror}; name another folder with "
                "XDG_STATE_HOME"
            ) from None
        return run

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
        """Returns the run of this id; None: there is none."""
        try:
            found = json.loads((self._folder / run / _RECORD).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        known = _run_of(found)
        if known is not None and not known.ended and not _lives(known.supervisor):
            # It may have ended just now; then its record says how.
            with contextlib.suppress(OSError, ValueError):
                text = (self._folder / run / _RECORD).read_text(encoding="utf-8")
                known = _run_of(json.loads(text)) or known
            return known if known.ended else known._replace(lost=known.supervisor > 0)
        return known

    def all(self) -> list[Run]:
        """Returns all runs, the oldest first."""
        names = []
        with contextlib.suppress(OSError):
            names = os.listdir(self._folder)
        runs = (self.read(name) for name in names)
        return sorted((run for run in runs if run is not None), key=lambda run: run.began)

    def find(self, text: str) -> Run | None:
        """Returns the run that the user means: by its id, its name, or how one of them begins; the
        newest of several with one name. None: there is none.

        Raises:
            UsageError: it may be one of several.
        """
        runs = [run for run in self.all() if text]
        named = [run for run in runs if text in (run.id, run.name)]
        if named:
            return named[-1]
        begins = [run for run in runs if run.id.startswith(text) or run.name.startswith(text)]
        if len({run.name for run in begins}) > 1:
            shown = ", ".join(f"{run.name} ({run.id})" for run in begins[-_MOST_NAMED:])
            raise UsageError(f"{text!r} may be {shown}: name one of them")
        return begins[-1] if begins else None

    def clean(self, now: float) -> None:
        """Removes what is left of runs that ended long ago, or that are too many."""
        ended = [run for run in self.all() if run.ended or run.lost]
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
    kinds = {"id": str, "name": str, "words": list, "pid": int, "supervisor": int,
             "began": float, "ended": float, "status": int, "lost": bool}  # fmt: skip
    known = {name: record[name] for name, kind in kinds.items() if type(record.get(name)) is kind}
    if not known.get("id") or "/" in known["id"]:
        return None
    known["words"] = tuple(map(str, known.get("words", ())))
    return Run(**{"name": "", **known})


def _lives(pid: int) -> bool:
    """Returns whether a supervisor still runs. 0: it has not said yet that it does."""
    if not pid:
        return True
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"rgpu_client.background" in line
