"""`make demo-manager` as a user runs it: programs are placed, a node is drained, another one dies."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.links import ROOT, require

DEMO = [
    sys.executable,
    str(ROOT / "examples" / "cluster"),
    str(ROOT / "docker-compose.manager.yml"),
]
NODES = ("gpu-1", "gpu-2", "gpu-3")
CLIENTS = {"train", "infer-a", "infer-b", "near"}


def moment(said: str, name: str) -> dict[str, set[str]]:
    """Returns the programs of each node in one line of the picture."""
    row = next(line for line in said.splitlines() if line.startswith(name + "  "))
    cells = re.split(r" {2,}", row.rstrip())[1:]
    return {node: set(cell.split()) for node, cell in zip(NODES, cells, strict=True)}


@pytest.mark.timeout(300)
def test_programs_leave_a_node_that_drains_or_dies(tmp_path: Path) -> None:
    require()
    done = subprocess.run(
        DEMO, capture_output=True, text=True, timeout=280, check=False, cwd="/",
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "every program has ended right" in said
    assert list(tmp_path.iterdir()) == []
    first, drained, dead = (moment(said, m) for m in ("at first", "gpu-1 drained", "gpu-2 dead"))
    assert drained["gpu-1"] == {"-"}
    assert dead["gpu-2"] == {"x"}
    for now in (first, drained, dead):
        assert set().union(*now.values()) - {"-", "x"} == CLIENTS
        assert "near" not in now["gpu-3"]
    # The far network was measured: 4 ms there and back.
    path = next(line for line in said.splitlines() if re.match(r"r1 +- +r2 ", line))
    assert float(path.split()[4]) > 4000, path
