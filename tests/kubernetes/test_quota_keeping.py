"""GpuQuotas hold the pods of their namespaces, with a real manager and a real daemon."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from helpers.kube_deploy import apply
from helpers.kube_objects import Space, card, claim_spec, make, node, publish
from helpers.kubernetes import ControlPlane
from helpers.manager import ManagerProcess
from helpers.nodes import Nodes
from helpers.waiting import wait_until
from lightkube import ApiError
from lightkube.resources.core_v1 import Pod
from lightkube.types import PatchType

from rgpu_cluster.kubernetes.quota_keeping import GpuQuota

pytestmark = pytest.mark.full

MANAGED = {"labels": {"rgpu.dev/placement": "managed"}}


@pytest.fixture(scope="module")
def manager(plane: ControlPlane, crds: None) -> Iterator[ManagerProcess]:
    apply(plane.client(), "namespace.yaml", "classes.yaml", "manager-rbac.yaml")
    config = plane.kubeconfig_file("placer")
    words = ("--kubernetes", "--kubeconfig", str(config), "--namespace", "rgpu-system")
    with ManagerProcess(*words) as manager:
        yield manager


@pytest.fixture(scope="module")
def gpus(manager: ManagerProcess) -> Iterator[Nodes]:
    with Nodes(manager, {"gpu7": "r1"}, "emulated:16GiB") as nodes:
        yield nodes


@pytest.fixture
def here(space: Space, gpus: Nodes) -> Space:
    node(space.client, "client")
    publish(space.client, "gpu7", card("gpu-0"))
    return space


def give(space: Space, **spec: Any) -> None:
    make(space.client, {"apiVersion": "rgpu.dev/v1alpha1", "kind": "GpuQuota",
                        "metadata": {"name": "default", "namespace": space.name}, "spec": spec})  # fmt: skip


def change(space: Space, **spec: Any) -> None:
    space.client.patch(
        GpuQuota, "default", {"spec": spec}, namespace=space.name, patch_type=PatchType.MERGE
    )


def status(space: Space) -> dict[str, Any]:
    content: dict[str, Any] = space.client.get(GpuQuota, "default", namespace=space.name).to_dict()
    return content.get("status") or {}


def accepted(space: Space) -> str:
    rows = status(space).get("conditions") or []
    return str(rows[0]["status"]) if rows else ""


def pod(space: Space, name: str, core: int) -> None:
    space.claim(name, claim_spec(core))
    space.pod(name, claim=name, gated=True, metadata=MANAGED)


def sentence(space: Space, name: str) -> str:
    rows = space.get(Pod, name).status.conditions or []
    return str([one.message for one in rows if one.type == "rgpu.dev/Placed"])


def test_pods_wait_at_the_quota_of_their_namespace(here: Space) -> None:
    give(here, cards="0.5")
    wait_until(lambda: accepted(here) == "True")
    pod(here, "first", 40)
    here.bound("first")
    wait_until(lambda: status(here)["used"]["cards"] == "0.4")
    pod(here, "second", 40)
    wait_until(lambda: "may have shares of 0.5 cards in all" in sentence(here, "second"))
    wait_until(lambda: status(here)["waiting"] == 1)
    change(here, cards="1")
    here.bound("second")
    wait_until(lambda: status(here)["used"]["cards"] == "0.8")
    assert status(here)["borrowed"] == {"cards": "0", "memory": "0"}
    change(here, cards="0.5")
    wait_until(lambda: status(here)["borrowed"]["cards"] == "0.3")


def test_a_quota_that_is_wrong_says_so_and_holds_nobody(here: Space) -> None:
    for wrong in ("many", "2,5", "-1", "1e400", "NaN", ""):
        with pytest.raises(ApiError, match=r"spec\.cards"):
            give(here, cards=wrong)
    give(here, cards=10**9)
    wait_until(lambda: accepted(here) == "False")
    assert "spec.cards is 1000000000; write" in status(here)["conditions"][0]["message"]
    pod(here, "first", 90)
    here.bound("first")
    change(here, cards="2")
    wait_until(lambda: accepted(here) == "True")


def test_a_mistake_in_a_quota_frees_nobody_from_the_last_one(here: Space) -> None:
    give(here, cards="0.5")
    wait_until(lambda: accepted(here) == "True")
    change(here, cards=10**9)
    wait_until(lambda: accepted(here) == "False")
    pod(here, "first", 90)
    wait_until(lambda: "may have shares of 0.5 cards" in sentence(here, "first"))
