"""What came of each part's last run: a committed file, and the page that is written from it."""

from __future__ import annotations

import fcntl
import json
import re
import subprocess
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from soak.parts import Part

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "reference" / "soak.json"
PAGE = ROOT / "docs" / "reference" / "soak.md"
# What is built, and what a part runs besides. `make compat` writes its results there.
PRODUCT = (
    "rgpu_client", "rgpu_server", "rgpu_cluster", "rgpu_emu", "rgpu_common", "netprobe", "cudaspec",
    "protos", "CMakeLists.txt",
)  # fmt: skip
TESTED = (
    *PRODUCT, "pyproject.toml", "tests", "fuzz", "benchmarks", ":!*.md",
    ":!tests/compat/results.json",
)  # fmt: skip
PASSED, FAILED, ENDED = "passed", "failed", "ended by its deadline"
CHANGES = "+changes"
INTRO = """# Long runs

For those who release rgpu, and for those who ask how long it was tried. `make soak` runs what takes
too long for every change, in parts. `make soak PARTS="cluster-kills fuzz-ring"` runs some, and
`make soak PARTS=--list` shows each with its last run. The command writes this page.

*Commit* is the last one that changed the product or its tests; `+changes` says that the tree had
others. *Load* is that of the machine when the run began, and *seen* what the run said at its end.
Counts are environment variables; a value that the caller sets goes before the part's.
"""
HEADER = (
    "| part | what it repeats | counts | last run | commit | seconds | load | result | seen |",
    "| -- | -- | -- | -- | -- | -- | -- | -- | -- |",
)


@dataclass(frozen=True)
class Run:
    """A run of a part. at: when it began, as ISO 8601. load: of the machine, then."""

    at: str
    commit: str
    counts: Mapping[str, int]
    seconds: int
    load: float
    result: str
    seen: str


@dataclass(frozen=True)
class Release:
    """The newest tag, and when its commit was made, as ISO 8601."""

    name: str
    at: str


@dataclass
class Results:
    """The last run of each part, and the newest release that git knew of."""

    runs: dict[str, Run] = field(default_factory=dict)
    release: Release | None = None

    def due(self, part: Part) -> str:
        """Returns why a part must run again, in words; nothing: its last run stands."""
        run = self.runs.get(part.name)
        if run is None:
            return "never ran"
        if run.result != PASSED:
            return run.result
        if CHANGES in run.commit:
            return "ran with changes that are in no commit"
        if any(run.counts.get(name, 0) < count for name, count in part.counts.items()):
            return "ran with smaller counts"
        if self.release and _time(run.at) < _time(self.release.at):
            return f"is older than {self.release.name}"
        return ""

    def page(self, parts: Sequence[Part]) -> str:
        """Returns the page in Markdown."""
        newest = f"was {self.release.name}" if self.release else "is still to come"
        due = [f"- `{part.name}` {why}" for part in parts if (why := self.due(part))]
        lines = [INTRO, "## Due", "", f"The newest release {newest}.", ""]
        lines += due or ["Every part has passed since then."]
        lines += ["", "## Last runs", "", *HEADER]
        lines += [_row(part, self.runs.get(part.name)) for part in parts]
        return "\n".join(lines) + "\n"

    @classmethod
    def loaded(cls) -> Results:
        """Reads what is kept. Without a file nothing ran."""
        kept: dict[str, Any] = json.loads((RESULTS.exists() and RESULTS.read_text()) or "{}")
        release = kept.get("release")
        runs = {name: Run(**run) for name, run in kept.get("runs", {}).items()}
        return cls(runs, Release(**release) if release else None)

    def text(self) -> str:
        """Returns the file's text."""
        kept = {
            "release": self.release and asdict(self.release),
            "runs": {name: asdict(run) for name, run in self.runs.items()},
        }
        return json.dumps(kept, indent=2, sort_keys=True) + "\n"


@contextmanager
def changed(parts: Sequence[Part]) -> Iterator[Results]:
    """Yields what is kept, and writes it and the page at the end.

    Runs of other parts may end at the same time, so only one has the file.
    """
    with RESULTS.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        results = Results.loaded()
        # A shallow clone knows no release.
        results.release = newest_release() or results.release
        yield results
        RESULTS.write_text(results.text())
        PAGE.write_text(results.page(parts))


def newest_release() -> Release | None:
    """Returns the newest tag before this commit. None: git knows none."""
    name = _git("describe", "--tags", "--abbrev=0")
    return Release(name, _git("log", "-1", "--format=%cI", name)) if name else None


def commit() -> str:
    """Returns the last commit that changed the product or its tests, and whether others did."""
    last = _git("log", "-1", "--format=%h", "--abbrev=12", "--", *TESTED)
    unknown = not last or _git("status", "--porcelain", "--", *TESTED)
    return with_changes(last) if unknown else last


def with_changes(name: str) -> str:
    """Returns how a tree is named that differs from a commit."""
    return name.removesuffix(CHANGES) + CHANGES


def not_installed() -> str:
    """Returns why the installed rgpu is not this tree's, in words; nothing: it is."""
    again = "install this tree again (`python -m pip install '.[test]'`)"
    try:
        installed = version("rgpu-cuda")
    except PackageNotFoundError:
        return f"rgpu is not installed; {again}"
    name = re.search(r"\+g([0-9a-f]+)", installed)
    then = name[1] if name else f"v{installed}"
    if re.search(r"\.d\d{8}$", installed):
        return f"rgpu {installed} has changes that are in no commit; commit them and {again}"
    if not _git("rev-parse", "--verify", "--quiet", f"{then}^{{commit}}"):
        return f"rgpu {installed} is installed, and git does not know its commit; {again}"
    if _git("diff", "--name-only", then, "HEAD", "--", *PRODUCT):
        return f"rgpu {installed} is installed, and its code has changed since; {again}"
    return ""


def age(run: Run) -> str:
    """Returns how long ago a run was, in words."""
    ago = datetime.now(timezone.utc) - _time(run.at)
    if ago < timedelta(hours=1):
        return f"{ago // timedelta(minutes=1)} min ago"
    if ago < timedelta(days=2):
        return f"{ago // timedelta(hours=1)} h ago"
    return f"{ago.days} days ago"


def counts_in_words(counts: Mapping[str, int]) -> str:
    return ", ".join(f"`{name}={count}`" for name, count in sorted(counts.items()))


def _row(part: Part, run: Run | None) -> str:
    counts = counts_in_words(run.counts if run else part.counts)
    told = ["", "", "", "", "never ran", ""]
    if run:
        at = _time(run.at).strftime("%Y-%m-%d %H:%M")
        # Mdformat leaves code as it is.
        seen = f"`{run.seen}`".replace("|", "\\|") if run.seen else ""
        told = [at, f"`{run.commit}`", f"{run.seconds:,}", f"{run.load:.1f}", run.result, seen]
    return f"| {' | '.join([f'`{part.name}`', part.title, counts, *told])} |"


def _time(at: str) -> datetime:
    return datetime.fromisoformat(at)


def _git(*words: str) -> str:
    """Returns what git says; nothing, if it fails or there is no git."""
    try:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, timeout=60)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
