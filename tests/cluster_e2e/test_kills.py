"""The manager, servers and programs are killed and stopped at random points, and nothing is lost.

`RGPU_CLUSTER_KILLS=200` runs as many rounds; without it four, with `--all` six. `RGPU_CLUSTER_SEED`
chooses others.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import select
import signal
import subprocess
from collections import Counter
from collections.abc import Callable

import pytest
from helpers.counts import count
from helpers.nodes import Nodes, check_books, counts, start
from helpers.waiting import wait_until

from rgpu_common.units import PPM

ROUNDS = count("RGPU_CLUSTER_KILLS", 4)
SEED = int(os.environ.get("RGPU_CLUSTER_SEED", "1"))
# Every lease that no program came for has ended after so long.
LONGEST_SECONDS = 90
_CARD = 1 << 30


def pause(chance: random.Random, most: float) -> None:
    """Lets a random time pass, so that the next strike hits a random point."""
    select.select([], [], [], chance.uniform(0, most))


class Strikes:
    """Each method hurts something, and mends it after a random time."""

    def __init__(
        self, nodes: Nodes, chance: random.Random, runs: list[subprocess.Popen[str]]
    ) -> None:
        self._nodes = nodes
        self._chance = chance
        self._runs = runs

    def kill_manager(self) -> None:
        self._nodes.manager.kill()
        pause(self._chance, 0.5)
        self._nodes.manager.start()

    def stop_manager(self) -> None:
        self._nodes.manager.pause()
        pause(self._chance, 2)
        self._nodes.manager.go_on()

    def kill_server(self) -> None:
        name = self._chance.choice(sorted(self._nodes.servers))
        self._nodes.kill(name)
        pause(self._chance, 0.5)
        self._nodes.start(name)

    def stop_server(self) -> None:
        name = self._chance.choice(sorted(self._nodes.servers))
        self._nodes.signal(name, signal.SIGSTOP)
        pause(self._chance, 2)
        self._nodes.signal(name, signal.SIGCONT)

    def kill_program(self) -> None:
        self._chance.choice(self._runs).kill()

    def all(self) -> list[Callable[[], None]]:
        return [
            self.kill_manager, self.kill_manager, self.stop_manager, self.kill_server,
            self.stop_server, self.kill_program,
        ]  # fmt: skip


def check_servers(nodes: Nodes) -> None:
    """No server has granted more than its card has."""
    for name in nodes.servers:
        held = [one for one in nodes.leases(name) if one["state"] == "LEASE_STATE_ACTIVE"]
        share = sum(int(one["quota"].get("share_request_ppm", 0)) for one in held)
        memory = sum(int(one["quota"].get("memory_bytes", 0)) for one in held)
        assert share <= PPM, (name, held)
        assert memory <= _CARD, (name, held)


def judge(run: subprocess.Popen[str]) -> str:
    """Asserts that a program ended right, or with a clear error; returns which."""
    output, errors = run.communicate(timeout=120)
    lines = output.splitlines()
    if run.returncode == -signal.SIGKILL:
        return "killed"
    if run.returncode == 0:
        assert lines == ["open", "right"], (output, errors)
        return "right"
    last = errors.splitlines()[-1] if errors.strip() else ""
    assert last.startswith("rgpu: "), (run.returncode, output, errors)
    assert not re.search(r"Traceback|Error:", errors), errors
    if lines:
        assert re.match(r"ended with \d+$", lines[-1]), (output, errors)
        return f"broken off: {last}"
    return f"not started: {last}"


def one_round(nodes: Nodes, chance: random.Random) -> list[str]:
    """Starts programs, strikes once or twice, and returns how the programs have ended."""
    runs: list[subprocess.Popen[str]] = []
    try:
        for _ in range(chance.randrange(2, 5)):
            part = chance.choice(("20%", "50%", "90%"))
            source = counts(chance.choice((2, 20, 100)))
            several = chance.choice(((), (), ("--cards", "2", "--across-nodes")))
            options = ("--share", part, "--memory", "300MiB", "--wait", *several)
            runs.append(start(nodes.manager.address, *options, source=source))
        for _ in range(chance.randrange(1, 3)):
            pause(chance, 1.5)
            chance.choice(Strikes(nodes, chance, runs).all())()
        check_servers(nodes)
        check_books(nodes.manager.pool())
        return [judge(run) for run in runs]
    finally:
        for run in runs:
            run.kill()
            with contextlib.suppress(ValueError):
                run.communicate()


@pytest.mark.full
@pytest.mark.timeout(60 * ROUNDS + 120)
def test_kills_at_random_points_lose_and_leave_nothing(nodes: Nodes) -> None:
    chance = random.Random(SEED)
    outcomes: Counter[str] = Counter()
    for _ in range(ROUNDS):
        outcomes.update(one_round(nodes, chance))
        nodes.manager.has(*nodes.servers)
    print(f"{ROUNDS} rounds from seed {SEED}:", dict(outcomes))
    assert outcomes["right"] > sum(outcomes.values()) // 2
    nodes.idle(LONGEST_SECONDS)
    assert not nodes.manager.pool()["waiting"]


def test_a_manager_that_stands_still_harms_no_running_program(nodes: Nodes) -> None:
    """The minute is in `docs/how-to/small-cluster.md`; nothing depends on how long it is."""
    # They compute when the manager stands still already.
    source = counts(2000).replace("add_one =", "wait_for_line()\n    add_one =")
    runs = [
        start(nodes.manager.address, "--share", "10%", "--memory", "64MiB", source=source)
        for _ in range(3)
    ]
    try:
        for run in runs:
            assert run.stdout is not None
            assert run.stdout.readline() == "open\n"
        nodes.manager.pause()
        for run in runs:
            assert run.stdin is not None
            run.stdin.write("\n")
            run.stdin.flush()
        for run in runs:
            output, errors = run.communicate(timeout=120)
            assert (run.returncode, output) == (0, "right\n"), errors
    finally:
        nodes.manager.go_on()
        for run in runs:
            run.kill()
    nodes.idle()


def test_the_line_outlives_the_manager(nodes: Nodes) -> None:
    """Requests that wait for a manager are in line again. It has no secret to sign with, so it does
    not know in which order (test_turns).
    """
    full = [start(nodes.manager.address, "--whole", source="cuda.open(); print('open'); input()")
            for _ in nodes.servers]  # fmt: skip
    late: list[subprocess.Popen[str]] = []
    try:
        for run in full:
            assert run.stdout is not None
            assert run.stdout.readline() == "open\n"
        for _ in range(3):
            late.append(start(nodes.manager.address, "--whole", "--wait", source=counts(1)))
            wait_until(lambda: len(nodes.manager.pool()["waiting"]) == len(late))
        before = [one["request_id"] for one in nodes.manager.pool()["waiting"]]
        nodes.manager.restart()
        nodes.manager.has(*nodes.servers)
        wait_until(lambda: len(nodes.manager.pool()["waiting"]) == len(late), 60)
        waiting = [one["request_id"] for one in nodes.manager.pool()["waiting"]]
        assert sorted(waiting) == sorted(before)
        for run in full:
            assert run.communicate("\n", timeout=60)[0] == ""
        for run in late:
            output, errors = run.communicate(timeout=120)
            assert (run.returncode, output.splitlines()) == (0, ["open", "right"]), errors
    finally:
        for run in full + late:
            run.kill()
    nodes.idle()
