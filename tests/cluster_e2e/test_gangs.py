"""Gangs and quotas: runs that start together, and what a tenant may have of the cluster."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from helpers.command import run_rgpu_plain
from helpers.nodes import Nodes, configured, ended, started, where
from helpers.waiting import wait_until

RACKS = {"gpu1": "r1", "gpu2": "r1"}
GANG = ("-v", "--whole", "--wait", "--gang")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Two servers of one card; ann owns one card and borrows, bob has at most half a card."""
    text = "[tenants.ann]\nshare = 1\nborrow = true\n[tenants.bob]\nshare = 0.5\n"
    folder = tmp_path_factory.mktemp("quotas")
    with configured(folder, text, RACKS, "emulated:512MiB") as nodes:
        yield nodes


def waiting(nodes: Nodes) -> list[str]:
    return [str(one["sentence"]) for one in nodes.manager.pool()["waiting"]]


def test_a_gang_starts_together_once_all_are_here(pair: Nodes) -> None:
    address = pair.manager.address
    with ExitStack() as stack:
        first = stack.enter_context(started(address, *GANG, "job:2"))
        wait_until(lambda: waiting(pair) == ["1 of the 2 runs of its gang are here"])
        # The same word of another tenant is another gang.
        other = stack.enter_context(started(address, *GANG, "job:2", "--tenant", "eve"))
        wait_until(lambda: len(waiting(pair)) == 2)
        assert not any(pair.booked().values())
        other.send_signal(signal.SIGINT)
        wait_until(lambda: len(waiting(pair)) == 1)
        second = stack.enter_context(started(address, *GANG, "job:2"))
        assert {where(first)[0], where(second)[0]} == set(RACKS)
        assert ended(first)[0] == ended(second)[0] == 0
    pair.idle()


def test_a_gang_takes_all_its_cards_or_none(pair: Nodes) -> None:
    address = pair.manager.address
    with ExitStack() as stack:
        full = stack.enter_context(started(address, "-v", "--whole"))
        where(full)
        gang = [stack.enter_context(started(address, *GANG, "late:2")) for _ in range(2)]
        wait_until(lambda: len(waiting(pair)) == 2)
        wait_until(lambda: all("in use" in one or "alone" in one for one in waiting(pair)))
        assert sorted(len(keys) for keys in pair.booked().values()) == [0, 1]
        assert ended(full)[0] == 0
        assert {where(run)[0] for run in gang} == set(RACKS)
        assert [ended(run)[0] for run in gang] == [0, 0]
    pair.idle()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--gang", "x:2"), "add --wait"),
        (("--gang", "x", "--wait"), "--gang is a word and a number"),
        (("--gang", ":2", "--wait"), "--gang is a word"),
        (("--gang", "x:1", "--wait"), "from 2 to 1024"),
    ],
)
def test_a_gang_needs_a_word_and_a_number(
    pair: Nodes, options: tuple[str, ...], sentence: str
) -> None:
    done = run_rgpu_plain("run", "--manager", pair.manager.address, *options, "--", "true")
    assert done.returncode != 0
    assert sentence in done.stderr


def test_a_tenant_borrows_while_its_owner_leaves_cards_idle(pair: Nodes) -> None:
    address = pair.manager.address
    with (
        started(address, "-v", "--whole", "--tenant", "ann") as first,
        started(address, "-v", "--whole", "--tenant", "ann") as second,
    ):
        assert {where(first)[0], where(second)[0]} == set(RACKS)
        with started(address, "-v", "--share", "50%", "--tenant", "bob", "--wait") as owed:
            wait_until(lambda: bool(waiting(pair)))
            with started(address, "-v", "--whole", "--tenant", "ann", "--wait") as third:
                wait_until(lambda: any("another waits for its own" in w for w in waiting(pair)))
                assert ended(second)[0] == 0
                where(owed)
                assert ended(first)[0] == 0
                where(third)
                assert ended(third)[0] == ended(owed)[0] == 0
    pair.idle()


@pytest.mark.full
def test_a_tenant_without_borrowing_stays_below_its_quota(pair: Nodes) -> None:
    address = pair.manager.address
    with started(address, "-v", "--share", "30%", "--tenant", "bob") as run:
        where(run)
        wish = ("--share", "30%", "--tenant", "bob")
        done = run_rgpu_plain("run", "--manager", address, *wish, "--", "true")
        assert "tenant bob may have shares of 0.5 cards in all in this cluster" in done.stderr
        assert "wait for room with --wait" in done.stderr
        done = run_rgpu_plain(
            "run", "--manager", address, "--whole", "--tenant", "bob", "--wait", "--", "true"
        )
        assert "tenant bob may have shares of 0.5 cards in all" in done.stderr
        assert ended(run)[0] == 0
    pair.idle()
