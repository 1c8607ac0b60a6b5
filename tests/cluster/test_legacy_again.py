"""The legacy controllers' second looks: when an object is looked at after a failure."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from lightkube import AsyncClient

from rgpu_cluster.kubernetes.legacy.again import Again, Key
from rgpu_cluster.kubernetes.legacy.controllers import Controller, SharePod

ONE, OTHER = ("team", "one"), ("team", "other")


class Timers:
    """Pauses as they were asked for; `ring` ends the last one."""

    def __init__(self) -> None:
        self.pauses: list[float] = []
        self.cancelled = 0
        self._last: Callable[[], None] = lambda: None

    def later(self, seconds: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        self.pauses.append(seconds)
        self._last = call
        return cast("asyncio.TimerHandle", self)

    def cancel(self) -> None:
        self.cancelled += 1

    def ring(self) -> None:
        self._last()


def test_pauses_grow_to_a_minute_for_each_object() -> None:
    timers, looked = Timers(), list[Key]()
    again = Again(looked.append, timers.later)
    for _ in range(8):
        again.failed(ONE)
        assert again.waits(ONE)
        timers.ring()
        assert not again.waits(ONE)
    assert timers.pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    assert looked == [ONE] * 8
    again.failed(OTHER)
    assert timers.pauses[-1] == 1


def test_an_object_that_changes_begins_anew() -> None:
    timers = Timers()
    again = Again(lambda key: None, timers.later)
    for _ in range(3):
        again.failed(ONE)
    # Each failure replaces the timer of the one before.
    assert timers.cancelled == 2
    again.begin_anew(ONE)
    assert timers.cancelled == 3
    assert not again.waits(ONE)
    again.failed(ONE)
    assert timers.pauses == [1, 2, 4, 1]
    again.close()
    assert timers.cancelled == 4


class Failing(Controller):
    """The API server cannot be reached, until `works`."""

    def __init__(self, timers: Timers) -> None:
        super().__init__(cast("AsyncClient", None))
        self._again = Again(self.look, timers.later)
        self.works = False
        self.looked = 0

    async def keep(self, key: Key) -> None:
        self.looked += 1
        if not self.works:
            raise OSError("no route to host")

    async def work(self) -> None:
        await self._work()


def test_a_controller_tries_less_often_until_the_object_changes() -> None:
    async def story() -> tuple[list[float], int]:
        timers = Timers()
        controller = Failing(timers)
        controller.watch(SharePod, lambda one: [(one.metadata.namespace, one.metadata.name)])
        (informer,) = controller.informers
        told: Any = informer
        metadata = SimpleNamespace(namespace=ONE[0], name=ONE[1])
        told._on_change(None, SimpleNamespace(metadata=metadata))
        for _ in range(3):
            await controller.work()
            timers.ring()
        told._on_change(None, SimpleNamespace(metadata=metadata))
        await controller.work()
        timers.ring()
        controller.works = True
        await controller.work()
        controller.works = False
        controller.look(ONE)
        await controller.work()
        return timers.pauses, controller.looked

    assert asyncio.run(story()) == ([1, 2, 4, 1, 1], 6)
