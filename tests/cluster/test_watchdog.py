"""When the watchdog takes the managers for gone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from types import SimpleNamespace as Object
from typing import Any

import pytest

from rgpu_cluster.kubernetes import watchdog
from rgpu_cluster.kubernetes.election import Record
from rgpu_cluster.kubernetes.watchdog import Watch


def test_a_lease_that_is_renewed_is_led() -> None:
    watch = Watch(30.0, 0.0)
    for step in range(100):
        assert watch.is_led(Record("a", str(step)), 20.0 * step)


def test_a_lease_that_nobody_renews_is_not() -> None:
    watch = Watch(30.0, 0.0)
    assert watch.is_led(Record("a", "1"), 5.0)
    assert watch.is_led(Record("a", "1"), 34.0)
    assert not watch.is_led(Record("a", "1"), 35.0)
    assert watch.is_led(Record("b", "2"), 36.0)


def test_no_lease_at_all_is_waited_for_as_long() -> None:
    watch = Watch(30.0, 100.0)
    assert watch.is_led(None, 129.0)
    assert not watch.is_led(None, 130.0)


def test_a_gate_that_a_policy_keeps_is_not_tried_at_each_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in a namespace whose GpuQuota is enforced."""
    now, tried = 1000.0, 0
    monkeypatch.setattr(watchdog.time, "monotonic", lambda: now)

    class NoLease:
        async def list(self, *_: object, **__: object) -> AsyncIterator[object]:
            for one in ():
                yield one

    class Kept:
        async def release(self, *_: object) -> bool:
            nonlocal tried
            tried += 1
            return False

    made: Any = watchdog.Watchdog(NoLease(), "rgpu-system", 0.0)  # type: ignore[arg-type]
    made._writer = Kept()
    gate = Object(name="rgpu.dev/placement")
    pod = Object(
        metadata=Object(uid="u", deletionTimestamp=None), spec=Object(schedulingGates=[gate])
    )
    made._pods.store["team", "train"] = pod
    for seconds, times in ((0, 1), (2, 1), (2, 1), (30, 2), (2, 2)):
        now += seconds
        asyncio.run(look(made))
        assert tried == times


async def look(made: watchdog.Watchdog) -> None:
    """Looks once, and waits until all that was begun has been written."""
    await made._look()
    await asyncio.gather(*made._going.values())


def test_a_namespace_with_many_gated_pods_does_not_hold_up_others() -> None:
    released: list[str] = []

    class Api:
        async def list(self, *_: object, **__: object) -> AsyncIterator[object]:
            for one in ():
                yield one

        async def patch(self, _: object, name: str, *__: object, **___: object) -> None:
            await asyncio.sleep(0)
            released.append(name)

    made = watchdog.Watchdog(Api(), "rgpu-system", 0.0)  # type: ignore[arg-type]
    names = [("team", f"train-{number:03}") for number in range(200)]
    for namespace, name in [*names, ("bob", "train")]:
        made._pods.store[namespace, name] = gated(namespace, name)
    asyncio.run(look(made))
    assert len(released) == 201
    # The first places were taken before bob's pod was looked at.
    assert released.index("train") <= 2 * 32


def test_pods_that_wait_for_their_write_stay_gated_once_a_manager_leads_again() -> None:
    released: list[str] = []

    class Api:
        def __init__(self) -> None:
            self.full = asyncio.Event()

        async def list(self, *_: object, **__: object) -> AsyncIterator[object]:
            for one in ():
                yield one

        async def patch(self, _: object, name: str, *__: object, **___: object) -> None:
            released.append(name)
            if len(released) == 32:
                self.full.set()
            await asyncio.Event().wait()

    async def work() -> None:
        api = Api()
        made = watchdog.Watchdog(api, "rgpu-system", 60.0)  # type: ignore[arg-type]
        made._watch = Watch(0.0, 0.0)
        for number in range(40):
            made._pods.store["team", f"train-{number}"] = gated("team", f"train-{number}")
        await made._look()
        await api.full.wait()
        made._watch = Watch(60.0, time.monotonic())
        await made._look()
        assert not made._going

    asyncio.run(asyncio.wait_for(work(), 30.0))
    assert len(released) == 32


def gated(namespace: str, name: str) -> Any:
    metadata = Object(
        uid=f"uid-of-{namespace}-{name}", name=name, namespace=namespace, annotations=None,
        deletionTimestamp=None,
    )  # fmt: skip
    gate = Object(name="rgpu.dev/placement")
    return Object(
        metadata=metadata, spec=Object(schedulingGates=[gate]), status=Object(conditions=None)
    )
