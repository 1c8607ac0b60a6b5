"""The programs, as data: one TOML file each."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROWS = Path(__file__).parents[1] / "rows"
OWN = Path(__file__).parents[1] / "own"


@dataclass(frozen=True)
class Source:
    """A public repository that holds the tests: a commit, and the folders to check out."""

    repository: str
    commit: str
    folders: tuple[str, ...]


@dataclass(frozen=True)
class Reason:
    """Why some cases fail.

    cases: names of cases; `*` stands for any text.
    outside: True if the cases need what rgpu does not offer by design (SASS, private tables).
    """

    cases: tuple[str, ...]
    why: str
    outside: bool = False


@dataclass(frozen=True)
class Program:
    """A program with a test suite.

    name, version: what is tested.
    suite: what the tests are, for the page.
    requires: requirements of pip.  The first is the program with its version.
    tests: arguments of pytest.
    source: the repository of the tests.  None: they are in this project, in `own`/NAME.
    folder: where pytest runs, in the source.
    environment: further variables of the tests; see `prepare.filled`.
    build: variables of pip for a program without a wheel.
    seconds, case_seconds: limits for all cases, and for each.
    """

    name: str
    version: str
    suite: str
    requires: tuple[str, ...]
    tests: tuple[str, ...]
    source: Source | None = None
    folder: str = "."
    environment: dict[str, str] = field(default_factory=dict)
    build: dict[str, str] = field(default_factory=dict)
    seconds: int = 3600
    case_seconds: int = 120
    reasons: tuple[Reason, ...] = ()

    @property
    def own(self) -> Path:
        """The program's folder in this project, which need not exist."""
        return OWN / self.name


def load(path: Path) -> Program:
    """Reads one program; raises ValueError, KeyError or TypeError if the file is not right."""
    row: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    version = row["requires"][0].partition("==")[2]
    if not version:
        raise ValueError(f"{path}: the first requirement must name one version (program==version)")
    source = row.pop("source", None)
    if source is not None:
        source = Source(source["repository"], source["commit"], tuple(source["folders"]))
    reasons = tuple(
        Reason(tuple(r["cases"]), r["why"], r.get("outside", False)) for r in row.pop("reasons", ())
    )
    lists = {key: tuple(row.pop(key)) for key in ("requires", "tests")}
    return Program(name=path.stem, version=version, source=source, reasons=reasons, **lists, **row)


def load_all(names: list[str]) -> list[Program]:
    """Reads the named programs, all if none is named; raises ValueError for an unknown name."""
    known = {path.stem: path for path in sorted(ROWS.glob("*.toml"))}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"no such program: {' '.join(unknown)}; there are {' '.join(known)}")
    return [load(known[name]) for name in names or known]
