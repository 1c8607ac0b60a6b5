"""The manifests of deploy/kubernetes on a real API server."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers.kube_deploy import BASE, apply
from helpers.kube_objects import FINALIZER, Space, card, claim_spec, node, publish
from helpers.kubernetes import ControlPlane
from helpers.waiting import wait_until
from lightkube import ApiError, Client, KubeConfig, codecs
from lightkube.models.core_v1 import ObjectReference
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Namespace, Node, Pod, PodBinding, ServiceAccountToken
from lightkube.resources.resource_v1 import ResourceClaim, ResourceClaimStatus, ResourceSlice
from lightkube.types import PatchType
from msgspec import DecodeError

from rgpu_cluster.kubernetes.api import open_client
from rgpu_cluster.kubernetes.injection import MOUNT, with_token, with_variables
from rgpu_cluster.kubernetes.path_objects import NodePaths
from rgpu_cluster.kubernetes.watchdog import Watchdog

AGENT = "rgpu-agent-node"
ROOT = Path(__file__).resolve().parents[2]
AUTOSCALING = BASE.parent / "autoscaling"


@pytest.fixture(scope="module", autouse=True)
def leaves_nothing(plane: ControlPlane) -> Iterator[None]:
    """The policies would hold for the agents of later tests, whose tokens name no node."""
    yield
    for file in files():
        for one in codecs.load_all_yaml((BASE / file).read_text()):
            if "Policy" in one.kind or one.kind in ("DaemonSet", "Deployment"):
                metadata = one.metadata
                more = {"namespace": metadata.namespace} if metadata.namespace else {}
                with suppress(ApiError):
                    plane.client().delete(type(one), metadata.name, **more)


def files() -> list[str]:
    return list(yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"])


def test_the_base_names_every_file_and_the_api_server_takes_them(plane: ControlPlane) -> None:
    assert sorted(files()) == sorted(
        file.name for file in BASE.glob("*.yaml") if file.name != "kustomization.yaml"
    )
    apply(plane.client(), *files())
    # A second time changes nothing.
    apply(plane.client(), *files())


@pytest.fixture
def agents(plane: ControlPlane, space: Space) -> Iterator[dict[str, Client]]:
    """Clients of the agents of two GPU nodes, with the tokens that their pods have."""
    apply(plane.client(), *files())
    found = {}
    for name in ("gpu7", "gpu8"):
        node(space.client, name)
        found[name] = Client(config=KubeConfig.from_dict(_config(plane, name)))
    yield found
    for client in found.values():
        client.close()


def _config(plane: ControlPlane, name: str) -> dict[str, Any]:
    admin = plane.client()
    uid = admin.get(Node, name).metadata.uid
    bound = {"kind": "Node", "apiVersion": "v1", "name": name, "uid": uid}
    asked = ServiceAccountToken.from_dict(
        {
            "metadata": {"name": AGENT, "namespace": "rgpu-system"},
            "spec": {"audiences": [], "boundObjectRef": bound},
        }
    )
    made = admin.create(asked, AGENT, namespace="rgpu-system")
    config = plane.kubeconfig()
    config["users"][0]["user"] = {"token": made.status.token}
    return config


def test_an_agent_writes_the_pool_of_its_own_node_alone(agents: dict[str, Client]) -> None:
    # The policy counts once the API server has read it.
    def refused() -> str:
        try:
            publish(agents["gpu7"], "gpu8", card("gpu-0"))
        except ApiError as error:
            return str(error.status.message)
        return ""

    wait_until(lambda: "of its own node" in refused())
    publish(agents["gpu7"], "gpu7", card("gpu-0"))
    content = agents["gpu8"].get(ResourceSlice, "gpu7-rgpu").to_dict()
    content["spec"]["devices"] = [card("gpu-0"), card("gpu-1")]
    for wrong in (
        lambda: agents["gpu8"].delete(ResourceSlice, "gpu7-rgpu"),
        lambda: agents["gpu8"].replace(codecs.from_dict(content)),
    ):
        with pytest.raises(ApiError, match="of its own node"):
            wrong()
    agents["gpu7"].delete(ResourceSlice, "gpu7-rgpu")


@pytest.fixture
def leaves_no_paths(plane: ControlPlane, crds: None) -> Iterator[None]:
    """No namespace has them."""
    yield
    for name in ("gpu7", "gpu8"):
        with suppress(ApiError):
            plane.client().delete(NodePaths, name)


@pytest.mark.usefixtures("leaves_no_paths")
def test_an_agent_writes_the_paths_of_its_own_node_alone(
    agents: dict[str, Client], plane: ControlPlane
) -> None:
    for name in agents:
        plane.client().create(NodePaths(metadata={"name": name}))

    def wrote(agent: str, name: str) -> str:
        """Returns why an agent may not write an object, else ""."""
        status = {"status": {"client": {"rack": "r1"}, "paths": [], "measured": 0}}
        try:
            agents[agent].patch(NodePaths.Status, name, status, patch_type=PatchType.MERGE)
        except ApiError as error:
            return str(error.status.message)
        return ""

    # The policy counts once the API server has read it.
    wait_until(lambda: "of its own node, and not gpu8" in wrote("gpu7", "gpu8"))
    assert wrote("gpu7", "gpu7") == ""
    assert "of its own node, and not gpu7" in wrote("gpu8", "gpu7")
    with pytest.raises(ApiError, match="cannot delete"):
        agents["gpu7"].delete(NodePaths, "gpu7")
    for name in agents:
        plane.client().delete(NodePaths, name)
    with pytest.raises(ApiError, match="of its own node, and not gpu8"):
        agents["gpu7"].create(NodePaths(metadata={"name": "gpu8"}))
    agents["gpu7"].create(NodePaths(metadata={"name": "gpu7"}))


def test_parts_of_rgpu_change_their_own_words_of_a_pod_alone(
    agents: dict[str, Client], plane: ControlPlane, space: Space
) -> None:
    agent = agents["gpu7"]
    space.claim("named", claim_spec(30))
    space.pod("train", claim="named", gated=True, metadata={"annotations": {"mine": "1"}})

    def patched(change: dict[str, Any]) -> str:
        try:
            agent.patch(Pod, "train", change, namespace=space.name)
        except ApiError as error:
            return str(error.status.message)
        return ""

    image = {"spec": {"containers": [{"name": "c", "image": "evil"}]}}
    # The policy counts once the API server has read it.
    wait_until(lambda: "changes no image" in patched(image))
    for change, says in (
        ({"metadata": {"labels": {"app": "evil"}}}, "no label"),
        ({"metadata": {"annotations": {"mine": "2"}}}, "no annotation"),
        ({"metadata": {"annotations": {"mine": None}}}, "no annotation"),
        ({"metadata": {"finalizers": ["evil/x"]}}, "neither finalizers nor owners"),
        ({"spec": {"nodeSelector": {"kubernetes.io/hostname": "x"}}}, "where and how long"),
    ):
        assert says in patched(change), change
    told = {"metadata": {"annotations": {"rgpu.dev/server": "a:1"}}}
    for change in (told, {"spec": {"schedulingGates": None}}):
        assert "no pod that is gated" in patched(change)
    # The manager has another right.
    both = {**told, "spec": {"schedulingGates": None}}
    plane.client("placer").patch(Pod, "train", both, namespace=space.name)
    assert space.get(Pod, "train").metadata.annotations == {"mine": "1", "rgpu.dev/server": "a:1"}


LONELY: dict[str, Any] = {
    "nodeSelector": {"kubernetes.io/hostname": "nowhere"},
    "containers": [{"name": "c", "image": "none"}],
    "resourceClaims": [],
}


def bind(space: Space, name: str) -> None:
    made = PodBinding(
        metadata=ObjectMeta(name=name, namespace=space.name),
        target=ObjectReference(apiVersion="v1", kind="Node", name="gpu8"),
    )
    with suppress(DecodeError):  # the answer is a Status
        space.client.create(made, name, namespace=space.name)


def told(agent: Client, space: Space, pod: str, **said: str) -> str:
    """Has an agent write annotations into a pod; returns why not."""
    change = {"metadata": {"annotations": {f"rgpu.dev/{key}": text for key, text in said.items()}}}
    try:
        agent.patch(Pod, pod, change, namespace=space.name)
    except ApiError as error:
        return str(error.status.message)
    return ""


def test_an_agent_does_not_send_pods_of_others_to_itself(
    agents: dict[str, Client], space: Space
) -> None:
    """It changes nothing of what a pod has been told, whether or not the pod has a node."""
    numbers = itertools.count()

    def changed() -> str:
        return told(agents["gpu7"], space, "train", server=f"evil:{next(numbers)}")

    def kept() -> str:
        """What the pod has been told, which the agent may say again as one that was started anew."""
        server = str(space.get(Pod, "train").metadata.annotations["rgpu.dev/server"])
        assert told(agents["gpu7"], space, "train", server=server) == ""
        return server

    let_go = {"rgpu.dev/agent-tells": "true", "rgpu.dev/server": "a:1"}
    space.pod("train", metadata={"annotations": let_go}, **LONELY)
    # The policy counts once the API server has read it; before, each of these changes the pod.
    wait_until(lambda: "what a pod has been told" in changed())
    server = kept()
    bind(space, "train")
    assert "what a pod has been told" in changed()
    assert kept() == server


def test_an_agent_tells_no_pod_first_that_the_watchdog_has_not_let_go(
    agents: dict[str, Client], plane: ControlPlane, space: Space
) -> None:
    agent, numbers = agents["gpu7"], itertools.count()
    says = "that rgpu-gate-watchdog has let go"

    def tried() -> str:
        """A pod that was never gated and has no node."""
        name = f"plain-{next(numbers)}"
        space.pod(name, **LONELY)
        return told(agent, space, name, server="a:1")

    # The policy counts once the API server has read it.
    wait_until(lambda: says in tried())
    space.pod("bound", **LONELY)
    bind(space, "bound")
    assert says in told(agent, space, "bound", server="a:1")
    # It does not permit itself to, neither before nor at once, and says nothing else.
    assert says in told(agent, space, "bound", **{"agent-tells": "true"})
    assert says in told(agent, space, "bound", server="a:1", **{"agent-tells": "true"})

    space.pod("gone", gated=True, template="none")
    pod = space.get(Pod, "gone")
    watchdog = asyncio.run(let_go(plane, pod))
    assert watchdog
    assert space.get(Pod, "gone").spec.schedulingGates is None
    assert says in told(agent, space, "gone", other="a:1")
    words = {"server": "a:1", "lease": "b", "device": "0", "authority": "PEM"}
    assert told(agent, space, "gone", **words) == ""


async def let_go(plane: ControlPlane, pod: Any) -> bool:
    """Does what `rgpu gate-watchdog` does with a gated pod when no manager leads."""
    async with open_client(str(plane.kubeconfig_file("watchdog"))) as client:
        watchdog = Watchdog(client, "rgpu-system", 0.0)
        await watchdog._let_go(pod)
        return not watchdog._kept


def test_an_agent_says_of_its_own_cards_alone_whether_they_are_leased(
    agents: dict[str, Client], plane: ControlPlane, space: Space
) -> None:
    exactly = {"deviceClassName": "rgpu.dev", "count": 2}
    space.claim("pair", {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}})
    rows = [
        {"driver": "rgpu.dev", "pool": pool, "device": "gpu-0", "request": "gpu"}
        for pool in ("gpu7", "gpu8")
    ]
    held = {"metadata": {"finalizers": [FINALIZER]}}
    content = space.client.patch(ResourceClaim, "pair", held, namespace=space.name).to_dict()
    content["status"] = {"allocation": {"devices": {"results": rows}}}
    plane.client().replace(ResourceClaimStatus.from_dict(content), "pair", namespace=space.name)

    def said(agent: str, *pools: str) -> str:
        condition = {
            "type": "rgpu.dev/refused", "status": "True", "reason": "Refused", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }  # fmt: skip
        content = space.get(ResourceClaim, "pair").to_dict()
        content["status"]["devices"] = [
            {"driver": "rgpu.dev", "pool": pool, "device": "gpu-0", "conditions": [condition]}
            for pool in pools
        ]
        try:
            agents[agent].replace(
                ResourceClaimStatus.from_dict(content), "pair", namespace=space.name
            )
        except ApiError as error:
            return str(error.status.message)
        return ""

    def refused() -> bool:
        if "of its own cards" in said("gpu7", "gpu8"):
            return True
        # The policy counts once the API server has read it; before, this changes the claim.
        written = space.get(ResourceClaim, "pair").to_dict()
        written["status"].pop("devices", None)
        plane.client().replace(ResourceClaimStatus.from_dict(written), "pair", namespace=space.name)
        return False

    wait_until(refused)
    assert said("gpu7", "gpu7") == ""
    assert said("gpu8", "gpu7", "gpu8") == ""
    assert "agent of node gpu7 may say of its own cards" in said("gpu7", "gpu7")
    assert said("gpu7", "gpu8") == ""


def test_no_pod_of_a_namespace_passes_its_enforced_quota(plane: ControlPlane, space: Space) -> None:
    apply(plane.client(), *files())
    label = {"metadata": {"labels": {"rgpu.dev/quota": "enforced"}}}
    space.client.patch(Namespace, space.name, label)
    space.template("third", claim_spec(30))
    managed = {"labels": {"rgpu.dev/placement": "managed"}}
    numbers = itertools.count()

    def made(**more: Any) -> str:
        try:
            space.pod(f"train-{next(numbers)}", **more)
        except ApiError as error:
            return str(error.status.message)
        return ""

    wait_until(lambda: "needs the label" in made(template="third"))
    wait_until(lambda: made(template="third", metadata=managed) == "")
    (name,) = [
        one.metadata.name for one in space.client.list(Pod, namespace=space.name)
        if one.spec.schedulingGates
    ]  # fmt: skip

    def changed(user: str, change: dict[str, Any]) -> str:
        try:
            plane.client(user).patch(Pod, name, change, namespace=space.name)
        except ApiError as error:
            return str(error.status.message)
        return ""

    ungated = {"spec": {"schedulingGates": None}}
    for user in ("admin", "watchdog"):
        assert "the manager alone removes the gate" in changed(user, ungated)
    assert "keeps the label" in changed(
        "admin", {"metadata": {"labels": {"rgpu.dev/placement": None}}}
    )
    plain: dict[str, Any] = {"name": "c", "image": "none"}
    asks = {"limits": {"deviceclass.resource.kubernetes.io/rgpu.dev": 1}}
    past = made(containers=[{**plain, "resources": asks}], resourceClaims=[])
    assert "asked for by a claim" in past
    assert made(containers=[plain], resourceClaims=[]) == ""
    assert changed("placer", ungated) == ""
    assert changed("admin", {"metadata": {"labels": {"rgpu.dev/placement": None}}}) == ""


def test_cards_are_given_by_the_manager_alone_whatever_their_class_is_called(
    plane: ControlPlane, space: Space
) -> None:
    """A class of any name can select rgpu's cards, also one that stands for an extended resource,
    for which kube-scheduler makes claims itself.
    """
    apply(plane.client(), *files())
    label = {"metadata": {"labels": {"rgpu.dev/quota": "enforced"}}}
    space.client.patch(Namespace, space.name, label)
    numbers = itertools.count()

    def gave(user: str, driver: str = "rgpu.dev", name: str = "") -> str:
        """Returns why a user cannot give a claim of the class team-gpu a card, else ""."""
        if not name:
            name = f"claim-{next(numbers)}"
            exactly = {"deviceClassName": "team-gpu"}
            space.claim(name, {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}})
        held = {"metadata": {"finalizers": [FINALIZER]}}
        content = space.client.patch(ResourceClaim, name, held, namespace=space.name).to_dict()
        row = {"driver": driver, "pool": "gpu7", "device": "gpu-0", "request": "gpu"}
        content["status"] = {"allocation": {"devices": {"results": [row]}}}
        try:
            plane.client(user).replace(
                ResourceClaimStatus.from_dict(content), name, namespace=space.name
            )
        except ApiError as error:
            return str(error.status.message)
        return ""

    wait_until(lambda: "the manager alone gives cards" in gave("scheduler"))
    for user in ("scheduler", "admin"):
        assert "the manager alone gives cards" in gave(user)
        assert gave(user, driver="other.dev") == ""
    space.claim("given", claim_spec(30))
    assert gave("placer", name="given") == ""
    # What others write of a claim that has its cards stays possible.
    assert gave("scheduler", name="given") == ""


def test_the_plugin_reads_single_pods_alone(plane: ControlPlane, space: Space) -> None:
    apply(plane.client(), *files())
    space.pod("one", containers=[{"name": "c", "image": "none"}], resourceClaims=[])
    plugin = plane.client("plugin")
    wait_until(lambda: _may(lambda: plugin.get(Pod, "one", namespace=space.name)))
    for where in (space.name, "*"):
        assert not _may(lambda where=where: list(plugin.list(Pod, namespace=where)))


def _may(act: Callable[[], object]) -> bool:
    try:
        act()
    except ApiError:
        return False
    return True


def test_a_pod_that_asks_is_gated_and_told_where_its_server_will_be(
    plane: ControlPlane, space: Space
) -> None:
    apply(plane.client(), *files())
    space.template("third", claim_spec(30))
    labels = {"labels": {"rgpu.dev/placement": "managed"}}
    numbers = itertools.count()

    def gated() -> bool:
        name = f"train-{next(numbers)}"
        pod = space.pod(name, template="third", metadata=labels)
        if not pod.spec.schedulingGates:
            return False
        found.append(pod)
        return True

    found: list[Any] = []
    wait_until(gated)  # the policy counts once the API server has read it
    (pod,) = found
    assert [one.name for one in pod.spec.schedulingGates] == ["rgpu.dev/placement"]
    (container,) = pod.spec.containers
    where = {one.name: one.valueFrom.fieldRef.fieldPath for one in container.env if one.valueFrom}
    assert where == {
        "RGPU_SERVER": "metadata.annotations['rgpu.dev/server']",
        "RGPU_LEASE": "metadata.annotations['rgpu.dev/lease']",
        "RGPU_DEVICE": "metadata.annotations['rgpu.dev/device']",
    }
    (volume,) = [one for one in pod.spec.volumes if one.name == "rgpu-token"]
    assert volume.projected.sources[0].serviceAccountToken.audience == "rgpu.dev"
    # The webhook gives pods the same.
    asked = with_variables({"env": []})
    said = {one["name"]: one.get("value") for one in asked["env"]}
    assert {one.name: one.value for one in container.env} == said
    assert MOUNT in {one.mountPath for one in container.volumeMounts}
    (given,) = with_token([])
    authority = given["projected"]["sources"][1]["downwardAPI"]["items"][0]
    (item,) = volume.projected.sources[1].downwardAPI.items
    assert (item.path, item.fieldRef.fieldPath) == (
        authority["path"], authority["fieldRef"]["fieldPath"],
    )  # fmt: skip
    other = space.pod("other", template="third")
    assert not other.spec.schedulingGates


def test_the_autoscaler_of_the_example_is_one(plane: ControlPlane, space: Space) -> None:
    (one,) = codecs.load_all_yaml((AUTOSCALING / "hpa.yaml").read_text())
    made = space.client.create(one, namespace=space.name)
    assert made.spec.metrics[0].external.metric.name in adapted()


def test_the_rules_of_the_example_name_metrics_that_there_are() -> None:
    tables = "".join(
        (ROOT / "docs" / page).read_text() for page in ("how-to/observe.md", "reference/manager.md")
    )
    for rule in rules():
        name = re.match(r"\w+", rule["seriesQuery"])
        assert name is not None
        short = name[0].removeprefix("rgpu_tenant_")
        assert f"`{name[0]}`" in tables or f"`{short}`" in tables, name[0]
        assert name[0] in rule["metricsQuery"]


def rules() -> list[dict[str, Any]]:
    values = yaml.safe_load((AUTOSCALING / "adapter-values.yaml").read_text())
    return list(values["rules"]["external"])


def adapted() -> set[str]:
    return {rule["name"]["as"] for rule in rules()}
