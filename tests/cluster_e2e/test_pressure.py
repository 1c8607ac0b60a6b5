"""Leases give way to others, and are taken back for their owners: real servers and programs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_e2e.test_resize_kills import COUNTING
from helpers.command import run_rgpu_plain
from helpers.manager import ManagerProcess
from helpers.nodes import Nodes, check_books, counts, ended, started, where
from helpers.waiting import wait_until

RACKS = {"gpu1": "r1"}
ELASTIC = ("-v", "--share", "80%", "--memory", "400MiB", "--min-share", "20%")
MIB = 1 << 20
# Launches now and then: it is told what a program is told that computes all the time.
LAUNCHES = COUNTING.replace("[], 0)", "[], 0.05)")


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """A server of one card. bob owns half of it; ann owns a tenth and borrows, with short grace."""
    config: Path = tmp_path_factory.mktemp("pressure") / "manager.toml"
    config.write_text(
        "reclaim.grace_seconds = 36000\n"
        "[tenants.ann]\nshare = 0.1\nborrow = true\ngrace_seconds = 1\n"
        "[tenants.bob]\nshare = 0.5\n"
        "[tenants.cat]\nshare = 0.1\nborrow = true\n"
    )
    with (
        ManagerProcess("--config", str(config)) as manager,
        Nodes(manager, RACKS, "emulated:512MiB") as nodes,
    ):
        yield nodes


def lease_of(nodes: Nodes, request: str) -> dict[str, Any]:
    """What the manager knows of a request's lease."""
    card = nodes.manager.pool()["nodes"][0]["cards"][0]
    return next(lease for lease in card["leases"] if lease["request_id"] == request)


def share_on_server(nodes: Nodes, request: str) -> int:
    """What the server itself says."""
    found = [x for x in nodes.leases("gpu1") if str(x["key"]).startswith(request)]
    return int(found[0]["quota"]["share_request_ppm"])


def listed(nodes: Nodes, request: str) -> list[str]:
    """The lines of `rgpu ps` about a request's lease and its session."""
    shown = run_rgpu_plain("ps", "--server", nodes.servers["gpu1"].tcp).stdout.splitlines()
    (lease,) = [line for line in shown if request in line]
    name = lease.split()[0]
    return [lease, *(line for line in shown if name in line.split()[1:2])]


def smaller(address: str, request: str) -> str:
    """The line of `rgpu pool` about a lease that has less than it asked for, or ends soon."""
    _, below = run_rgpu_plain("pool", "--manager", address).stdout.split("asked for", 1)
    (line,) = [line for line in below.splitlines() if line.startswith(request[:12])]
    return line


def kinds(nodes: Nodes, request: str) -> list[str]:
    return [e["kind"] for e in nodes.manager.events() if e["request_id"] == request]


@pytest.mark.full
def test_a_lease_shrinks_before_another_request_is_denied_and_grows_again(one: Nodes) -> None:
    address = one.manager.address
    with started(address, *ELASTIC, "--tenant", "eve") as first:
        elastic = where(first)[1]
        # It does not wait, and is not denied.
        with started(
            address, "-v", "--share", "60%", "--memory", "64MiB", "--tenant", "eve"
        ) as run:
            late = where(run)[1]
            assert share_on_server(one, elastic) == 400_000
            check_books(one.manager.pool())
            row = lease_of(one, elastic)
            assert (row["share_ppm"], row["wanted_ppm"]) == (400_000, 800_000)
            assert smaller(address, elastic).split()[3:6] == ["gpu1/0", "40%", "80%"]
            told = run_rgpu_plain("explain", late, "--manager", address).stdout
            assert f"made room: {elastic} on gpu1/0 shrinks to 40% and 400 MiB" in told
            assert ended(run)[:2] == (0, ["right"])
        wait_until(lambda: share_on_server(one, elastic) == 800_000)
        wait_until(lambda: "grown" in kinds(one, elastic))
        assert "asked for" not in run_rgpu_plain("pool", "--manager", address).stdout
        assert "shrunk" in kinds(one, elastic)
        assert ended(first)[0] == 0
    one.idle()


def test_memory_in_use_stays(one: Nodes) -> None:
    address = one.manager.address
    holds = "cuda.open(); a = cuda.alloc(300 << 20); print('open', flush=True); wait_for_line()"
    wish = ("-v", "--share", "10%", "--memory", "400MiB", "--min-memory", "64MiB")
    with started(address, *wish, "--tenant", "eve", source=holds) as first:
        elastic = where(first)[1]
        wish = ("--share", "10%", "--memory", "200MiB", "--tenant", "eve")
        done = run_rgpu_plain("run", "--manager", address, *wish, "--", "true")
        # 300 MiB of 512 are in use, so 200 MiB fit only if nothing of that is counted as free.
        assert done.returncode == 0, done.stderr
        wish = ("--share", "10%", "--memory", "300MiB", "--tenant", "eve")
        done = run_rgpu_plain("run", "--manager", address, *wish, "--", "true")
        assert done.returncode != 0
        assert int(lease_of(one, elastic)["memory_bytes"]) >= 300 * MIB
        assert ended(first)[0] == 0
    one.idle()


def test_only_who_said_so_shrinks(one: Nodes) -> None:
    address = one.manager.address
    with started(address, "-v", "--share", "80%", "--memory", "64MiB", "--tenant", "eve") as first:
        where(first)
        wish = ("--share", "60%", "--memory", "64MiB", "--tenant", "eve")
        done = run_rgpu_plain("run", "--manager", address, *wish, "--", "true")
        assert "wait for room with --wait" in done.stderr
        assert ended(first)[0] == 0
    one.idle()


def test_what_is_borrowed_goes_back_to_its_owner(one: Nodes) -> None:
    address = one.manager.address
    wish = ("-v", "--share", "90%", "--memory", "64MiB", "--tenant", "ann")
    with started(address, *wish, source=counts(10**6)) as borrower:
        lent = where(borrower)[1]
        owner = ("-v", "--share", "50%", "--memory", "64MiB", "--tenant", "bob", "--wait")
        with started(address, *owner) as run:
            where(run)
            assert ended(run)[0] == 0
        output, errors = borrower.communicate(timeout=60)
        assert borrower.returncode != 0
        assert "tenant bob is owed the room" in errors + output, errors
        assert "rgpu: this program may lose its GPU in 1 s: its tenant has more than" in errors
    said = kinds(one, lent)
    assert said.index("announced") < said.index("taken_back")
    one.idle()


@pytest.mark.full
def test_a_program_is_warned_and_pool_shows_how_long_it_has(one: Nodes) -> None:
    address = one.manager.address
    wish = ("-v", "--share", "90%", "--memory", "64MiB", "--tenant", "cat")
    with started(address, *wish, source=LAUNCHES) as borrower:
        lent = where(borrower)[1]
        owner = ("--share", "50%", "--memory", "64MiB", "--tenant", "bob", "--wait")
        with started(address, *owner):
            assert borrower.stderr is not None
            warning = next(line for line in borrower.stderr if "may lose its GPU" in line)
            assert warning.startswith("rgpu: this program may lose its GPU in 10 h: ")
            assert "tenant bob is owed the room. Save what you need" in warning
            assert 35_000 < lease_of(one, lent)["ends_seconds"] <= 36_000
            line = smaller(address, lent)
            assert "9 h 5" in line or "10 h" in line
            (line, _) = listed(one, lent)  # the lease, and its session
            assert re.search(r" (9 h 5\d min|10 h)$", line.rstrip()), line
        # The owner has gone, so the program keeps its lease.
        wait_until(lambda: lease_of(one, lent).get("ends_seconds") is None)
        wait_until(lambda: " h" not in listed(one, lent)[0])
        assert ended(borrower)[:2] == (0, ["right"])
    one.idle()


def test_a_borrowed_lease_that_can_shrink_does_not_end(one: Nodes) -> None:
    address = one.manager.address
    wish = ("-v", "--share", "90%", "--min-share", "10%", "--memory", "64MiB", "--tenant", "ann")
    with started(address, *wish) as borrower:
        lent = where(borrower)[1]
        owner = ("-v", "--share", "50%", "--memory", "64MiB", "--tenant", "bob")
        with started(address, *owner) as run:
            where(run)
            assert share_on_server(one, lent) == 500_000
            assert ended(run)[0] == 0
        assert ended(borrower)[0] == 0
    assert "taken_back" not in kinds(one, lent)
    one.idle()


def test_a_manager_that_dies_leaves_small_leases_and_the_next_one_has_them_grow(
    one: Nodes,
) -> None:
    address = one.manager.address
    wish = ("-v", "--share", "60%", "--memory", "64MiB", "--tenant", "eve")
    with started(address, *ELASTIC, "--tenant", "eve") as first:
        elastic = where(first)[1]
        with started(address, *wish) as second:
            where(second)
            one.manager.restart()
            one.manager.has("gpu1")
            assert lease_of(one, elastic)["wanted_ppm"] == 800_000
            assert ended(second)[0] == 0
        wait_until(lambda: share_on_server(one, elastic) == 800_000)
        assert ended(first)[0] == 0
    one.idle()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--min-share", "50%", "--share", "10%"), "lower --min-share"),
        (("--min-memory", "1GiB", "--memory", "10MiB"), "lower --min-memory"),
        (("--min-share", "much"), "--min-share: "),
        (("--whole", "--min-memory", "1MiB"), "a whole card does not shrink"),
    ],
)
def test_a_least_that_contradicts_the_request_is_refused(
    one: Nodes, options: tuple[str, ...], sentence: str
) -> None:
    done = run_rgpu_plain("run", "--manager", one.manager.address, *options, "--", "true")
    assert done.returncode != 0
    assert sentence in done.stderr
