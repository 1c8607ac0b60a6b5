"""A run that dies between the grant and its program's first call: its room comes back at once."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Iterator

import pytest
from helpers.manager import ManagerProcess, free_port
from helpers.nodes import Nodes, ended, start, started, where
from helpers.waiting import wait_until

SMALL = ("-v", "--share", "10%", "--memory", "64MiB")
# Below the minute that a server waits for a program, and enough for a busy machine.
SOON = 40.0
CARD = "emulated:512MiB"


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with (
        ManagerProcess() as manager,
        Nodes(manager, {"gpu1": "r1"}, CARD, "--device", CARD) as found,
    ):
        yield found


@pytest.fixture(scope="module")
def silent() -> Iterator[Nodes]:
    """The node is at an address that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener, ManagerProcess() as manager:
        advertised = ("--advertise", f"127.0.0.1:{listener.getsockname()[1]}")
        with Nodes(manager, {"gpu1": "r1"}, CARD, "--device", CARD, *advertised) as found:
            yield found


def _soon_idle(nodes: Nodes, since: float) -> None:
    nodes.idle(SOON)
    assert time.monotonic() - since < SOON


@pytest.mark.parametrize("cards", ["1", "2"])
def test_rgpu_run_is_killed_before_it_reaches_the_server(silent: Nodes, cards: str) -> None:
    run = start(silent.manager.address, *SMALL, "--cards", cards)
    with run:
        wait_until(lambda: len(silent.booked()["gpu1"]) == int(cards))
        run.send_signal(signal.SIGKILL)
        since = time.monotonic()
        run.communicate()
        _soon_idle(silent, since)


def test_one_that_is_stopped_keeps_its_lease(silent: Nodes) -> None:
    """Only a client that has gone gives it back, not one that is slow."""
    run = start(silent.manager.address, *SMALL)
    with run:
        wait_until(lambda: len(silent.booked()["gpu1"]) == 1)
        run.send_signal(signal.SIGSTOP)
        (request,) = silent.booked()["gpu1"]
        # A whole run of another client passes meanwhile.
        other = start(silent.manager.address, *SMALL)
        with other:
            wait_until(lambda: len(silent.booked()["gpu1"]) == 2)
            other.kill()
            wait_until(lambda: silent.booked()["gpu1"] == {request})
        run.kill()
        since = time.monotonic()
        run.communicate()
        _soon_idle(silent, since)


def test_its_program_is_killed_before_its_first_call(nodes: Nodes) -> None:
    source = "print('started', flush=True); wait_for_line()"
    with started(nodes.manager.address, *SMALL, source=source) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "started\n"
        assert len(nodes.booked()["gpu1"]) == 1
        run.send_signal(signal.SIGKILL)
        since = time.monotonic()
        run.wait()
        _soon_idle(nodes, since)


def test_rgpu_run_is_killed_while_its_server_has_not_answered(nodes: Nodes) -> None:
    nodes.signal("gpu1", signal.SIGSTOP)
    run = start(nodes.manager.address, *SMALL)
    with run:
        try:
            wait_until(lambda: bool(nodes.manager.leases()))
        finally:
            run.send_signal(signal.SIGKILL)
            run.communicate()
            nodes.signal("gpu1", signal.SIGCONT)
        _soon_idle(nodes, time.monotonic())


def test_a_program_that_runs_needs_neither_client_nor_manager(nodes: Nodes) -> None:
    """The end of rgpu run's connection, which its program's start closes, takes nothing away."""
    with started(nodes.manager.address, *SMALL) as run:
        _, request = where(run)
        assert nodes.booked()["gpu1"] == {request}
        nodes.manager.restart()
        nodes.manager.has("gpu1")
        assert nodes.booked()["gpu1"] == {request}
        assert ended(run)[:2] == (0, ["right"])
    nodes.idle()


@pytest.mark.full
def test_a_manager_that_is_killed_at_that_moment_harms_nothing(silent: Nodes) -> None:
    """Nobody watches the client then, so that the server's own minute counts."""
    run = start(silent.manager.address, *SMALL)
    with run:
        wait_until(lambda: len(silent.booked()["gpu1"]) == 1)
        silent.manager.restart()
        silent.manager.has("gpu1")
        assert len(silent.booked()["gpu1"]) == 1
        run.kill()
        run.communicate()
    # In one look: it may end meanwhile.
    assert all(one["remaining_seconds"] <= 60 for one in silent.leases("gpu1"))
    silent.kill("gpu1")
    wait_until(lambda: "gpu1" not in silent.manager.connected())
    silent.start("gpu1")
    silent.manager.has("gpu1")
    silent.idle(90)


@pytest.mark.parametrize("order", [("0.0.0.0", "[::]"), ("[::]", "0.0.0.0")])
def test_a_manager_listens_on_all_addresses_of_both_families(order: tuple[str, str]) -> None:
    port = free_port()
    options = [word for host in order for word in ("--listen", f"{host}:{port}")]
    with ManagerProcess(*options, "--insecure") as manager:
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, port), timeout=60).close()
        assert f"0.0.0.0:{port}" in manager.told()
        assert f"[::]:{port}" in manager.told()
