"""Servers that stop or die between an order to shrink a lease and their answer."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from helpers.nodes import STAYS, Nodes, check_books, configured, ended, patient, started, where
from helpers.waiting import wait_until

from rgpu_common.units import PPM

pytestmark = pytest.mark.full

RACKS = {"gpu1": "r1", "gpu2": "r1"}
ELASTIC = ("-v", "--share", "80%", "--memory", "64MiB", "--min-share", "20%")
# Comes after the elastic lease, on a card that is otherwise too full.
LATE = ("-v", "--share", "60%", "--memory", "64MiB", "--wait")
# Counts on the device until it is told to end.
COUNTING = r"""
from helpers.add_one import PTX
import select, sys
cuda.open()
address = cuda.alloc(1 << 20)
cuda.upload(address, bytes(1 << 20))
add_one = cuda.function(cuda.load(PTX), "add_one")
print("open", flush=True)
launched = 0
while not select.select([sys.stdin], [], [], 0)[0]:
    cuda.launch(add_one, 4, 32, address)
    cuda.synchronize()
    launched += 1
counted = int.from_bytes(cuda.download(address, 4), "little")
print("right" if counted == launched * 128 else f"wrong: {counted} of {launched}")
"""
# Asks again while its server starts again.
RETRYING = f"""
import time
until = time.monotonic() + 60
# CUDA_ERROR_DEVICE_UNAVAILABLE
while cuda.result("cuInit", 0) == 46 and time.monotonic() < until:
    time.sleep(0.02)
{STAYS}
"""


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Two servers of one card. The manager gives one up that is silent, but not before a run has
    come on a busy machine.
    """
    text = "[nodes]\nsilence_seconds = 20\ngrant_seconds = 4\n"
    folder = tmp_path_factory.mktemp("manager")
    with configured(folder, text, RACKS, "emulated:512MiB", *patient(folder)) as nodes:
        yield nodes


@pytest.fixture
def nodes(two: Nodes) -> Iterator[Nodes]:
    """Afterwards nothing is left of the test's runs."""
    yield two
    for name in RACKS:
        two.signal(name, signal.SIGCONT)  # a test that has failed leaves it stopped
    two.manager.has(*RACKS)
    two.idle()


def shares(nodes: Nodes, name: str) -> dict[str, int]:
    """The share of each lease of a run, as the server itself says. They fit on its card."""
    found = {
        str(one["key"]).partition(".")[0]: int(one["quota"]["share_request_ppm"])
        for one in nodes.leases(name)
        if str(one["key"]).startswith("run-")
    }
    assert sum(found.values()) <= PPM
    return found


def goes_on(nodes: Nodes, name: str) -> None:
    nodes.signal(name, signal.SIGCONT)


def goes_on_late(nodes: Nodes, name: str) -> None:
    """The manager has given it up. The order is still in its socket."""
    wait_until(lambda: name not in {one["name"] for one in nodes.manager.pool()["nodes"]})
    nodes.signal(name, signal.SIGCONT)


def is_killed(nodes: Nodes, name: str) -> None:
    nodes.kill(name)
    nodes.start(name)


def is_killed_late(nodes: Nodes, name: str) -> None:
    wait_until(lambda: name not in {one["name"] for one in nodes.manager.pool()["nodes"]})
    is_killed(nodes, name)


def shrinks(nodes: Nodes, elastic: list[str]) -> None:
    """Waits until the manager has told leases to make room: a claim is beside each of them."""
    wait_until(lambda: len(nodes.manager.leases()) > len(elastic))


@pytest.mark.parametrize("then", [goes_on, goes_on_late, is_killed, is_killed_late])
def test_a_server_stops_before_it_answers(nodes: Nodes, then: Callable[[Nodes, str], None]) -> None:
    address = nodes.manager.address
    with ExitStack() as stack:
        first = [stack.enter_context(started(address, *ELASTIC)) for _ in RACKS]
        there = dict(where(run) for run in first)
        assert set(there) == set(RACKS)
        # Both would do, so both stop.
        for name in RACKS:
            nodes.signal(name, signal.SIGSTOP)
        late = stack.enter_context(started(address, *LATE))
        shrinks(nodes, list(there.values()))
        for name in RACKS:
            then(nodes, name)
        name, request = where(late)
        nodes.manager.has(*RACKS)
        check_books(nodes.manager.pool())
        assert shares(nodes, name) == {there[name]: 400_000, request: 600_000}
        assert ended(late)[:2] == (0, ["right"])
        for name, elastic in there.items():
            wait_until(lambda name=name, elastic=elastic: shares(nodes, name) == {elastic: 800_000})
        for run in first:
            assert ended(run)[:2] == (0, ["right"])


@pytest.mark.parametrize("then", [goes_on_late, is_killed])
def test_one_of_two_servers_stops_before_it_answers_for_a_gang(
    nodes: Nodes, then: Callable[[Nodes, str], None]
) -> None:
    """The other one has made room already. It is granted with the first, or nobody is."""
    address = nodes.manager.address
    with ExitStack() as stack:
        first = [stack.enter_context(started(address, *ELASTIC)) for _ in RACKS]
        there = dict(where(run) for run in first)
        nodes.signal("gpu2", signal.SIGSTOP)
        gang = [
            stack.enter_context(started(address, *LATE, "--gang", f"{then.__name__}:2"))
            for _ in RACKS
        ]
        wait_until(lambda: len(nodes.manager.leases()) == 4)
        wait_until(lambda: shares(nodes, "gpu1") == {there["gpu1"]: 400_000})
        then(nodes, "gpu2")
        placed = dict(where(run) for run in gang)
        nodes.manager.has(*RACKS)
        check_books(nodes.manager.pool())
        for name in RACKS:
            assert shares(nodes, name) == {there[name]: 400_000, placed[name]: 600_000}
        for run in gang:
            assert ended(run)[:2] == (0, ["right"])
        for run in first:
            assert ended(run)[:2] == (0, ["right"])


def test_a_server_that_dies_while_its_programs_count_harms_none_of_them(nodes: Nodes) -> None:
    """The daemon is killed as soon as the manager has asked, whatever it has done by then."""
    address = nodes.manager.address
    for _ in range(2):
        with ExitStack() as stack:
            busy = [stack.enter_context(started(address, *ELASTIC, source=COUNTING)) for _ in RACKS]
            there = dict(where(run) for run in busy)
            late = stack.enter_context(started(address, *LATE, source=RETRYING))
            shrinks(nodes, list(there.values()))
            for name in RACKS:
                is_killed(nodes, name)
            where(late)
            nodes.manager.has(*RACKS)
            check_books(nodes.manager.pool())
            for name in RACKS:
                shares(nodes, name)
            for run in (late, *busy):
                status, lines, errors = ended(run)
                assert (status, lines) == (0, ["right"]), errors
        nodes.idle()
