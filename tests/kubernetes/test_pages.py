"""Pods of the pages: those of docs/how-to/kubernetes.md and docs/how-to/migrating.md get what these
say, with a real manager, real daemons and our webhook and controllers for the words of others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
import yaml
from helpers import https, pages
from helpers.command import running
from helpers.kube_deploy import BASE, apply
from helpers.kube_objects import Space, card, make, node, publish
from helpers.kubernetes import ControlPlane
from helpers.manager import ManagerProcess
from helpers.nodes import Nodes
from helpers.waiting import wait_until
from lightkube import ApiError, AsyncClient, KubeConfig, codecs
from lightkube.resources.admissionregistration_v1 import MutatingWebhookConfiguration
from lightkube.resources.core_v1 import Pod
from lightkube.resources.resource_v1 import ResourceClaim

from rgpu_cluster.kubernetes.admission import Way
from rgpu_cluster.kubernetes.legacy import controllers as kinds
from rgpu_cluster.kubernetes.quota_keeping import GpuQuota
from rgpu_cluster.kubernetes.webhook import PATH, Webhook
from rgpu_cluster.kubernetes.wishes import quantity

OURS, OTHERS = "how-to/kubernetes.md", "how-to/migrating.md"
LEGACY = BASE.parent / "legacy"
MANAGED = {"rgpu.dev/placement": "managed"}
CARDS = 4
SECONDS = 60


@pytest.fixture(scope="module")
def manager(plane: ControlPlane, crds: None) -> Iterator[ManagerProcess]:
    """A manager, and the policy that gates pods, for this file alone."""
    client = plane.client()
    apply(client, "namespace.yaml", "classes.yaml", "manager-rbac.yaml", "policy.yaml")
    config = plane.kubeconfig_file("placer")
    words = ("--kubernetes", "--kubeconfig", str(config), "--namespace", "rgpu-system")
    try:
        with ManagerProcess(*words) as manager:
            yield manager
    finally:
        for one in codecs.load_all_yaml((BASE / "policy.yaml").read_text()):
            client.delete(type(one), one.metadata.name)


@pytest.fixture(scope="module")
def gpus(manager: ManagerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """One GPU node with four cards. Its operator allows the priority of a pod of migrating.md."""
    config = tmp_path_factory.mktemp("server") / "rgpu.toml"
    config.write_text('[tenants."*"]\nmax_priority = 1\n')
    more = [word for _ in range(CARDS - 1) for word in ("--device", "emulated:16GiB")]
    more += ["--config", str(config)]
    with Nodes(manager, {"gpu7": "r1"}, "emulated:16GiB", *more) as nodes:
        yield nodes


@pytest.fixture
def here(space: Space, gpus: Nodes) -> Space:
    # The leases of a test that fails end a little later than its namespace.
    wait_until(lambda: not leases(gpus.manager), SECONDS)
    node(space.client, "client", **{"rgpu.dev/rack": "r1"})
    node(space.client, "gpu7", **{"rgpu.dev/rack": "r1"})
    publish(space.client, "gpu7", *(card(f"gpu-{number}") for number in range(CARDS)))
    return space


def leases(manager: ManagerProcess) -> dict[str, list[dict[str, Any]]]:
    """Returns what each request has, a row for each card."""
    found: dict[str, list[dict[str, Any]]] = {}
    for one in manager.pool()["nodes"]:
        for row in one["cards"]:
            for lease in row["leases"]:
                found.setdefault(lease["request_id"], []).append(lease)
    return found


def put(space: Space, content: dict[str, Any]) -> Any:
    return make(
        space.client, {**content, "metadata": {**content["metadata"], "namespace": space.name}}
    )


def check(manager: ManagerProcess, claim: Any, spec: dict[str, Any]) -> None:
    """Asserts that a claim is the one of the page, and has what that asks for."""
    content = claim.to_dict()
    (request,) = spec["devices"]["requests"]
    asked = request["exactly"]
    # The API server adds them.
    whole = {"allocationMode": "ExactCount", "count": 1, **asked}
    devices = {**spec["devices"], "requests": [{**request, "exactly": whole}]}
    assert content["spec"]["devices"] == devices
    sizes = asked.get("capacity", {}).get("requests", {})
    share, memory = sizes.get("core", "100"), sizes.get("memory", "16Gi")
    found = content["status"]["allocation"]["devices"]["results"]
    assert len(found) == asked.get("count", 1)
    assert {one["consumedCapacity"]["core"] for one in found} == {share}
    rows = leases(manager)[content["metadata"]["uid"]]
    assert len(rows) == len(found)
    assert {row["share_ppm"] for row in rows} == {int(share) * 10_000}
    assert {int(row["memory_bytes"]) for row in rows} == {int(quantity(memory))}


def ended(space: Space, manager: ManagerProcess, *pods: str) -> None:
    for name in pods:
        space.delete(Pod, name)
    wait_until(lambda: not leases(manager), SECONDS)


# Our own words


def test_the_first_pod_gets_what_the_page_says(here: Space, manager: ManagerProcess) -> None:
    (template, pod), *_ = [found for _, found in pages.blocks(OURS)]
    put(here, template)

    def gated() -> bool:
        """The policy counts once the API server has read it."""
        if put(here, pod).spec.schedulingGates:
            return True
        here.delete(Pod, "train")
        return False

    wait_until(gated, SECONDS)
    assert here.bound("train")
    check(manager, here.claim_of("train"), template["spec"]["spec"])
    ended(here, manager, "train")


def test_the_parameters_of_the_page_count(here: Space, manager: ManagerProcess) -> None:
    (config,) = [found[0] for _, found in pages.blocks(OURS) if "config" in found[0]]
    sizes = {"requests": {"core": "30", "memory": "1Gi"}}
    exactly = {"deviceClassName": "rgpu.dev", "capacity": sizes}
    here.claim("more", {"devices": {"requests": [{"name": "gpu", "exactly": exactly}], **config}})
    here.pod("train", claim="more", gated=True, metadata={"labels": MANAGED})
    here.bound("train")
    ((row,),) = leases(manager).values()
    assert row["share_ppm"] == 300_000
    assert here.allocation("more").devices.config[0].opaque.parameters["affinity"] == "teamA"
    ended(here, manager, "train")


def test_the_alternatives_of_the_page_are_tried_in_their_order(
    here: Space, manager: ManagerProcess
) -> None:
    (template,) = [x[0] for _, x in pages.blocks(OURS) if name_of(x[0]) == "adaptive"]
    put(here, template)
    found = []
    for number in range(CARDS):
        name = f"pod-{number}"
        here.pod(name, template="adaptive", gated=True, metadata={"labels": MANAGED})
        # The whole card of the pod's own node.
        assert here.bound(name) == "gpu7"
        (result,) = here.claim_of(name).status.allocation.devices.results
        found.append((result.request, result.device))
    assert sorted(found) == [("gpu/whole", f"gpu-{number}") for number in range(CARDS)]
    # A card that is in part another's serves the next alternatives.
    here.claim("some", {"devices": {"requests": [{"name": "gpu", "exactly": {
        "deviceClassName": "rgpu.dev", "capacity": {"requests": {"core": "20", "memory": "1Gi"}},
    }}]}})  # fmt: skip
    here.pod("some", claim="some", gated=True, metadata={"labels": MANAGED})
    here.delete(Pod, "pod-0")
    here.bound("some")
    here.pod("next", template="adaptive", gated=True, metadata={"labels": MANAGED})
    here.bound("next")
    (result,) = here.claim_of("next").status.allocation.devices.results
    assert result.request == "gpu/near"
    ended(here, manager, "some", "next", *(f"pod-{number}" for number in range(1, CARDS)))


def name_of(content: dict[str, Any]) -> str:
    return str(content.get("metadata", {}).get("name"))


def test_the_reservation_of_the_page_has_its_card(here: Space, manager: ManagerProcess) -> None:
    (claim,) = [x[0] for _, x in pages.blocks(OURS) if name_of(x[0]) == "demo"]
    # That of the page is in the past, or too far away.
    end = datetime.now(timezone.utc) + timedelta(hours=1)
    (until,) = claim["metadata"]["annotations"]
    claim["metadata"]["annotations"][until] = end.strftime("%Y-%m-%dT%H:%M:%SZ")
    put(here, claim)
    wait_until(lambda: here.allocation("demo") is not None, SECONDS)
    check(manager, here.get(ResourceClaim, "demo"), claim["spec"])
    here.delete(ResourceClaim, "demo")
    wait_until(lambda: not leases(manager), SECONDS)


def test_no_block_of_the_page_is_left_out() -> None:
    found = [found[0] for _, found in pages.blocks(OURS)]
    assert [name_of(one) for one in found] == ["third", "None", "adaptive", "demo"]


# The words of others


@pytest.fixture
def hooked(plane: ControlPlane, here: Space) -> Iterator[Space]:
    """A namespace whose pods pass our webhook."""

    async def routes(stack: AsyncExitStack) -> https.Routes:
        config = KubeConfig.from_dict(plane.kubeconfig())
        client = await stack.enter_async_context(AsyncClient(config=config, trust_env=False))
        return {PATH: Webhook(client, Way.CLAIMS).answer}

    with https.running(routes) as url:
        (found,) = [
            one for one in yaml.safe_load_all((LEGACY / "webhook.yaml").read_text())
            if one["kind"] == "MutatingWebhookConfiguration"
        ]  # fmt: skip
        (hook,) = found["webhooks"]
        hook["clientConfig"] = {"url": url + PATH, "caBundle": https.authority()}
        hook["namespaceSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": here.name}}
        make(here.client, found)
        try:
            wait_until(lambda: changed(here), SECONDS)
            yield here
        finally:
            here.client.delete(MutatingWebhookConfiguration, found["metadata"]["name"])


def changed(space: Space) -> bool:
    """Whether the webhook is in force."""
    first, _ = pages.pairs(OTHERS)[0]
    pod = {**first, "metadata": {**first["metadata"], "namespace": space.name}}
    return bool(space.client.create(codecs.from_dict(pod), dry_run=True).spec.resourceClaims)


def asked_for(after: list[dict[str, Any]]) -> dict[str, Any]:
    spec: dict[str, Any] = after[0]["spec"]
    return spec["spec"] if after[0]["kind"] == "ResourceClaimTemplate" else spec


def test_pods_with_old_words_get_what_the_page_says(hooked: Space, manager: ManagerProcess) -> None:
    for before, after in pages.pairs(OTHERS):
        if before["kind"] != "Pod":
            continue
        name = before["metadata"]["name"]
        put(hooked, before)
        hooked.bound(name)
        check(manager, hooked.claim_of(name), asked_for(after))
        ended(hooked, manager, name)
        hooked.gone(Pod, name)


def test_pods_with_our_words_get_the_same(here: Space, manager: ManagerProcess) -> None:
    for _, after in pages.pairs(OTHERS):
        name = after[0]["metadata"]["name"]
        if after[0]["kind"] != "ResourceClaimTemplate":
            continue
        for content in after:
            put(here, content)
        if len(after) == 1:
            here.pod(name, template=name, gated=True, metadata={"labels": MANAGED})
        here.bound(name)
        check(manager, here.claim_of(name), asked_for(after))
        ended(here, manager, name)
        here.gone(Pod, name)


@pytest.fixture
def controllers(plane: ControlPlane, here: Space) -> Iterator[Space]:
    """The controllers for SharePods and ElasticGPUClaims, with the rights of the admin."""
    words = ("--share-pods", "--elastic-gpu", "--kubeconfig", str(plane.kubeconfig_file("admin")))
    with running("the legacy controllers work", "legacy-controllers", *words):
        try:
            yield here
        finally:
            with suppress(ApiError):
                here.client.delete(kinds.Class, "shared")


@pytest.mark.full
def test_objects_of_others_get_what_the_page_says(
    controllers: Space, manager: ManagerProcess
) -> None:
    space = controllers
    make(
        space.client,
        next(x[0] for _, x in pages.blocks(OTHERS) if x[0]["kind"] == "ElasticGPUClass"),
    )
    rows = {before["kind"]: (before, asked_for(after)) for before, after in pages.pairs(OTHERS)}
    shared, spec = rows["SharePod"]
    name = shared["metadata"]["name"]
    put(space, shared)
    claim = space.claim_of_made(name)
    space.bound(name)
    check(manager, space.get(ResourceClaim, claim.metadata.name), spec)
    space.client.delete(kinds.SharePod, name, namespace=space.name)
    wait_until(lambda: not leases(manager), SECONDS)

    elastic, spec = rows["ElasticGPUClaim"]
    put(space, elastic)
    wait_until(lambda: space.get(ResourceClaim, "egpuc-claim-1") is not None, SECONDS)
    space.pod("uses", claim="egpuc-claim-1", gated=True, metadata={"labels": MANAGED})
    space.bound("uses")
    check(manager, space.get(ResourceClaim, "egpuc-claim-1"), spec)
    ended(space, manager, "uses")
    # The controllers take away what they have made: no namespace has it.
    space.client.delete(kinds.Claim, "claim-1", namespace=space.name)

    def shown() -> list[str]:
        gpus = [one.to_dict()["spec"]["claimRef"] for one in space.client.list(kinds.Gpu)]
        return [one["name"] for one in gpus if one["namespace"] == space.name]

    wait_until(lambda: not shown(), SECONDS)


@pytest.mark.full
def test_the_quota_of_the_page_holds(here: Space, manager: ManagerProcess) -> None:
    (quota,) = [found[0] for _, found in pages.blocks(OTHERS) if found[0]["kind"] == "GpuQuota"]
    put(here, quota)

    def status() -> dict[str, Any]:
        one = here.client.get(GpuQuota, "default", namespace=here.name)
        return dict(one.to_dict().get("status") or {})

    wait_until(lambda: bool(status()), SECONDS)
    here.template("whole", asked_for(next(
        after for before, after in pages.pairs(OTHERS) if name_of(before) == "whole"
    )))  # fmt: skip
    for number in range(3):
        here.pod(f"pod-{number}", template="whole", gated=True, metadata={"labels": MANAGED})
        # The third goes beyond 2.5 cards, and nobody else waits.
        here.bound(f"pod-{number}")
    wait_until(lambda: "borrowed" in json.dumps(status()), SECONDS)
    ended(here, manager, *(f"pod-{number}" for number in range(3)))
