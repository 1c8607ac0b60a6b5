"""`make demo-manager` as a user runs it: programs are placed, a node is drained, another one dies."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.links import NEEDED, ROOT
from helpers.needs import needs
from helpers.placed import check_picture

DEMO = [
    sys.executable,
    str(ROOT / "examples" / "cluster"),
    str(ROOT / "docker-compose.manager.yml"),
]


@pytest.mark.soak
@needs(*NEEDED, "openssl")
@pytest.mark.timeout(300)
def test_programs_leave_a_node_that_drains_or_dies(tmp_path: Path) -> None:
    done = subprocess.run(
        DEMO, capture_output=True, text=True, timeout=280, check=False, cwd="/",
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert list(tmp_path.iterdir()) == []
    check_picture(said)
