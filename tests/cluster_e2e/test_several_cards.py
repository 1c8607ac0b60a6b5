"""`--cards`: a program with several cards of one server, all of them or none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from helpers.command import run_rgpu_plain
from helpers.manager import ManagerProcess
from helpers.nodes import Nodes, check_end, ended, start, started, where
from helpers.waiting import wait_until

SHOWS = """
import ctypes
count = ctypes.c_int()
cuda("cuInit", 0)
cuda("cuDeviceGetCount", ctypes.byref(count))
print(count.value, flush=True)
wait_for_line()
"""
FEW = ("-v", "--cards", "2", "--share", "60%", "--memory", "64MiB")


@pytest.fixture(scope="module")
def pairs() -> Iterator[Nodes]:
    """Two servers of two cards each."""
    with (
        ManagerProcess() as manager,
        Nodes(
            manager, {"a": "r1", "b": "r1"}, "emulated:256MiB", "--device", "emulated:256MiB"
        ) as nodes,
    ):
        yield nodes
        nodes.idle()


def test_two_cards_are_of_one_server(pairs: Nodes) -> None:
    with started(pairs.manager.address, *FEW, source=SHOWS) as run:
        name, request = where(run)
        assert pairs.booked()[name] == {request, f"{request}.1"}
        held = next(one for one in pairs.manager.pool()["nodes"] if one["name"] == name)
        assert [len(card["leases"]) for card in held["cards"]] == [1, 1]
        assert ended(run)[0] == 0
    pairs.idle()


def test_the_program_sees_both(pairs: Nodes) -> None:
    with started(pairs.manager.address, *FEW, source=SHOWS) as run:
        check_end(run, "2")
    pairs.idle()


def test_a_run_that_needs_two_cards_waits_until_both_are_free(pairs: Nodes) -> None:
    """One card of each server is in use, so two are free and no server has two."""
    address = pairs.manager.address
    alone = [start(address, "-v", "--whole", "--local", RGPU_NODE=name) for name in ("a", "b")]
    try:
        assert {where(run)[0] for run in alone} == {"a", "b"}
        done = run_rgpu_plain("run", "--manager", address, "--cards", "2", "--", "true")
        assert done.returncode != 0
        assert "wait for room with --wait" in done.stderr
        assert [len(keys) for keys in pairs.booked().values()] == [1, 1]
        with started(address, *FEW, "--wait", source=SHOWS) as run:
            wait_until(lambda: bool(pairs.manager.pool()["waiting"]))
            assert ended(alone[0])[0] == 0
            assert where(run)[0] == "a"
            assert ended(run)[0] == 0
        assert ended(alone[1])[0] == 0
    finally:
        for one in alone:
            one.kill()
            one.communicate()
    pairs.idle()


def test_more_cards_than_a_server_has_are_refused(pairs: Nodes) -> None:
    address = pairs.manager.address
    done = run_rgpu_plain("run", "--manager", address, "--cards", "3", "--wait", "--", "true")
    assert done.returncode != 0
    assert "no node has 3 cards" in done.stderr
    done = run_rgpu_plain("run", "--manager", address, "--cards", "9", "--", "true")
    assert "--cards is a number from 1 to 8" in done.stderr


def test_several_cards_of_one_of_several_servers(pairs: Nodes) -> None:
    named = ",".join(server.tcp for server in pairs.servers.values())
    with started(pairs.manager.address, "--whole", "--local", RGPU_NODE="a") as full:
        assert full.stdout is not None
        full.stdout.readline()
        with started("", "--server", named, *FEW, source=SHOWS) as run:
            check_end(run, "2")
        assert ended(full)[0] == 0
