"""`rgpu demo`, as a newcomer runs it."""

from __future__ import annotations

import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from rgpu_client.demo import show
from rgpu_common.errors import MissingPartError

RGPU = str(Path(sys.executable).parent / "rgpu")


def test_two_programs_in_two_leases_one_of_which_asks_for_too_much() -> None:
    done = subprocess.run(
        [RGPU, "demo"],
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {line.split()[0]: line for line in done.stdout.splitlines() if "as expected" in line}
    assert sorted(rows) == ["calculate", "overfill"]
    assert "3 of 3 right" in rows["calculate"]
    assert "2 of 2 right" in rows["overfill"]
    assert "NOT as expected" not in done.stdout
    *_, serve, run, top = done.stdout.splitlines()
    assert serve.startswith("  rgpu serve ")
    assert run.startswith("  rgpu run --memory 1GiB -- python ")
    assert top.startswith("  rgpu top ")


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(name: str) -> ModuleSpec | None:
        return None if name == "llvmlite" else ModuleSpec(name, None)

    monkeypatch.setattr(show, "find_spec", found)
    with pytest.raises(MissingPartError) as caught:
        show.run_demo()
    assert "the demo needs llvmlite: python -m pip install" in str(caught.value)
