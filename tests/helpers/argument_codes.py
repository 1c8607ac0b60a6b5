"""Files that have the CUresult of every case of `helpers.arguments`."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from pathlib import Path

from helpers import arguments

Codes = Mapping[str, list[int]]  # by function and presence of a context, in the order of the cases


def compare(path: Path, now: Codes) -> None:
    """Compares the codes with the file's; with RGPU_UPDATE_GOLDENS=1 the file is written first."""
    if os.environ.get("RGPU_UPDATE_GOLDENS") == "1":
        path.write_text("".join(_line(*item) for item in now.items()), encoding="utf-8")
    recorded, calls = _recorded(path), arguments.functions()
    missing = set(recorded) ^ set(now)
    assert not missing, f"only in {path.name} or only called: {sorted(missing)}"
    changed = [
        f"{key}({', '.join(case)}): {before}, now {after}"
        for key, codes in now.items()
        for case, before, after in zip(
            arguments.cases(calls[key.partition(",")[0]]), recorded[key], codes, strict=True
        )
        if before != after
    ]
    assert not changed, "\n".join(changed)


def _recorded(path: Path) -> dict[str, list[int]]:
    """Returns the file's codes: `NAME, PRESENCE: CODE*TIMES CODE*TIMES ...`."""
    recorded = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        key, _, runs = line.partition(": ")
        recorded[key] = [
            int(code)
            for run in runs.split()
            for code, _, times in [run.partition("*")]
            for _ in range(int(times or "1"))
        ]
    return recorded


def _line(key: str, codes: list[int]) -> str:
    runs = [(code, len(list(same))) for code, same in itertools.groupby(codes)]
    text = " ".join(f"{code}*{times}" if times > 1 else f"{code}" for code, times in runs)
    return f"{key}: {text}\n"
