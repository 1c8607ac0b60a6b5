"""`--mig`: MIG slices are cards of their own, for those who ask for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from helpers.command import run_rgpu_plain
from helpers.manager import ManagerProcess
from helpers.nodes import Nodes, ended, started, where
from helpers.waiting import wait_until

pytestmark = pytest.mark.full

SMALL = ("-v", "--share", "30%", "--memory", "64MiB")


@pytest.fixture(scope="module")
def carved() -> Iterator[Nodes]:
    """Two servers, each with a GPU and two slices; all of them are emulated."""
    slices = ("--device", "emulated:128MiB,mig=1g.10gb", "--device", "emulated:256MiB,mig=2g.20gb")
    with (
        ManagerProcess() as manager,
        Nodes(manager, {"a": "r1", "b": "r2"}, "emulated:1GiB", *slices) as nodes,
    ):
        yield nodes
        nodes.idle()


def ordinals(nodes: Nodes) -> list[tuple[str, int]]:
    """Returns the cards with leases, as the manager knows them."""
    pool = nodes.manager.pool()["nodes"]
    return [
        (node["name"], int(card.get("ordinal", 0)))
        for node in pool
        for card in node["cards"]
        if card["leases"]
    ]


def refused(nodes: Nodes, *options: str) -> str:
    done = run_rgpu_plain("run", "--manager", nodes.manager.address, *options, "--", "true")
    assert done.returncode != 0
    return done.stderr.splitlines()[-1]


def test_a_run_that_asks_for_no_slice_gets_a_gpu(carved: Nodes) -> None:
    with ExitStack() as stack:
        runs = [
            stack.enter_context(started(carved.manager.address, *SMALL, "--anti-affinity", "x"))
            for _ in range(2)
        ]
        for run in runs:
            where(run)
        assert ordinals(carved) == [("a", 0), ("b", 0)]
        # Long enough to be told why it waits, also where the processors are busy.
        said = refused(carved, *SMALL, "--anti-affinity", "x", "--wait=15")
        assert "cards cannot be used" in said
        assert [ended(run)[0] for run in runs] == [0, 0]
    carved.idle()


@pytest.mark.parametrize(("profile", "ordinal"), [("1g.10gb", 1), ("2g.20gb", 2)])
def test_a_run_gets_the_slice_that_it_asks_for(carved: Nodes, profile: str, ordinal: int) -> None:
    with started(carved.manager.address, *SMALL, "--mig", profile) as run:
        name, request = where(run)
        assert ordinals(carved) == [(name, ordinal)]
        told = run_rgpu_plain("explain", request, "--manager", carved.manager.address).stdout
        assert "is not of the MIG profile that was asked for" in told
        assert ended(run)[:2] == (0, ["right"])
    carved.idle()


def test_a_whole_slice_is_full_and_its_neighbours_are_not(carved: Nodes) -> None:
    address = carved.manager.address
    with ExitStack() as stack:
        whole = [
            stack.enter_context(started(address, "-v", "--whole", "--mig", "1g.10gb"))
            for _ in range(2)
        ]
        assert {where(run)[0] for run in whole} == {"a", "b"}
        assert "wait for room" in refused(carved, *SMALL, "--mig", "1g.10gb")
        with started(address, *SMALL, "--mig", "2g.20gb") as run:
            where(run)
            assert ended(run)[0] == 0
        with started(address, *SMALL, "--mig", "1g.10gb", "--wait") as late:
            wait_until(lambda: bool(carved.manager.pool()["waiting"]))
            assert ended(whole[0])[0] == 0
            where(late)
            assert ended(late)[0] == 0
        assert ended(whole[1])[0] == 0
    carved.idle()


def test_a_program_has_slices_of_two_servers(carved: Nodes) -> None:
    source = (
        "import ctypes; count = ctypes.c_int(); cuda('cuInit', 0);"
        "cuda('cuDeviceGetCount', ctypes.byref(count)); print(count.value); wait_for_line()"
    )
    wish = ("--mig", "1g.10gb", "--cards", "2", "--across-nodes")
    with started(carved.manager.address, *SMALL, *wish, source=source) as run:
        where(run)
        assert ordinals(carved) == [("a", 1), ("b", 1)]
        assert ended(run)[0] == 0
    carved.idle()


def test_a_slice_has_its_own_memory_and_name(carved: Nodes) -> None:
    assert "the largest card has 128 MiB" in refused(
        carved, "--mig", "1g.10gb", "--memory", "200MiB"
    )
    assert "no card is a MIG slice 3g.40gb; name one of 1g.10gb, 2g.20gb with" in refused(
        carved, "--mig", "3g.40gb", "--wait"
    )
    assert "--mig: 'small' is not a MIG profile" in refused(carved, "--mig", "small")
    pool = run_rgpu_plain("pool", "--manager", carved.manager.address).stdout
    assert "rgpu emulated device MIG 1g.10gb" in pool
    named = ",".join(server.tcp for server in carved.servers.values())
    with started("", "--server", named, "-v", "--share", "30%", "--mig", "2g.20gb") as run:
        assert run.stdout is not None
        assert run.stdout.readline() == f"{64 << 20}\n"
        assert ended(run)[0] == 0
