"""What the report of docker-compose.manager.yml prints: where its programs ran, moment by moment."""

from __future__ import annotations

import re

NODES = ("gpu-1", "gpu-2", "gpu-3")
CLIENTS = {"train", "infer-a", "infer-b", "near"}


def check_picture(said: str) -> None:
    """Asserts that every program ran on, on a node that was there and allowed."""
    assert "every program has ended right" in said
    first, drained, dead = (_moment(said, m) for m in ("at first", "gpu-1 drained", "gpu-2 dead"))
    assert drained["gpu-1"] == {"-"}
    assert dead["gpu-2"] == {"x"}
    for now in (first, drained, dead):
        assert set().union(*now.values()) - {"-", "x"} == CLIENTS
        assert "near" not in now["gpu-3"]
    # The far network was measured: 4 ms there and back.
    rows = [line for line in said.splitlines() if re.match(r"r1 +- +r2 ", line)]
    assert rows, said
    path = rows[0]
    assert float(path.split()[4]) > 4000, path


def _moment(said: str, name: str) -> dict[str, set[str]]:
    """Returns the programs of each node in one line of the picture."""
    row = next(line for line in said.splitlines() if line.startswith(name + "  "))
    cells = re.split(r" {2,}", row.rstrip())[1:]
    return {node: set(cell.split()) for node, cell in zip(NODES, cells, strict=True)}
