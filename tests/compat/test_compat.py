"""Programs too heavy for every run of the tests: `make compat` installs and runs them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from helpers.server import Server, run_client

PROGRAMS = Path(__file__).parent / "programs"


@pytest.mark.parametrize("program", sorted(p.stem for p in PROGRAMS.glob("*.py")))
def test_program(program: str) -> None:
    with Server() as server:
        result = run_client(server.tcp, sys.executable, str(PROGRAMS / f"{program}.py"))
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.splitlines()[-1] == "ok"
