"""Unmodified programs run where the manager places them, by each option of `rgpu run`."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest
from helpers import clients
from helpers.command import rgpu_command, run_rgpu_plain
from helpers.nodes import Nodes, ended, start, started, where
from helpers.waiting import wait_until

WRONG_USE, NOT_STARTED = 2, 125
SMALL = ("-v", "--share", "10%", "--memory", "64MiB")


@pytest.fixture
def manager(nodes: Nodes) -> Iterator[str]:
    """The manager's address; afterwards nothing is left of the test's runs."""
    yield nodes.manager.address
    nodes.idle()


def refused(manager: str, *options: str, **environment: str) -> str:
    """Returns the line that says why a run does not start."""
    done = subprocess.run(
        [*_run(manager, *options), "true"], env={**clients.environment(None), **environment},
        cwd="/", capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode in (WRONG_USE, NOT_STARTED)
    assert done.stdout == ""
    return done.stderr.splitlines()[-1]


def _run(manager: str, *options: str) -> list[str]:
    return [rgpu_command(), "run", "--manager", manager, *options, "--"]


@pytest.mark.parametrize("name", ["gpu1", "gpu2", "gpu3"])
def test_local_is_the_programs_own_node(manager: str, name: str) -> None:
    with started(manager, *SMALL, "--local", RGPU_NODE=name) as run:
        assert where(run)[0] == name
        assert ended(run)[:2] == (0, ["right"])


def test_a_program_gets_the_memory_that_it_asked_for(manager: str) -> None:
    with started(manager, "--share", "30%", "--memory", "96MiB") as run:
        status, lines, _ = ended(run)
        assert (status, lines) == (0, [str(96 << 20), "right"])


@pytest.mark.parametrize(("policy", "limit"), [("fixed", 300_000), ("burst", 1_000_000)])
def test_the_policy_decides_the_limit_that_nobody_names(
    nodes: Nodes, manager: str, policy: str, limit: int
) -> None:
    sizes = ("--policy", policy, "--share", "30%", "--local")
    with started(manager, "-v", *sizes, RGPU_NODE="gpu1") as run:
        where(run)
        assert [one["quota"]["share_limit_ppm"] for one in nodes.leases("gpu1")] == [limit]
        assert ended(run)[0] == 0
    wait_until(lambda: not nodes.leases("gpu1"))
    kept = run_rgpu_plain(
        "reserve", "--for", "1min", "--manager", manager, *sizes, RGPU_NODE="gpu1"
    )
    assert kept.returncode == 0, kept.stderr
    assert [one["quota"]["share_limit_ppm"] for one in nodes.leases("gpu1")] == [limit]
    assert run_rgpu_plain("release", kept.stdout.strip(), "--manager", manager).returncode == 0


def test_the_best_effort_with_a_share_is_refused(manager: str) -> None:
    said = refused(manager, "--policy", "best-effort", "--share", "30%")
    assert "guarantees nothing and the share is 30%; leave one of them out" in said


def test_near_stays_in_the_rack(manager: str) -> None:
    with started(manager, "-v", "--share", "100%", "--local", RGPU_NODE="gpu1") as full:
        assert where(full)[0] == "gpu1"
        with started(manager, *SMALL, "--near", RGPU_NODE="gpu1") as run:
            assert where(run)[0] == "gpu2"
            assert ended(run)[0] == 0
        assert ended(full)[0] == 0


def test_local_and_near_are_refused_where_nothing_is(manager: str) -> None:
    assert "leave --local out" in refused(manager, "--local", RGPU_NODE="gpu9")
    assert "leave --near out" in refused(manager, "--near", RGPU_NODE="gpu9", RGPU_RACK="r9")


def test_affinity_shares_a_card_and_anti_affinity_avoids_it(manager: str) -> None:
    with (
        started(manager, *SMALL, "--affinity", "team") as first,
        started(manager, *SMALL, "--affinity", "team") as second,
        started(manager, *SMALL, "--anti-affinity", "noisy") as third,
    ):
        assert where(first)[0] == where(second)[0]
        away = where(third)[0]
        with started(manager, *SMALL, "--anti-affinity", "noisy") as fourth:
            assert where(fourth)[0] != away
            assert ended(fourth)[0] == 0
        for run in (first, second, third):
            assert ended(run)[0] == 0


def test_an_exclusive_label_keeps_others_away(manager: str) -> None:
    with (
        started(manager, *SMALL, "--exclusive-label", "a") as first,
        started(manager, *SMALL, "--exclusive-label", "a") as second,
        started(manager, *SMALL, "--exclusive-label", "b") as third,
        started(manager, *SMALL) as fourth,
    ):
        places = [where(run)[0] for run in (first, second, third, fourth)]
        assert places[0] == places[1]
        assert len(set(places)) == 3
        said = refused(manager, "--exclusive-label", "c")
        assert "wait for room with --wait" in said
        for run in (first, second, third, fourth):
            assert ended(run)[0] == 0


def test_a_whole_card_is_alone_and_the_next_waits_for_it(nodes: Nodes, manager: str) -> None:
    runs = [start(manager, "-v", "--whole") for _ in range(3)]
    try:
        assert {where(run)[0] for run in runs} == {"gpu1", "gpu2", "gpu3"}
        assert "wait for room with --wait" in refused(manager, "--share", "1%")
        with started(manager, "-v", "--whole", "--wait") as late:
            wait_until(lambda: len(nodes.manager.pool()["waiting"]) == 1)
            assert ended(runs[1])[0] == 0
            assert where(late)[0] in {"gpu1", "gpu2", "gpu3"}
            assert ended(late)[0] == 0
        assert ended(runs[0])[0] == ended(runs[2])[0] == 0
    finally:
        for run in runs:
            run.kill()
            run.communicate()


def test_waiting_has_an_end(manager: str) -> None:
    with started(manager, "-v", "--whole", "--local", RGPU_NODE="gpu2") as full:
        where(full)
        # Long enough to be told why it waits, also where the processors are busy.
        said = refused(manager, "--share", "1%", "--local", "--wait=15", RGPU_NODE="gpu2")
        assert "no card had room in time: 1 card cannot be used, because each belongs to" in said
        assert ended(full)[0] == 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--memory", "4GiB"), "the largest card has"),
        (("--model", "H900"), "the pool has no H900; it has"),
        (("--pool", "gold"), "there is no pool 'gold'"),
        (("--affinity", "a", "--anti-affinity", "a"), "leave one of them out"),
        (("--whole", "--share", "10%"), "leave out --share"),
        (("--max-slowdown", "soon"), "--max-slowdown"),
        (("--device", "0"), "leave --device out"),
    ],
)
def test_what_cannot_be_is_refused_with_a_remedy(
    manager: str, options: tuple[str, ...], sentence: str
) -> None:
    assert sentence in refused(manager, *options)


def test_pool_and_explain_show_who_has_what_and_why(nodes: Nodes, manager: str) -> None:
    with started(manager, *SMALL, "--tenant", "ann") as run:
        name, request = where(run)
        pool = run_rgpu_plain("pool", "--manager", manager)
        row = next(line for line in pool.stdout.splitlines() if line.startswith(name))
        assert "10%" in row
        assert "ready" in row
        cards, runs = pool.stdout.split("\n\n")
        assert cards.count("\n") == 3
        (run_row,) = runs.splitlines()[1:]
        assert run_row.split()[0] in request, "the begin of its id"
        assert f"{name}/0" in run_row.split()
        told = run_rgpu_plain("explain", request, "--manager", manager).stdout
        assert f"request {request}: placed" in told
        assert f"chosen: {name}/0: on another node" in told
        assert "asked for: 10% of a card and 64 MiB" in told
        assert "places, best first" in told
        assert ended(run)[0] == 0
    nodes.idle()
    assert (
        f"request {request}: gone"
        in run_rgpu_plain("explain", request, "--manager", manager).stdout
    )
    unknown = run_rgpu_plain("explain", "run-" + "0" * 32, "--manager", manager)
    assert (unknown.returncode, unknown.stdout) != (0, "")
    assert "the manager knows no request" in unknown.stderr


def test_explain_tells_why_a_request_waits(nodes: Nodes, manager: str) -> None:
    with started(manager, "-v", "--share", "95%", "--local", RGPU_NODE="gpu1") as full:
        where(full)
        with started(manager, "--share", "50%", "--local", "--wait", RGPU_NODE="gpu1") as late:
            wait_until(lambda: bool(nodes.manager.pool()["waiting"]))
            waiting = nodes.manager.pool()["waiting"][0]
            told = run_rgpu_plain("explain", waiting["request_id"], "--manager", manager).stdout
            assert "not placed: no card has room for it now" in told
            assert "has too little guaranteed device time left" in told
            assert "is farther away than the request allows" in told
            assert ended(full)[0] == 0
            assert ended(late)[1][-1] == "right"


def test_a_drained_node_takes_no_new_runs(nodes: Nodes, manager: str) -> None:
    name = "gpu3"
    server = nodes.servers[name].tcp
    with started(manager, *SMALL, "--local", RGPU_NODE=name) as run:
        where(run)
        try:
            assert run_rgpu_plain("drain", "--server", server).returncode == 0
            wait_until(lambda: "drain" in _taints(nodes, name))
            said = refused(manager, "--local", RGPU_NODE=name)
            assert "wait for room with --wait" in said
            assert ended(run)[:2] == (0, ["right"])
        finally:
            undrained = run_rgpu_plain("undrain", "--server", server)
    assert undrained.returncode == 0
    wait_until(lambda: "drain" not in _taints(nodes, name))
    with started(manager, *SMALL, "--local", RGPU_NODE=name) as run:
        assert where(run)[0] == name
        assert ended(run)[0] == 0


def _taints(nodes: Nodes, name: str) -> list[str]:
    found = next(one for one in nodes.manager.pool()["nodes"] if one["name"] == name)
    return list(found["taints"])
