"""A node that has gone stays in sight, with what ran there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from helpers.command import rgpu_command
from helpers.manager import ManagerProcess
from helpers.nodes import Nodes, started, where
from helpers.waiting import wait_until


def shown(manager: ManagerProcess) -> str:
    """Returns what `rgpu pool` prints."""
    done = subprocess.run(
        [rgpu_command(), "pool", "--manager", manager.address],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return done.stdout


def test_a_node_that_has_gone_stays_in_the_pool_with_what_ran_there(tmp_path: Path) -> None:
    config = tmp_path / "manager.toml"
    config.write_text("[nodes]\nsilence_seconds = 6.0\n")
    with (
        ManagerProcess("--config", str(config)) as manager,
        Nodes(manager, {"gpu1": "r1"}, "emulated:512MiB") as nodes,
        started(manager.address, "-v", "--share", "30%", "--memory", "64MiB") as run,
    ):
        _, request = where(run)
        address = manager.pool()["nodes"][0]["address"]
        nodes.kill("gpu1")
        wait_until(lambda: "not ready for" in shown(manager))
        said = shown(manager)
        assert re.search(r"^gpu1 +0 .* - .* 30% +1 .*not ready for \S+", said, re.MULTILINE), said
        program = re.escape(Path(sys.executable).name)
        row = rf"^{request[:12]} +{program} +default +gpu1/0 +{address} +30% +64 MiB +not heard of for \S+"
        assert re.search(row, said, re.MULTILINE), said
        nodes.start("gpu1")
        manager.has("gpu1")
        wait_until(lambda: "not ready for" not in shown(manager))
        assert "was on a node" not in shown(manager)
        run.kill()
