"""`--across-nodes` and the bounds of racks: a program with cards of several servers, all or none."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from helpers.command import run_rgpu_plain
from helpers.nodes import Nodes, check_end, configured, ended, patient, started, where
from helpers.two_devices import HEAD
from helpers.waiting import wait_until

RACKS = {"gpu1": "r1", "gpu2": "r1", "gpu3": "r2"}
ACROSS = ("-v", "--share", "60%", "--memory", "64MiB", "--cards", "3", "--across-nodes")
# Writes a word on device 0, copies it over device 1 to device 2, and adds to it there.
COPIES = (
    HEAD.replace("range(2)", "range(number('cuDeviceGetCount'))")
    + r"""
print(len(contexts), flush=True)
places = []
for device in range(len(contexts)):
    current(device)
    places.append(cuda.alloc(4096))
current(0)
module = cuda.load(PTX)
launch(cuda.function(module, "fill"), places[0], 40)
for device in range(1, len(contexts)):
    cuda("cuMemcpyPeer", c_uint64(places[device]), contexts[device],
         c_uint64(places[device - 1]), contexts[device - 1], c_size_t(4))
    current(device)
    function = cuda.function(cuda.load(PTX), "more")
    launch(function, places[device], 1)
    cuda("cuCtxSynchronize")
print(word(places[-1]))
wait_for_line()
"""
)


@contextmanager
def cluster(folder: Path, grant_seconds: int, silence_seconds: int) -> Iterator[Nodes]:
    """Three servers of one card, two of them in one rack, and a manager as patient as it is told."""
    text = f"[nodes]\nsilence_seconds = {silence_seconds}\ngrant_seconds = {grant_seconds}\n"
    with configured(folder, text, RACKS, "emulated:256MiB", *patient(folder)) as nodes:
        yield nodes


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """The manager soon gives a server up, but not before a run has come on a busy machine."""
    with cluster(tmp_path_factory.mktemp("manager"), 10, 20) as nodes:
        yield nodes


@pytest.fixture
def nodes(three: Nodes) -> Iterator[Nodes]:
    """Afterwards nothing is left of the test's runs."""
    yield three
    three.manager.has(*RACKS)
    three.idle()


@contextmanager
def stopped(nodes: Nodes, name: str) -> Iterator[None]:
    """A server that answers nobody."""
    nodes.signal(name, signal.SIGSTOP)
    try:
        yield
    finally:
        nodes.signal(name, signal.SIGCONT)


def refused(nodes: Nodes, *options: str) -> str:
    """Returns the line that says why a run does not start."""
    done = run_rgpu_plain("run", "--manager", nodes.manager.address, *options, "--", "true")
    assert done.returncode != 0
    return done.stderr.splitlines()[-1]


def held(nodes: Nodes, *names: str) -> list[int]:
    """Returns how many leases of runs servers have."""
    return [sum(str(one["key"]).startswith("run-") for one in nodes.leases(name)) for name in names]


def test_a_program_has_cards_of_three_servers_and_copies_between_them(nodes: Nodes) -> None:
    with started(nodes.manager.address, *ACROSS, source=COPIES) as run:
        said = where_all(run)
        assert {name for name, _ in said} == set(RACKS)
        request = said[0][1]
        keys = [request, f"{request}.1", f"{request}.2"]
        assert sorted(key for some in nodes.booked().values() for key in some) == keys
        assert [len(some) for some in nodes.booked().values()] == [1, 1, 1]
        told = run_rgpu_plain("explain", request, "--manager", nodes.manager.address).stdout
        assert "gpu1/0, gpu2/0, gpu3/0" in told
        status, lines, errors = ended(run)
        assert (status, lines) == (0, ["42"]), errors


def where_all(run: subprocess.Popen[str]) -> list[tuple[str, str]]:
    """Returns each node that `rgpu run -v` names, with the request; the program is open then."""
    assert run.stderr is not None
    assert run.stdout is not None
    said = next((line for line in run.stderr if "(request run-" in line), "")
    assert run.stdout.readline() == "3\n", said + run.stderr.read()
    request = said.split()[-1].rstrip(")")
    places = said.partition(": ")[2].split(" and ")
    return [(place.split()[0], request) for place in places]


def test_one_node_is_the_default_and_the_refusal_names_the_option(nodes: Nodes) -> None:
    for option in ((), ("--one-node",)):
        said = refused(nodes, "--cards", "3", *option)
        assert "no node has 3 cards" in said
        assert "--across-nodes takes cards of several nodes" in said
    assert "too few cards" in refused(nodes, "--cards", "4", "--across-nodes")


def test_a_rack_gives_as_many_cards_as_it_may(nodes: Nodes) -> None:
    address = nodes.manager.address
    with started(address, "-v", "--cards", "2", "--max-per-rack", "1", source=COPIES) as run:
        name, _ = where(run)
        assert name in ("gpu1", "gpu2")
        assert held(nodes, "gpu3") == [1]
        check_end(run, "41")
    said = refused(nodes, "--cards", "3", "--max-per-rack", "1", "--wait")
    assert "too few racks for 3 cards with at most 1 in each" in said
    assert "raise --max-per-rack" in said


def test_members_of_a_gang_are_in_different_racks(nodes: Nodes) -> None:
    address = nodes.manager.address
    gang = ("-v", "--share", "30%", "--wait", "--max-per-rack", "1", "--gang")
    with ExitStack() as stack:
        runs = [stack.enter_context(started(address, *gang, "apart:2")) for _ in range(2)]
        assert sorted(RACKS[where(run)[0]] for run in runs) == ["r1", "r2"]
        assert [ended(run)[0] for run in runs] == [0, 0]
    with ExitStack() as stack:
        runs = [stack.enter_context(started(address, *gang, "many:3")) for _ in range(3)]
        for run in runs:
            status, _, errors = ended(run)
            assert status != 0
            assert "too few cards for the 3 of this gang with at most 1 in each rack" in errors


def test_nothing_is_held_while_one_card_is_missing(nodes: Nodes) -> None:
    address = nodes.manager.address
    with started(address, "-v", "--whole", "--local", RGPU_NODE="gpu2") as full:
        where(full)
        assert "wait for room with --wait" in refused(nodes, *ACROSS)
        with started(address, *ACROSS, "--wait", source=COPIES) as run:
            wait_until(lambda: bool(nodes.manager.pool()["waiting"]))
            assert held(nodes, "gpu1", "gpu2", "gpu3") == [0, 1, 0]
            assert ended(full)[0] == 0
            assert len(where_all(run)) == 3
            check_end(run, "42")


def test_leases_of_three_servers_make_room_for_all_cards_or_for_none(nodes: Nodes) -> None:
    address = nodes.manager.address
    small = ("-v", "--share", "80%", "--memory", "64MiB", "--min-share", "30%", "--local")
    with ExitStack() as stack:
        there = [
            stack.enter_context(started(address, *small, RGPU_NODE=name))
            for name in ("gpu1", "gpu2")
        ]
        # One that keeps its size: then nobody shrinks.
        firm = stack.enter_context(started(address, *small[:5], "--local", RGPU_NODE="gpu3"))
        for run in (*there, firm):
            where(run)
        assert "wait for room with --wait" in refused(nodes, *ACROSS)
        assert "shrunk" not in {event["kind"] for event in nodes.manager.events()}
        check_end(firm, "right")
        # The next one does not wait for its room, which comes back when its session has ended.
        wait_until(lambda: len(nodes.manager.leases()) == len(there))
        there.append(stack.enter_context(started(address, *small, RGPU_NODE="gpu3")))
        where(there[-1])
        with started(address, *ACROSS, source=COPIES) as run:
            assert len(where_all(run)) == 3
            shrunk = [event for event in nodes.manager.events() if event["kind"] == "shrunk"]
            assert {event["node"] for event in shrunk} == set(RACKS)
            check_end(run, "42")
        for run in there:
            check_end(run, "right")


@pytest.mark.full
def test_a_server_that_does_not_answer_costs_the_others_nothing(nodes: Nodes) -> None:
    with (
        stopped(nodes, "gpu2"),
        started(nodes.manager.address, *ACROSS, "--wait", source=COPIES) as run,
    ):
        # The others grant, and are told to revoke when the third has been silent for too long.
        wait_until(lambda: any(e["kind"] == "lost" for e in nodes.manager.events()), 60)
        wait_until(lambda: held(nodes, "gpu1", "gpu3") == [0, 0], 60)
        nodes.signal("gpu2", signal.SIGCONT)
        assert len(where_all(run)) == 3
        check_end(run, "42")


@pytest.mark.full
def test_a_manager_that_is_killed_between_the_grants_leaves_no_half(tmp_path: Path) -> None:
    with (
        cluster(tmp_path, 600, 600) as nodes,
        stopped(nodes, "gpu3"),
        started(nodes.manager.address, *ACROSS, "--wait", source=COPIES) as run,
    ):
        wait_until(lambda: held(nodes, "gpu1", "gpu2") == [1, 1], 60)
        nodes.manager.kill()
        nodes.manager.start()
        nodes.signal("gpu3", signal.SIGCONT)
        assert len(where_all(run)) == 3
        assert [len(keys) for keys in nodes.booked().values()] == [1, 1, 1]
        check_end(run, "42")
        nodes.idle()


@pytest.mark.full
def test_a_server_that_refuses_its_part_gives_the_others_back(nodes: Nodes, tmp_path: Path) -> None:
    config = tmp_path / "rgpu.toml"
    config.write_text('[tenants.ann]\nshare = "10%"\n')
    nodes.kill("gpu3")
    nodes.start("gpu3", "--config", str(config))
    nodes.manager.has(*RACKS)
    try:
        assert "tenant" in refused(nodes, *ACROSS, "--tenant", "ann")
        assert held(nodes, "gpu1", "gpu2", "gpu3") == [0, 0, 0]
        with started(nodes.manager.address, *ACROSS, "--tenant", "bob", source=COPIES) as run:
            assert len(where_all(run)) == 3
            check_end(run, "42")
    finally:
        nodes.kill("gpu3")
        nodes.start("gpu3")


def test_a_program_goes_on_when_the_daemon_of_one_card_dies(nodes: Nodes) -> None:
    with started(nodes.manager.address, *ACROSS, source=COPIES) as run:
        where_all(run)
        nodes.kill("gpu1")
        nodes.start("gpu1")
        nodes.manager.has(*RACKS)
        assert [len(keys) for keys in nodes.booked().values()] == [1, 1, 1]
        assert ended(run)[:2] == (0, ["42"])


def test_servers_that_are_listed_give_cards_together(nodes: Nodes) -> None:
    named = ",".join(nodes.servers[name].tcp for name in RACKS)
    wish = ("--server", named, "--cards", "3", "--share", "60%", "--memory", "64MiB")
    with started("", *wish, "--max-per-node", "1", source=COPIES) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "3\n"
        check_end(run, "42")
    done = run_rgpu_plain("run", *wish, "--", "true")
    assert "--across-nodes takes cards of several nodes" in done.stderr
    done = run_rgpu_plain("run", *wish, "--max-per-rack", "1", "--", "true")
    assert "use a manager" in done.stderr


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--across-nodes",), "add --cards"),
        (("--max-per-zone", "2"), "add --cards or --gang"),
        (("--cards", "2", "--max-per-node", "0"), "--max-per-node is a number from 1"),
        (("--cards", "2", "--one-node", "--max-per-rack", "1"), "leave one of them out"),
        (("--cards", "2", "--one-node", "--across-nodes"), "not allowed with argument"),
    ],
)
def test_bounds_that_contradict_are_named(
    three: Nodes, options: tuple[str, ...], sentence: str
) -> None:
    assert sentence in refused(three, *options)
