"""A crowd of unmodified programs with mixed requests on three servers.

`RGPU_CLUSTER_PROGRAMS=40` runs as many programs; without it eight, with `--all` twelve.
"""

from __future__ import annotations

import random
import subprocess

from helpers.counts import count
from helpers.nodes import Nodes, check_books, counts, start
from helpers.waiting import wait_until

PROGRAMS = count("RGPU_CLUSTER_PROGRAMS", 8)


def wishes(chance: random.Random) -> list[str]:
    """Returns the options of one run."""
    if chance.random() < 0.15:
        return ["--whole"]
    options = chance.choice(
        (["--policy", "best-effort"], *(["--share", part] for part in ("10%", "30%", "50%", "90%")))
    )
    options = [*options, "--memory", chance.choice(("64MiB", "128MiB", "25%", "600MiB"))]
    options += chance.choice(
        (
            [], [], ["--near"], ["--local"], ["--anywhere"], ["--affinity", "a"],
            ["--anti-affinity", "b"], ["--exclusive-label", "c"],
            ["--tenant", "ann"], ["--weight", "1"],
        )
    )  # fmt: skip
    return options


def test_a_crowd_of_mixed_programs_is_placed_and_right(nodes: Nodes) -> None:
    chance = random.Random(1)
    runs: list[subprocess.Popen[str]] = []
    try:
        for _ in range(PROGRAMS):
            place = chance.choice(sorted(nodes.servers))
            source = counts(chance.randrange(1, 20))
            options = wishes(chance)
            runs.append(
                start(nodes.manager.address, "--wait", *options, source=source, RGPU_NODE=place)
            )

        def all_ended() -> bool:
            check_books(nodes.manager.pool())
            return all(run.poll() is not None for run in runs)

        wait_until(all_ended, 150)
        for run in runs:
            output, errors = run.communicate()
            assert (run.returncode, output.splitlines()) == (0, ["open", "right"]), errors
    finally:
        for run in runs:
            run.kill()
            run.communicate()
    nodes.idle()
    placed = [event for event in nodes.manager.events() if event["kind"] == "placed"]
    assert len(placed) >= PROGRAMS
    assert {event["node"] for event in placed} <= set(nodes.servers)
