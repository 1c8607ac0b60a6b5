"""Every implemented function, called with bad arguments alone and in pairs, returns the CUresult
that `argument_codes.txt` has. RGPU_UPDATE_GOLDENS=1 writes that file.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from helpers import arguments, clients
from helpers.server import Server

CODES = Path(__file__).parent / "argument_codes.txt"
WITH, WITHOUT = "with a context", "without a context"


@pytest.fixture(scope="module")
def codes() -> dict[str, dict[str, list[int]]]:
    """The codes of all cases, by function and by presence of a current context."""
    with Server(device="emulated:1GiB") as server:
        code, output, errors = clients.run(
            server.address("unix"), "from helpers import arguments\narguments.main()"
        )
    assert code == 0, errors
    found: dict[str, dict[str, list[int]]] = {}
    for line in output.splitlines():
        found |= json.loads(line)
    return {
        name: {WITH: both["True"], WITHOUT: both["False"]} for name, both in sorted(found.items())
    }


def _recorded() -> dict[str, list[int]]:
    """Returns the file's codes: `NAME, PRESENCE: CODE*TIMES CODE*TIMES ...`."""
    recorded = {}
    for line in CODES.read_text(encoding="utf-8").splitlines():
        key, _, runs = line.partition(": ")
        recorded[key] = [
            int(code)
            for run in runs.split()
            for code, _, times in [run.partition("*")]
            for _ in range(int(times or "1"))
        ]
    return recorded


def _line(key: str, values: list[int]) -> str:
    runs: list[list[int]] = []
    for value in values:
        if runs and runs[-1][0] == value:
            runs[-1][1] += 1
        else:
            runs.append([value, 1])
    text = " ".join(f"{code}*{times}" if times > 1 else f"{code}" for code, times in runs)
    return f"{key}: {text}\n"


def test_every_bad_argument_gets_its_code(codes: dict[str, dict[str, list[int]]]) -> None:
    now = {f"{name}, {key}": list_ for name, both in codes.items() for key, list_ in both.items()}
    if os.environ.get("RGPU_UPDATE_GOLDENS") == "1":
        CODES.write_text("".join(_line(*item) for item in now.items()), encoding="utf-8")
    recorded, calls = _recorded(), arguments.functions()
    assert set(recorded) == set(now)
    changed = [
        f"{key}({', '.join(case)}): {before}, now {after}"
        for key, list_ in now.items()
        for case, before, after in zip(
            arguments.cases(calls[key.partition(",")[0]]), recorded[key], list_, strict=True
        )
        if before != after
    ]
    assert not changed, "\n".join(changed)


def test_before_init_every_function_says_so() -> None:
    code, output, errors = clients.run(
        None, "from helpers import arguments\narguments.without_init()"
    )
    assert code == 0, errors
    answers = dict(line.split() for line in output.splitlines())
    early = {name for name, call in arguments.functions().items() if call.row.early}
    assert {name for name, answer in answers.items() if answer != "3"} == early - {"cuInit"}
