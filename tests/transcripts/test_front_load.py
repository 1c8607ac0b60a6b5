"""One namespace with thousands of claims and pods, which are meant to keep the manager busy."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from helpers.granting_link import shell_of
from lightkube.resources.core_v1 import Pod
from lightkube.resources.resource_v1 import DeviceClass, ResourceClaim

from rgpu_cluster.kubernetes import claim_reading
from rgpu_cluster.kubernetes.front import Front
from rgpu_cluster.kubernetes.reserved import Bounds
from rgpu_cluster.kubernetes.writing import Writer
from transcripts.test_front_start import listed

MANY = 400


class Writes:
    """Takes what would be written to the API server, and counts it by kind."""

    def __init__(self) -> None:
        self.counted: Counter[str] = Counter()

    async def patch(self, kind: Any, *_: Any, **__: Any) -> None:
        self.counted[kind.__name__] += 1

    async def replace(self, one: Any, *_: Any, **__: Any) -> Any:
        return one

    async def create(self, made: Any) -> None:
        self.counted[made.reason] += 1


def claim(name: str, **more: Any) -> Any:
    content = dict(listed("resourceclaims")[0])
    metadata = {"name": name, "namespace": "team", "uid": f"uid-of-{name}", "resourceVersion": "1"}
    return ResourceClaim.from_dict(
        {**content, "metadata": metadata | more.pop("metadata", {}), **more}
    )


def wrong(name: str) -> Any:
    spec = {
        "devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "none.rgpu.dev"}}]}
    }
    return claim(name, spec=spec)


def pod(name: str, uses: str) -> Any:
    metadata = {"name": name, "namespace": "team", "uid": f"uid-of-{name}", "resourceVersion": "1"}
    spec = {
        "containers": [],
        "schedulingGates": [{"name": "rgpu.dev/placement"}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": uses}],
    }
    return Pod.from_dict({"metadata": metadata, "spec": spec})


def front(writes: Writes, bounds: Bounds | None = None) -> Front:
    """A front that knows all classes, and has heard of no pod yet."""
    made = Front(writes, shell_of()[0], bounds)  # type: ignore[arg-type]
    for content in listed("deviceclasses"):
        made.classes.store["", content["metadata"]["name"]] = DeviceClass.from_dict(content)
    for one in (made.classes, made.claims, made.pods):
        one.synced.set()
    return made


def hear(made: Front, *some: Any) -> None:
    for one in some:
        key = "team", one.metadata.name
        kind = made.claims if isinstance(one, ResourceClaim) else made.pods
        before = kind.store.get(key)
        kind.store[key] = one
        kind._on_change(before, one)


async def rest(made: Front) -> None:
    """Waits until all that was begun has been written."""
    while made._tasks:
        await asyncio.gather(*made._tasks)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The claims that were read, each as often as it was."""
    found: list[str] = []
    real: Callable[..., Any] = claim_reading.wishes_of

    def noted(content: Any, *more: Any) -> Any:
        found.append(content["metadata"]["name"])
        return real(content, *more)

    monkeypatch.setattr(claim_reading, "wishes_of", noted)
    return found


def test_a_wrong_claim_is_read_once_and_its_pods_are_told_once(read: list[str]) -> None:
    async def work() -> Counter[str]:
        writes = Writes()
        made = front(writes)
        hear(made, wrong("wrong"), *(pod(f"p{number}", "wrong") for number in range(MANY)))
        for _ in range(5):
            made._look_at_all()
        # As all come at once when a manager starts, nothing has been written yet.
        assert len(made._tasks) == MANY
        await rest(made)
        return writes.counted

    assert asyncio.run(work()) == {"PodStatus": MANY, "GpuRefused": MANY}
    assert read == ["wrong"]


def test_a_wrong_claim_is_read_again_when_its_class_comes(read: list[str]) -> None:
    async def work() -> bool:
        made = front(Writes())
        hear(made, wrong("early"), pod("one", "early"))
        spec = {"selectors": [{"cel": {"expression": "device.driver == 'rgpu.dev'"}}]}
        came = DeviceClass.from_dict({"metadata": {"name": "none.rgpu.dev"}, "spec": spec})
        made.classes.store["", "none.rgpu.dev"] = came
        made.classes._on_change(None, came)
        made._look_at_all()
        await rest(made)
        return "uid-of-early" in made._asked

    assert asyncio.run(work())
    assert read == ["early", "early"]


def test_pods_of_one_claim_are_each_looked_at_once_for_each_change() -> None:
    """The claim has its card, and each pod that comes is let go."""

    async def work() -> tuple[int, Counter[str]]:
        writes, looked = Writes(), 0
        made = front(writes)
        real = made._look_at_pod

        def counted(key: tuple[str, str]) -> None:
            nonlocal looked
            looked += 1
            real(key)

        made._look_at_pod = counted  # type: ignore[method-assign]
        row = {"request": "gpu", "driver": "rgpu.dev", "pool": "gone", "device": "gpu-0"}
        shared = claim("shared", status={"allocation": {"devices": {"results": [row]}}})
        hear(made, shared, *(pod(f"p{number}", "shared") for number in range(MANY)))
        await rest(made)
        return looked, writes.counted

    assert asyncio.run(work()) == (MANY, {})


def test_reservations_beyond_the_bound_are_told_once() -> None:
    async def work() -> tuple[list[str], Counter[str]]:
        writes = Writes()
        made = front(writes, Bounds(2, 10 * 365 * 86400.0))
        note = {"annotations": {"rgpu.dev/reserve-until": "2035-01-01T00:00:00Z"}}
        hear(made, *(claim(f"r{number:03}", metadata=note) for number in range(MANY)))
        for _ in range(3):
            made._look_at_all()
        await rest(made)
        return sorted(made._asked), writes.counted

    asked, counted = asyncio.run(work())
    assert asked == ["uid-of-r000", "uid-of-r001"]
    assert counted["GpuRefused"] == MANY - 2


def test_a_namespace_that_a_node_made_up_is_not_asked_for() -> None:
    """A GPU node says whose a lease is. "*" would be a list of the whole cluster."""
    writer = Writer(None)  # type: ignore[arg-type]
    for namespace in ("*", "../secrets", "", "Team", "a" * 64, "a b", "a?watch=1", "-a"):
        assert asyncio.run(writer.uids(namespace, Pod)) == set()
