"""When the watchdog takes the managers for gone."""

from __future__ import annotations

import asyncio
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
        asyncio.run(made._look())
        assert tried == times
