"""Reservations: `rgpu reserve`, programs that use one, and its end, on real servers."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from cluster_e2e.test_access import Guarded
from helpers.command import run_rgpu_plain
from helpers.manager import ManagerProcess
from helpers.nodes import Nodes, check_books, ended, started
from helpers.waiting import wait_until

RACKS = {"gpu1": "r1", "gpu2": "r2"}
# A limit of the manager that one test meets.
MOST = 4
SMALL = ("--share", "10%", "--memory", "64MiB")
# Asks the device again and again, until it is refused.
ENDLESS = r"""
import sys
cuda.open()
print("open", flush=True)
try:
    while True:
        cuda.free(cuda.alloc(4096))
except CudaError as error:
    print("ended with", error.result)
    sys.exit(3)
"""


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    config = tmp_path_factory.mktemp("manager") / "rgpu.toml"
    config.write_text(
        f"[reservations]\nmost_per_tenant = {MOST}\nlongest_seconds = 7200\n"
        "[tenants.ann]\nshare = 0.5\n"
    )
    with (
        ManagerProcess("--config", str(config)) as manager,
        Nodes(manager, RACKS, "emulated:512MiB", "--device", "emulated:512MiB") as found,
    ):
        yield found


@pytest.fixture
def manager(nodes: Nodes) -> Iterator[str]:
    """The manager's address; afterwards the test's reservations and runs are gone."""
    yield nodes.manager.address
    nodes.manager.release_all()
    wait_until(lambda: not nodes.manager.leases())
    wait_until(lambda: not any(nodes.leases(name) for name in RACKS))


def reserve(manager: str, *words: str, seconds: str = "1h", **variables: str) -> dict[str, Any]:
    """Reserves; returns what `rgpu reserve --json` prints."""
    done = run_rgpu_plain(
        "reserve", "--manager", manager, "--for", seconds, "--json", *words, **variables
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def refused(*words: str, **variables: str) -> str:
    """Returns the sentence with which a command fails."""
    done = run_rgpu_plain(*words, **variables)
    assert done.returncode != 0, done.stdout
    assert done.stdout == ""
    return done.stderr.splitlines()[-1]


def released(manager: str, reservation: str, *words: str) -> subprocess.CompletedProcess[str]:
    return run_rgpu_plain("release", reservation, "--manager", manager, *words)


def reservations(nodes: Nodes) -> list[dict[str, Any]]:
    return list(nodes.manager.pool()["reservations"])


def runs_in(manager: str, reservation: str, **environment: str) -> tuple[int, list[str], str]:
    """Runs a program in a reservation, to its end."""
    with started(manager, "--reservation", reservation, **environment) as run:
        return ended(run)


def test_it_prints_an_id_alone_and_says_where(manager: str) -> None:
    done = run_rgpu_plain(
        "reserve", "--manager", manager, "--for", "90s", "--name", "train", *SMALL
    )
    assert re.fullmatch(r"train-[0-9a-f]{16}\n", done.stdout)
    assert re.match(r"rgpu: reserved 1 card of gpu[12] for 1 min 30 s: ", done.stderr)


def test_programs_use_it_one_after_another_and_have_its_sizes(nodes: Nodes, manager: str) -> None:
    found = reserve(manager, "--share", "40%", "--memory", "96MiB")
    for _ in range(3):
        status, lines, errors = runs_in(manager, found["id"], RGPU_MEMORY="5GiB")
        assert (status, lines) == (0, [str(96 << 20), "right"]), errors
        assert nodes.manager.leases() == [found["id"]]
    assert [lease["key"] for lease in nodes.leases(found["node"])] == [found["id"]]


def test_two_at_once_share_its_memory_and_its_share(nodes: Nodes, manager: str) -> None:
    found = reserve(manager, *SMALL)
    with (
        started(manager, "--reservation", found["id"]) as first,
        started(manager, "--reservation", found["id"]) as second,
    ):
        for run in (first, second):
            assert run.stdout is not None
            assert run.stdout.readline() == f"{64 << 20}\n"
        (lease,) = nodes.leases(found["node"])
        assert len(lease["session_ids"]) == 2
        assert ended(first)[0] == ended(second)[0] == 0


def test_several_cards_are_reserved_and_used_together(nodes: Nodes, manager: str) -> None:
    found = reserve(manager, "--cards", "2", "--share", "50%", "--memory", "32MiB")
    assert sorted(found["devices"]) == [0, 1]
    assert runs_in(manager, found["id"])[0] == 0
    (shown,) = reservations(nodes)
    assert (shown["node"], shown["ordinals"], shown["share_ppm"]) == (found["node"], [0, 1], 500000)
    assert released(manager, found["id"]).returncode == 0
    # The server keeps the lease until the session of a program that has ended is over.
    wait_until(lambda: not nodes.leases(found["node"]))


@pytest.mark.full
def test_it_ends_by_itself_and_a_program_that_runs_is_told(nodes: Nodes, manager: str) -> None:
    # Long enough for the program to begin also where the processors are busy.
    found = reserve(manager, *SMALL, seconds="30s")
    with started(manager, "--reservation", found["id"], source=ENDLESS) as run:
        status, lines, errors = ended(run)
    # 911: the connection is gone, which a call notices first on some transports.
    assert (status, lines) in [(3, ["open", "ended with 46"]), (3, ["open", "ended with 911"])]
    assert f"the time of reservation {found['id']} is over; reserve for longer with" in errors
    wait_until(lambda: not reservations(nodes))
    # The server keeps the expired lease until the program's session has ended there.
    wait_until(lambda: not nodes.leases(found["node"]))
    said = refused("run", "--manager", manager, "--reservation", found["id"], "--", "true")
    assert re.search(r"ended .* ago, because its time was over; `rgpu reserve` makes another", said)


def test_pool_shows_what_is_left_of_its_time(nodes: Nodes, manager: str) -> None:
    found = reserve(manager, *SMALL, seconds="2h")
    (one,) = reservations(nodes)
    assert 7000 < one["left_seconds"] <= 7200
    text = run_rgpu_plain("pool", "--manager", manager).stdout
    row = next(line for line in text.splitlines() if line.startswith(found["id"]))
    assert re.search(r"\b1 h 5\d min\b", row)
    assert "10%" in row
    assert "ready" in row


def test_its_room_is_nobody_elses_although_nothing_runs(nodes: Nodes, manager: str) -> None:
    for name in RACKS:
        reserve(manager, "--whole", "--cards", "2", "--local", RGPU_NODE=name)
    said = refused("run", "--manager", manager, *SMALL, "--", "true")
    assert "wait for room with --wait" in said
    check_books(nodes.manager.pool())


def test_one_that_waits_gets_the_room_of_one_that_is_released(nodes: Nodes, manager: str) -> None:
    first = [reserve(manager, "--whole", "--cards", "2") for _ in RACKS]
    command = ["reserve", "--manager", manager, "--for", "1h", "--whole", "--wait=60", "--json"]
    with subprocess.Popen(_rgpu(*command), stdout=subprocess.PIPE, text=True, cwd="/") as later:
        wait_until(lambda: len(nodes.manager.pool()["waiting"]) == 1)
        assert released(manager, first[0]["id"]).returncode == 0
        output, _ = later.communicate(timeout=60)
    assert json.loads(output)["node"] == first[0]["node"]


def test_the_quota_of_a_tenant_counts_it(nodes: Nodes, manager: str) -> None:
    reserve(manager, "--share", "40%", "--memory", "64MiB", "--tenant", "ann")
    said = refused(
        "reserve", "--manager", manager, "--for", "1h", "--share", "20%", "--tenant", "ann"
    )
    assert "tenant ann may have shares of 0.5 cards in all" in said
    with started(manager, *SMALL, "--tenant", "ann") as run:
        assert ended(run)[0] == 0


def test_a_tenant_has_at_most_so_many(manager: str) -> None:
    for _ in range(MOST):
        reserve(manager, "--share", "1%", "--memory", "1MiB")
    said = refused("reserve", "--manager", manager, "--for", "1h", *SMALL)
    assert f"has {MOST} reservations, and a tenant has at most {MOST} here" in said
    reserve(manager, *SMALL, "--tenant", "bob")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("reserve", "--for", "3h"), "the longest here is 2 h"),
        (("reserve", "--for", "soon"), "write 90s, 30min, 2h or 1d"),
        (("reserve", "--for", "1h", "--name", "x_y"), "--name is 1 to 31 letters"),
        (("reserve", "--for", "1h", "--memory", "4GiB"), "the largest card has"),
        (("run", "--reservation", "x" * 300, "--", "true"), "has no reservation"),
        (("run", "--reservation", "res-0123456789abcdef", "--", "true"), "has no reservation"),
        (("run", "--reservation", "r", "--share", "5%", "--", "true"), "leave out --share"),
        (("run", "--reservation", "r", "--device", "0", "--", "true"), "leave out --device"),
        (("run", "--reservation", "r", "--cards", "2", "--", "true"), "has its place"),
        (("run", "--reservation", "r", "--wait", "--", "true"), "leave out --wait"),
        (("run", "--reservation", "r", "--hold", "--", "true"), "leave out --hold"),
        (("release", "run-0123456789abcdef"), "has no reservation"),
    ],
)
def test_what_cannot_be_is_refused_with_a_remedy(
    manager: str, words: tuple[str, ...], sentence: str
) -> None:
    assert sentence in refused(words[0], "--manager", manager, *words[1:])


def test_a_reservation_needs_a_manager() -> None:
    assert "name its manager" in refused("run", "--reservation", "r", "--", "true")
    assert "name the manager" in refused("release", "r")
    assert "name the manager" in refused("reserve", "--for", "1h")


def test_the_request_of_a_run_is_no_reservation(manager: str) -> None:
    with started(manager, "-v", *SMALL) as run:
        assert run.stdout is not None
        assert run.stdout.readline()
        assert run.stderr is not None
        request = re.search(r"request (run-\w+)", run.stderr.readline())
        assert request is not None
        assert "has no reservation" in refused("release", request[1], "--manager", manager)
        assert ended(run)[0] == 0


@pytest.mark.full
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_server_that_is_started_again_keeps_it_and_its_end(
    nodes: Nodes, manager: str, how: signal.Signals
) -> None:
    found = reserve(manager, *SMALL)
    name = found["node"]
    before = nodes.leases(name)[0]["remaining_seconds"]
    nodes.signal(name, how)
    nodes.servers[name].stop()
    nodes.start(name)
    nodes.manager.has(*RACKS)
    after = nodes.leases(name)[0]["remaining_seconds"]
    assert before - 60 < after < before
    assert runs_in(manager, found["id"])[0] == 0
    assert nodes.leases(name)[0]["remaining_seconds"] < after


@pytest.mark.full
def test_a_manager_that_is_killed_loses_none(nodes: Nodes, manager: str) -> None:
    found = reserve(manager, *SMALL)
    brief = reserve(manager, *SMALL, seconds="5s")
    nodes.manager.kill()
    wait_until(lambda: [x["key"] for x in _all_leases(nodes)] == [found["id"]])
    assert brief["id"] != found["id"]  # it ended without a manager
    nodes.manager.start()
    nodes.manager.has(*RACKS)
    (one,) = reservations(nodes)
    assert one["request_id"] == found["id"]
    assert one["left_seconds"] < 3600
    assert runs_in(manager, found["id"])[0] == 0
    assert released(manager, found["id"]).returncode == 0
    wait_until(lambda: not _all_leases(nodes))


@pytest.mark.full
def test_one_of_a_node_that_died_says_so(nodes: Nodes, manager: str) -> None:
    found = reserve(manager, *SMALL)
    name = found["node"]
    nodes.kill(name)
    try:
        wait_until(lambda: not reservations(nodes)[0]["connected"])
        said = refused("release", found["id"], "--manager", manager)
        assert f"is on node {name}, which is not connected now" in said
        wait_until(lambda: name not in {n["name"] for n in nodes.manager.pool()["nodes"]}, 60)
        said = refused("run", "--manager", manager, "--reservation", found["id"], "--", "true")
        assert f"is on node {name}, which is silent: if the node comes back" in said
    finally:
        nodes.start(name)
        nodes.manager.has(*RACKS)
    assert runs_in(manager, found["id"])[0] == 0


def test_its_tenant_cannot_keep_it_alive_on_the_server(nodes: Nodes, manager: str) -> None:
    found = reserve(manager, *SMALL)
    (lease,) = nodes.leases(found["node"])
    server = nodes.servers[found["node"]].tcp
    said = refused(
        "lease", "grant", found["id"], "--server", server, "--ttl", "80000", *SMALL,
    )  # fmt: skip
    assert "is a reservation, and its end is fixed" in said
    assert nodes.leases(found["node"])[0]["remaining_seconds"] <= lease["remaining_seconds"]


def test_a_gang_of_reservations_is_all_or_nothing(nodes: Nodes, manager: str) -> None:
    words = ["reserve", "--manager", manager, "--for", "1h", "--whole", "--cards", "2"]
    gang = [*words, "--gang", "pair:2", "--wait=60", "--json"]
    with subprocess.Popen(_rgpu(*gang), stdout=subprocess.PIPE, text=True, cwd="/") as first:
        wait_until(lambda: len(nodes.manager.pool()["waiting"]) == 1)
        assert reservations(nodes) == []
        with subprocess.Popen(_rgpu(*gang), stdout=subprocess.PIPE, text=True, cwd="/") as second:
            found = [json.loads(one.communicate(timeout=60)[0]) for one in (first, second)]
    assert {one["node"] for one in found} == set(RACKS)


def test_a_client_that_is_killed_in_line_reserves_nothing(nodes: Nodes, manager: str) -> None:
    first = [reserve(manager, "--whole", "--cards", "2") for _ in RACKS]
    command = _rgpu("reserve", "--manager", manager, "--for", "1h", "--whole", "--wait")
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd="/") as later:
        try:
            wait_until(lambda: len(nodes.manager.pool()["waiting"]) == 1)
        finally:
            later.kill()
    for one in first:
        assert released(manager, one["id"]).returncode == 0
    wait_until(lambda: not nodes.manager.leases() and not nodes.manager.pool()["waiting"], 60)


# Tenants


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder: Path = tmp_path_factory.mktemp("guarded")
    with ExitStack() as stack:
        found = Guarded(folder, stack)
        found.node("gpu1", "nodes:gpu1")
        found.manager.has("gpu1")
        yield found


def test_only_its_tenant_uses_it_and_an_operator_may_release_it(guarded: Guarded) -> None:
    done = guarded.ask("alice", "reserve", "--for", "1h", *SMALL, "--name", "mine")
    assert done.returncode == 0, done.stderr
    reservation = done.stdout.strip()
    for text in (reservation, "mine"):
        for words in (("run", "--reservation", text), ("release", text)):
            other = guarded.ask("bob", *words)
            assert other.returncode != 0
            assert "say which program" in other.stderr or (
                f"tenant bob has no reservation '{text}'" in other.stderr
            )
    said = guarded.ask("bob", "release", reservation, "--tenant", "alice").stderr
    assert "cannot ask for tenant 'alice'" in said
    assert reservation not in guarded.ask("bob", "pool").stdout
    assert reservation in guarded.ask("alice", "pool").stdout
    assert reservation in guarded.ask("root", "pool").stdout
    assert guarded.ask("root", "release", reservation).returncode == 0
    assert reservation not in guarded.ask("alice", "pool").stdout
    said = guarded.ask("alice", "release", reservation).stderr
    assert "because it was released" in said


def _all_leases(nodes: Nodes) -> list[dict[str, Any]]:
    return [lease for name in RACKS for lease in nodes.leases(name)]


def _rgpu(*words: str) -> list[str]:
    from helpers.command import rgpu_command

    return [rgpu_command(), *words]


def test_a_second_is_the_shortest(nodes: Nodes, manager: str) -> None:
    begun = time.monotonic()
    found = reserve(manager, *SMALL, seconds="1s")
    wait_until(lambda: not nodes.leases(found["node"]))
    assert time.monotonic() - begun > 1.0
