"""Reservations of cards of several servers: used together, and released together."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cluster_e2e.test_across_nodes import COPIES
from cluster_e2e.test_reserving import (
    SMALL,
    refused,
    released,
    reservations,
    reserve,
    runs_in,
)
from helpers.command import run_rgpu_plain
from helpers.manager import ManagerProcess
from helpers.nodes import Nodes, check_books
from helpers.waiting import wait_until

RACKS = {"gpu1": "r1", "gpu2": "r2"}
ACROSS = (*SMALL, "--cards", "3", "--across-nodes")


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with (
        ManagerProcess() as manager,
        Nodes(manager, RACKS, "emulated:512MiB", "--device", "emulated:512MiB") as found,
    ):
        yield found


@pytest.fixture
def manager(nodes: Nodes) -> Iterator[str]:
    """The manager's address; afterwards the test's reservations are gone."""
    yield nodes.manager.address
    nodes.manager.has(*RACKS)
    nodes.manager.release_all()
    wait_until(lambda: not nodes.manager.leases())
    wait_until(lambda: not any(nodes.leases(name) for name in RACKS))


def test_cards_of_two_servers_are_used_together(nodes: Nodes, manager: str) -> None:
    found = reserve(manager, *ACROSS)
    places = [found, *found["others"]]
    assert {one["node"] for one in places} == set(RACKS)
    assert sum(len(one["devices"]) for one in places) == 3
    for _ in range(2):
        status, lines, errors = runs_in(manager, found["id"], source=COPIES)
        assert (status, lines) == (0, ["3", "42"]), errors
    check_books(nodes.manager.pool())
    text = run_rgpu_plain("pool", "--manager", manager).stdout
    assert sum(line.startswith(found["id"]) for line in text.splitlines()) == 2
    assert released(manager, found["id"]).returncode == 0
    wait_until(lambda: not any(nodes.leases(name) for name in RACKS))


def test_it_says_of_which_servers_the_cards_are(manager: str) -> None:
    done = run_rgpu_plain("reserve", "--manager", manager, "--for", "90s", *ACROSS)
    assert done.returncode == 0, done.stderr
    said = done.stderr
    assert "rgpu: reserved 2 cards of gpu" in said or "rgpu: reserved 1 card of gpu" in said
    assert " and " in said
    assert done.stdout.startswith("res-")


def test_all_of_it_ends_at_its_time(nodes: Nodes, manager: str) -> None:
    reserve(manager, *ACROSS, seconds="5s")  # both servers have granted by then
    wait_until(lambda: not any(nodes.leases(name) for name in RACKS))
    wait_until(lambda: not reservations(nodes))


@pytest.mark.full
def test_a_manager_that_is_killed_knows_all_of_it_again(nodes: Nodes, manager: str) -> None:
    found = reserve(manager, *ACROSS)
    nodes.manager.restart()
    nodes.manager.has(*RACKS)
    assert runs_in(manager, found["id"], source=COPIES)[:2] == (0, ["3", "42"])
    assert released(manager, found["id"]).returncode == 0
    wait_until(lambda: not any(nodes.leases(name) for name in RACKS))


@pytest.mark.full
@pytest.mark.parametrize("restarted", [False, True])
def test_it_cannot_be_used_while_one_server_is_away(
    nodes: Nodes, manager: str, restarted: bool
) -> None:
    found = reserve(manager, *ACROSS)
    nodes.kill("gpu2")
    try:
        wait_until(lambda: not all(one["connected"] for one in reservations(nodes)))
        if restarted:
            # A manager that has not heard of gpu2 knows that cards are missing.
            nodes.manager.restart()
            nodes.manager.has("gpu1")
        else:
            wait_until(lambda: {n["name"] for n in nodes.manager.pool()["nodes"]} == {"gpu1"}, 60)
        said = refused("run", "--manager", manager, "--reservation", found["id"], "--", "true")
        assert "if the node comes back in time the reservation is still there" in said
        assert ("is on node gpu2, which is silent" in said) is not restarted
        assert ("of its 3 cards on a node other than gpu1 that is away" in said) is restarted
    finally:
        nodes.start("gpu2")
        nodes.manager.has(*RACKS)
    assert runs_in(manager, found["id"], source=COPIES)[:2] == (0, ["3", "42"])
