"""The device plugin keeps, grants and ends leases of many containers at the same time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace as Object
from typing import Any

import pytest

from rgpu_cluster.kubelet.errors import PrepareError
from rgpu_cluster.kubelet.units import keeping
from rgpu_cluster.kubelet.units.held import HeldFolder
from rgpu_cluster.kubelet.units.keeping import Container, Keeper
from rgpu_cluster.kubelet.units.vocabulary import VOCABULARIES

pytestmark = pytest.mark.asyncio
WORDS = VOCABULARIES["gpumanager"]
CORE, MEMORY = (one.name for one in WORDS.resources)
_SECONDS = 60.0


class Daemon:
    """A server. stuck: the tenant whose grants it does not answer; slow: it answers no revoke."""

    def __init__(self) -> None:
        self.report = Object(address="here:1")
        self.granted: list[str] = []
        self.revoking: list[str] = []
        self.kept: list[set[str]] = []
        self.stuck = ""
        self.slow, self.refuses = False, False
        self.called = asyncio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Waits until the calls so far fulfil `condition`."""
        while not condition():
            self.called.clear()
            await asyncio.wait_for(self.called.wait(), _SECONDS)

    async def grant(self, request: str, attempt: int, tenant: str, *_: Any) -> None:
        if tenant == self.stuck:
            await asyncio.Event().wait()
        self.granted.append(request)

    async def revoke(self, request: str, attempt: int) -> None:
        self.revoking.append(request)
        self.called.set()
        if self.refuses:
            raise PrepareError("the server of this node: it has a defect")
        if self.slow:
            await asyncio.Event().wait()

    async def keep(self, requests: Iterable[str]) -> None:
        self.kept.append(set(requests))
        self.called.set()


class World:
    """A node with a card, and its kubelet. Container n has unit n. away: why the kubelet does not
    answer.
    """

    def __init__(self, folder: Path) -> None:
        self.daemon, self.there = Daemon(), list[Container]()
        self.away = ""
        daemon: Any = self.daemon
        self.keeper = Keeper(WORDS, HeldFolder(folder), daemon, self, b"k" * 32)

    async def listed(self) -> list[Container]:
        if self.away:
            raise PrepareError(self.away)
        return list(self.there)

    async def chosen(self, number: int, tenant: str) -> tuple[list[str], str]:
        """Returns the units of a container that the kubelet has admitted, and its lease."""
        ids = [f"gpu-0.{number}"]
        given = await self.keeper.allocate(ids)
        self.there.append(
            Container(tenant, f"pod-{number}", "main", tuple(ids), {CORE: 1, MEMORY: 1})
        )
        return ids, given.lease

    async def runs(self, number: int, tenant: str) -> str:
        ids, lease = await self.chosen(number, tenant)
        await self.keeper.start(ids)
        return lease


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "units")


async def test_a_grant_that_is_not_answered_holds_up_no_other_container(world: World) -> None:
    world.daemon.stuck = "team"
    ids, _ = await world.chosen(1, "team")
    stuck = asyncio.ensure_future(world.keeper.start(ids))
    await asyncio.sleep(0)
    lease = await asyncio.wait_for(world.runs(2, "bob"), _SECONDS)
    await asyncio.wait_for(world.keeper.round(), _SECONDS)
    assert world.daemon.granted == [lease]
    assert world.daemon.kept == [{lease}]
    stuck.cancel()


@pytest.mark.parametrize("how", ["slow", "refuses"])
async def test_leases_are_kept_while_others_do_not_end(world: World, how: str) -> None:
    """Else they would end after a minute, with what runs in them."""
    setattr(world.daemon, how, True)
    gone = [await world.runs(number, "team") for number in range(50)]
    world.there.clear()
    stays = await world.runs(50, "bob")

    async def rounds() -> None:
        while len(world.daemon.kept) < 3:
            await world.keeper.round()
            await asyncio.sleep(0)

    await asyncio.wait_for(rounds(), _SECONDS)
    assert world.daemon.kept == [{stays}] * 3
    assert set(world.daemon.revoking) <= set(gone)
    await asyncio.wait_for(world.runs(51, "carol"), _SECONDS)


async def test_units_that_have_another_container_now_keep_its_lease(world: World) -> None:
    """The kubelet gives units again while the lease of their last container is about to end."""
    await world.runs(1, "team")
    world.there.clear()
    await world.keeper.round()
    lease = await asyncio.wait_for(world.runs(1, "bob"), _SECONDS)
    await world.keeper.round()
    await asyncio.sleep(0)
    assert lease not in world.daemon.revoking
    assert world.daemon.kept[-1] == {lease}


async def _ended_slowly(world: World) -> list[str]:
    """The pods of a team end, one more than the server ends at once; it ends none of them. Returns
    their leases.
    """
    world.daemon.slow = True
    leases = [await world.runs(number, "team") for number in range(keeping._ENDS_AT_ONCE + 1)]
    world.there.clear()
    await world.keeper.round()
    await world.daemon.until(lambda: len(world.daemon.revoking) == keeping._ENDS_AT_ONCE)
    world.daemon.slow = False
    return leases


async def test_a_lease_is_kept_whose_units_had_one_that_waits_for_its_end(world: World) -> None:
    """Else it would end after a minute, with what runs in it."""
    leases = await _ended_slowly(world)
    (waits,) = (n for n, one in enumerate(leases) if one not in world.daemon.revoking)
    lease = await asyncio.wait_for(world.runs(waits, "bob"), _SECONDS)
    await world.keeper.round()
    assert world.daemon.kept[-1] == {lease}


async def test_a_lease_that_is_granted_again_is_kept_while_its_end_waited(world: World) -> None:
    """A container starts again, and the kubelet had not listed it for a moment."""
    leases = await _ended_slowly(world)
    (waits,) = (n for n, one in enumerate(leases) if one not in world.daemon.revoking)
    ids = (f"gpu-0.{waits}",)
    world.there.append(Container("team", "pod", "main", ids, {CORE: 1, MEMORY: 1}))
    await asyncio.wait_for(world.keeper.start(ids), _SECONDS)
    await world.keeper.round()
    assert world.daemon.kept[-1] == {leases[waits]}


async def test_leases_are_kept_while_the_kubelet_does_not_answer(world: World) -> None:
    """A kubelet that is updated is away for a minute, and its containers run on."""
    lease = await world.runs(1, "team")
    world.away = "the kubelet does not list its containers"
    with pytest.raises(PrepareError, match=world.away):
        await world.keeper.round()
    assert world.daemon.kept == [{lease}]


async def test_a_kubelet_that_does_not_answer_is_told_once(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "ROUND_SECONDS", 0)
    await world.runs(1, "team")
    world.away = "the kubelet does not list its containers"
    runs = asyncio.ensure_future(world.keeper.run())
    await world.daemon.until(lambda: len(world.daemon.kept) >= 5)
    runs.cancel()
    await asyncio.wait([runs])
    assert _warnings(caplog) == [world.away]


async def test_a_lease_that_cannot_be_ended_is_told_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    lease = await world.runs(1, "team")
    world.there.clear()
    world.daemon.refuses = True
    while len(world.daemon.revoking) < 5:
        await world.keeper.round()
        await asyncio.sleep(0)
    (line,) = _warnings(caplog)
    assert lease in line
    assert "the server of this node: it has a defect" in line


async def test_a_lease_that_ended_for_the_next_container_is_not_told(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server refuses to end it once. Before the keeper hears of that, the units have another
    container, for which the lease did end. The keeper would remember it without end.
    """
    await world.runs(1, "team")
    world.there.clear()
    answers: list[PrepareError | None] = [PrepareError("it has a defect"), None]

    async def revoke(*_: Any) -> None:
        if (answer := answers.pop(0)) is not None:
            raise answer

    monkeypatch.setattr(world.daemon, "revoke", revoke)
    await world.keeper.round()
    lease = await asyncio.wait_for(world.runs(1, "bob"), _SECONDS)
    await world.keeper.round()
    assert answers == []
    assert world.daemon.kept[-1] == {lease}
    assert _warnings(caplog) == []
    assert world.keeper._told == set()


def _warnings(log: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in log.records if one.levelno >= logging.WARNING]
