"""Namespaces take turns where an agent and the controllers of old words work for all of them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace as Object
from typing import Any

import pytest

from rgpu_cluster.kubelet.reading import ApiCluster
from rgpu_cluster.kubernetes.agent import service
from rgpu_cluster.kubernetes.agent.actions import Annotate
from rgpu_cluster.kubernetes.agent.claims import Claims
from rgpu_cluster.kubernetes.agent.doing import Doing
from rgpu_cluster.kubernetes.agent.service import CredentialService
from rgpu_cluster.kubernetes.agent.views import ClaimView, PodRef
from rgpu_cluster.kubernetes.legacy.controllers import Controller

MANY = 200
_SECONDS = 60.0


class Keeper:
    """Has so many pods of one namespace told their server, and then one of another."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self._asked = False

    def actions(self, *_: float) -> list[Annotate]:
        found = [] if self._asked else [*["team"] * MANY, "bob"]
        self._asked = True
        return [
            Annotate(f"uid-{number}", namespace, (), (), "", "", "")
            for number, namespace in enumerate(found)
        ]

    def keeps(self, _: float) -> None:
        return None

    def next_due(self, _: float) -> None:
        return None

    def annotated(self, action: Annotate) -> None:
        self.done.append(action.namespace)


def test_many_claims_of_one_namespace_do_not_hold_up_those_of_another() -> None:
    class Told:
        async def annotate(self, _: Annotate) -> None:
            await asyncio.sleep(0)

    async def work() -> list[str]:
        keeper: Any = Keeper()
        doing = Doing(keeper, Told(), None, lambda: None)  # type: ignore[arg-type]
        doing.start()
        await asyncio.wait_for(asyncio.gather(*doing._tasks), _SECONDS)
        return list(keeper.done)

    done = asyncio.run(work())
    assert len(done) == MANY + 1
    assert "bob" in done[: 2 * 16]


@pytest.mark.parametrize("address", ["ipv4:10.0.0.1", "ipv6:%5B2001:db8::{:x}%5D"])
def test_many_strangers_of_one_network_do_not_hold_up_a_plugin_of_another(address: str) -> None:
    shown: list[str] = []

    class Api:
        async def create(self, review: Any) -> Any:
            shown.append(review.spec.token)
            await asyncio.sleep(0)
            return Object(status=None)

    class Context:
        def __init__(self, host: str, token: str) -> None:
            self._host, self._token = host, token

        def peer(self) -> str:
            return f"{self._host}:4711"

        def invocation_metadata(self) -> list[tuple[str, str]]:
            return [("authorization", f"Bearer {self._token}")]

    async def work() -> None:
        made: Any = CredentialService(Api(), None, b"", "a/b", 60.0)  # type: ignore[arg-type]
        strangers = [Context(address.format(number), f"{number}") for number in range(90)]
        plugin = Context("ipv4:10.0.0.2", "plugin")
        asked = [made._caller(one) for one in [*strangers, plugin]]
        await asyncio.wait_for(asyncio.gather(*asked), _SECONDS)

    asyncio.run(work())
    assert len(shown) == 91
    assert shown.index("plugin") <= 2 * service._REVIEWS


def test_many_old_objects_of_one_namespace_do_not_hold_up_those_of_another() -> None:
    kept: list[tuple[str, str]] = []

    class Some(Controller):
        async def keep(self, key: tuple[str, str]) -> None:
            kept.append(key)

    async def work() -> None:
        made = Some(None)  # type: ignore[arg-type]
        for number in range(MANY):
            made.look(("team", f"share-{number}"))
        made.look(("bob", "share"))
        await asyncio.wait_for(made._work(), _SECONDS)

    asyncio.run(work())
    assert len(kept) == MANY + 1
    assert kept[1] == ("bob", "share")


@pytest.mark.parametrize("who", ["agent", "plugin"])
def test_claims_of_many_pods_do_not_hold_up_that_of_another_namespace(who: str) -> None:
    """Each of twenty claims of a namespace has many pods, which are all asked for."""
    asked: list[str] = []
    busy = most = 0

    class Api:
        async def get(self, _: Any, name: str, namespace: str) -> dict[str, Any]:
            nonlocal busy, most
            asked.append(namespace)
            busy += 1
            most = max(most, busy)
            await asyncio.sleep(0)
            busy -= 1
            metadata = {"name": name, "namespace": namespace, "uid": name}
            return {"metadata": metadata, "spec": {"nodeName": "here", "containers": []}}

    async def work() -> None:
        claims, cluster = Claims(Api(), "gpu7"), ApiCluster(Api())  # type: ignore[arg-type]

        async def pods(namespace: str) -> int:
            names = [f"pod-{number}" for number in range(MANY if namespace == "team" else 1)]
            if who == "plugin":
                return len(await cluster.pods(namespace, names, "here"))
            view = ClaimView("u", namespace, "c", pods=tuple(PodRef(n, n) for n in names))
            return len(await claims.pods(view, 256))

        some = [pods(namespace) for namespace in [*["team"] * 20, "bob"]]
        found = await asyncio.wait_for(asyncio.gather(*some), _SECONDS)
        assert found == [*[MANY] * 20, 1]

    asyncio.run(work())
    assert most <= 16
    assert "bob" in asked[: 2 * 16]
