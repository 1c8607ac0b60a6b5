"""One namespace with thousands of claims and pods, which are meant to keep the manager busy."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace as Object
from typing import Any

import httpx2
import pytest
from helpers.granting_link import shell_of
from lightkube.core.exceptions import ApiError
from lightkube.resources.core_v1 import Pod
from lightkube.resources.resource_v1 import DeviceClass, ResourceClaim

from rgpu_cluster.core.request import Mode
from rgpu_cluster.kubernetes import claim_reading, writing
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


class Slow(Writes):
    """An API server that answers only when the test says so, and has changed all of a team's claims.

    order: the namespaces of the writes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.order: list[str] = []
        self.answers = asyncio.Semaphore(0)

    async def patch(self, kind: Any, *_: Any, **more: Any) -> None:
        self.order.append(more["namespace"])
        await self.answers.acquire()

    async def create(self, made: Any) -> None:
        self.order.append(made.metadata.namespace)
        await self.answers.acquire()

    async def replace(self, one: Any, *_: Any, **more: Any) -> Any:
        self.order.append(more["namespace"])
        if more["namespace"] == "team":
            raise failure(409)
        return one

    async def get(self, *_: Any, **__: Any) -> Any:
        raise failure(404)


def failure(code: int) -> ApiError:
    request = httpx2.Request("GET", "http://api")
    status = {"kind": "Status", "code": code, "message": "no"}
    return ApiError(request=request, response=httpx2.Response(code, json=status, request=request))


def of(namespace: str, one: Any) -> Any:
    one.metadata.namespace = namespace
    return one


@pytest.mark.parametrize("what", ["sentences", "gates"])
def test_many_writes_of_one_namespace_do_not_hold_up_another(what: str) -> None:
    async def work() -> list[str]:
        api = Slow()
        writer = Writer(api)  # type: ignore[arg-type]

        def write(one: Any) -> Any:
            return writer.say(one, "W", "x") if what == "sentences" else writer.release(one, {})

        some = [pod(f"p{number}", "gpu") for number in range(MANY)]
        tasks = [asyncio.ensure_future(write(one)) for one in some]
        await asyncio.sleep(0)
        tasks.append(asyncio.ensure_future(write(of("bob", pod("train", "gpu")))))
        await asyncio.sleep(0)
        for _ in range(2 * len(tasks)):
            api.answers.release()
        await asyncio.wait_for(asyncio.gather(*tasks), 60.0)
        return api.order

    # All places were taken before bob came.
    assert "bob" in asyncio.run(work())[: 2 * 32]


def test_a_claim_that_waits_for_its_next_try_holds_no_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The pauses of one namespace's claims last until another's claim has been written."""

    async def work() -> list[str]:
        api, done, rest = Slow(), asyncio.Event(), asyncio.sleep
        writer = Writer(api)  # type: ignore[arg-type]

        async def pause(_: float) -> None:
            await done.wait()

        monkeypatch.setattr(writing.asyncio, "sleep", pause)

        def allocate(one: Any) -> Any:
            request = Object(id=one.metadata.uid)
            wish: Any = Object(request=request, mode=Mode.ANY, config=[])
            user = {"resource": "pods", "name": "train", "uid": "u"}
            return asyncio.ensure_future(writer.allocate(one, wish, [], user))

        tasks = [allocate(claim(f"c{number}")) for number in range(64)]
        await rest(0)
        assert await asyncio.wait_for(allocate(of("bob", claim("gpu"))), 30.0) == ""
        done.set()
        return list(await asyncio.wait_for(asyncio.gather(*tasks), 30.0))

    assert set(asyncio.run(work())) == {"it has gone"}


def test_a_users_event_is_not_left_out_because_others_have_many_allocations() -> None:
    async def work() -> list[str]:
        api = Slow()
        writer = Writer(api)  # type: ignore[arg-type]
        writer._writes["team"] = MANY
        api.answers.release()
        await writer.event(pod("train", "gpu"), "GpuPlaced", "x")
        await writer.event(of("bob", pod("train", "gpu")), "GpuPlaced", "x")
        return api.order

    assert asyncio.run(work()) == ["bob"]
