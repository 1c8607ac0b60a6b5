"""SharePods, Elastic GPU's objects and our CRDs, as functions and on the real API server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers.kube_objects import Space, allocate, card, make, node, publish
from helpers.kubernetes import ControlPlane
from helpers.waiting import wait_until
from lightkube import ApiError, AsyncClient, Client, KubeConfig, codecs
from lightkube.generic_resource import create_global_resource, create_namespaced_resource
from lightkube.resources.apiextensions_v1 import CustomResourceDefinition
from lightkube.resources.core_v1 import Pod
from lightkube.resources.resource_v1 import DeviceClass, ResourceClaim
from lightkube.types import PatchType

from rgpu_cluster.core.errors import RequestError
from rgpu_cluster.core.usage import Use
from rgpu_cluster.kubernetes.gpu_quotas import quota_of, status_of
from rgpu_cluster.kubernetes.legacy import controllers as kinds
from rgpu_cluster.kubernetes.legacy import elastic, sharepods
from rgpu_cluster.kubernetes.legacy.owning import OURS, may_serve
from rgpu_common.errors import ConfigError

DEPLOY = Path(__file__).parents[2] / "deploy" / "kubernetes"
KUBESHARE = {
    "kubeshare/gpu_request": "0.5",
    "kubeshare/gpu_limit": "1.0",
    "kubeshare/gpu_mem": "1073741824",
}
GpuQuota: Any = create_namespaced_resource("rgpu.dev", "v1alpha1", "GpuQuota", "gpuquotas")
NodePaths: Any = create_global_resource("rgpu.dev", "v1alpha1", "NodePaths", "nodepaths")


def share(namespace: str = "team", **annotations: str) -> dict[str, Any]:
    words = {**KUBESHARE, **annotations}
    return {
        "apiVersion": sharepods.API, "kind": "SharePod",
        "metadata": {"name": "one", "namespace": namespace, "uid": "u-1", "annotations": {**words, "keep": "me"},
                     "labels": {"app": "x"}},
        "spec": {"containers": [{"name": "c", "image": "none"}], "terminationGracePeriodSeconds": 0},
    }  # fmt: skip


def claim(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": elastic.API, "kind": "ElasticGPUClaim",
        "metadata": {"name": "one", "namespace": "team", "uid": "u-2"},
        "spec": {"elasticGPUClassName": "shared", **spec},
    }  # fmt: skip


REQUESTS = {"gpushare.provisioner.elasticgpu.io/gpu-core": 20, "elasticgpu.io/gpu-memory": "1024"}


# Pure


def test_a_sharepod_is_a_pod_with_a_claim_for_all_containers() -> None:
    pod, templates = sharepods.pod_of(share())
    (spec,) = templates.values()
    assert spec["devices"]["requests"][0]["exactly"]["capacity"]["requests"] == {
        "core": "50",
        "memory": "1Gi",
    }
    metadata = pod["metadata"]
    assert (metadata["name"], metadata["namespace"], metadata["annotations"]) == (
        "one",
        "team",
        {"keep": "me"},
    )
    assert metadata["labels"] == {
        "rgpu.dev/legacy": "true",
        "app": "x",
        "rgpu.dev/placement": "managed",
    }
    assert metadata["ownerReferences"][0]["uid"] == "u-1"
    assert pod["spec"]["containers"][0]["resources"]["claims"] == [{"name": "rgpu-0"}]


def test_a_sharepod_shows_its_pod() -> None:
    pod, _ = sharepods.pod_of(share())
    pod["metadata"]["annotations"] |= {"rgpu.dev/server": "gpu-7:7700", "rgpu.dev/device": "0"}
    status = sharepods.status_of({**pod, "status": {"phase": "Running"}})
    assert status["PodStatus"] == {"phase": "Running"}
    assert status["BoundDeviceID"] == "gpu-7:7700/0"
    with pytest.raises(RequestError, match="rgpu chooses the card"):
        sharepods.pod_of(share(**{"kubeshare/GPUID": "abcde"}))


def test_an_elastic_claim_is_a_claim_of_its_class() -> None:
    made = elastic.resource_claim(claim(resources={"requests": REQUESTS}))
    exactly = made["spec"]["devices"]["requests"][0]["exactly"]
    assert exactly == {
        "deviceClassName": "shared.rgpu.dev",
        "capacity": {"requests": {"core": "20", "memory": "1Gi"}},
    }
    assert made["metadata"]["name"] == "egpuc-one"


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"elasticGPUName": "gpu-1"}, "leave spec.elasticGPUName out"),
        (
            {"resources": {"requests": {"cpu": 1}}},
            "spec.resources names 'cpu'; write elasticgpu.io/gpu-core",
        ),
        ({}, "spec.resources names none of elasticgpu.com/gpu-core"),
        (
            {"resources": {"limits": {"elasticgpu.io/gpu-core": 150}}},
            "whole cards are multiples of 100",
        ),
    ],
)
def test_a_wrong_elastic_claim_has_a_sentence(spec: dict[str, Any], sentence: str) -> None:
    with pytest.raises(RequestError) as caught:
        elastic.resource_claim(claim(**spec))
    assert sentence in str(caught.value)


def test_a_class_has_our_parameters() -> None:
    content = {
        "apiVersion": elastic.API, "kind": "ElasticGPUClass", "metadata": {"name": "shared", "uid": "u-3"},
        "provisioner": "rgpu.dev", "parameters": {"policy": "burst", "weight": "3", "oneNode": "true"},
    }  # fmt: skip
    made = elastic.device_class(content)
    assert made["metadata"]["name"] == "shared.rgpu.dev"
    parameters = made["spec"]["config"][0]["opaque"]["parameters"]
    assert (parameters["policy"], parameters["weight"], parameters["oneNode"]) == ("burst", 3, True)
    assert not elastic.is_ours({**content, "provisioner": "gpushare.provisioner.elasticgpu.io"})
    with pytest.raises(RequestError, match="has no field 'colour'"):
        elastic.device_class({**content, "parameters": {"colour": "red"}})


def test_phases_follow_the_claim() -> None:
    bound = {"status": {"allocation": {"devices": {"results": []}}}}
    assert elastic.phase_of(None, "") == "Pending"
    assert elastic.phase_of({}, "") == "Pending"
    assert elastic.phase_of(bound, "Pending") == "Bound"
    assert elastic.phase_of(None, "Bound") == "Lost"


def test_only_crds_with_our_label_are_served() -> None:
    ours = [*yaml.safe_load_all((DEPLOY / "legacy" / "crds.yaml").read_text())]
    assert ours
    for one in ours:
        name = one["metadata"]["name"]
        assert may_serve(one, name) == ""
        del one["metadata"]["labels"]
        assert "belongs to another system" in may_serve(one, name)
        assert "there is no CRD" in may_serve(None, name)


# On the real API server


def definitions(*files: str) -> list[dict[str, Any]]:
    return [one for file in files for one in yaml.safe_load_all((DEPLOY / file).read_text())]


@contextmanager
def controlling(
    plane: ControlPlane, share_pods: bool = False, gpus: bool = False
) -> Iterator[None]:
    """The controllers, on a thread of their own."""
    loop = asyncio.new_event_loop()
    tasks: list[asyncio.Task[None]] = []

    async def work() -> None:
        config = KubeConfig.from_dict(plane.kubeconfig())
        async with AsyncClient(config=config, trust_env=False) as client:
            chosen: list[kinds.Controller] = [kinds.SharePods(client)] if share_pods else []
            if gpus:
                chosen += [kinds.ElasticClasses(client), kinds.ElasticClaims(client)]
            await kinds.run_all([one.run for one in chosen])

    def run() -> None:
        tasks.append(loop.create_task(work()))
        try:
            loop.run_until_complete(tasks[0])
        except asyncio.CancelledError:
            pass
        finally:
            loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        if not loop.is_closed():
            loop.call_soon_threadsafe(lambda: tasks[0].cancel())
        thread.join(60)
        assert not thread.is_alive()


def status(client: Client, kind: Any, name: str, namespace: str) -> dict[str, Any]:
    content: dict[str, Any] = client.get(kind, name, namespace=namespace).to_dict()
    return content.get("status") or {}


def test_a_sharepod_runs(plane: ControlPlane, space: Space, crds: None) -> None:
    node(space.client, "client")
    publish(space.client, "gpu7", card("gpu-0"))
    with controlling(plane, share_pods=True):
        one = share(space.name)
        del one["metadata"]["uid"]
        make(space.client, one)
        claim = space.claim_of_made("one")
        pod = space.get(Pod, "one")
        allocate(space.client, claim, pod, ["client"], pool="gpu7", device="gpu-0", core=50)
        change = {
            "metadata": {"annotations": {"rgpu.dev/server": "gpu7:7700", "rgpu.dev/device": "0"}}
        }
        space.client.patch(Pod, "one", change, namespace=space.name)
        space.ungate("one")
        assert space.bound("one") == "client"
        told = lambda: status(space.client, kinds.SharePod, "one", space.name)  # noqa: E731
        wait_until(lambda: told().get("BoundDeviceID") == "gpu7:7700/0")
        assert told()["PodStatus"]["phase"] == "Pending"
        assert told()["PodObjectMeta"]["uid"] == pod.metadata.uid
        space.client.delete(kinds.SharePod, "one", namespace=space.name)
        space.gone(Pod, "one")


def test_a_sharepod_that_cannot_be_met_says_why(
    plane: ControlPlane, space: Space, crds: None
) -> None:
    with controlling(plane, share_pods=True):
        space.pod("taken", claim="none", metadata={}, schedulingGates=[{"name": "test/held"}])
        wrong, taken = share(space.name, **{"kubeshare/gpu_limit": "0.4"}), share(space.name)
        taken["metadata"]["name"] = "taken"
        for one in (wrong, taken):
            del one["metadata"]["uid"]
            make(space.client, one)

        def message(name: str) -> str:
            return str(
                status(space.client, kinds.SharePod, name, space.name)
                .get("PodStatus", {})
                .get("message")
            )

        wait_until(lambda: "raise kubeshare/gpu_limit" in message("one"))
        wait_until(lambda: "there is another pod taken; delete it" in message("taken"))
        assert space.get(Pod, "one") is None


@pytest.fixture
def shared_class(space: Space, crds: None) -> Iterator[dict[str, Any]]:
    """An ElasticGPUClass that is not made yet. No namespace has it, so it is deleted at the end."""
    yield {"apiVersion": elastic.API, "kind": "ElasticGPUClass", "metadata": {"name": "shared"},
           "provisioner": "rgpu.dev", "parameters": {"policy": "burst"}}  # fmt: skip
    with suppress(ApiError):
        space.client.delete(kinds.Class, "shared")


def test_elastic_claims_are_bound_and_shown(
    plane: ControlPlane, space: Space, shared_class: dict[str, Any]
) -> None:
    node(space.client, "client")
    publish(space.client, "gpu7", card("gpu-0"))
    with controlling(plane, gpus=True):
        for name, class_name, resources in (
            ("ours", "shared", REQUESTS), ("theirs", "other", REQUESTS),
            ("wrong", "shared", {"nvidia.com/gpu": 1}),
        ):  # fmt: skip
            one = claim(resources={"requests": resources}, elasticGPUClassName=class_name)
            one["metadata"] = {"name": name, "namespace": space.name}
            make(space.client, one)
        # The class comes last, and the claims that wait for it are looked at again.
        make(space.client, shared_class)
        phase = lambda: status(space.client, kinds.Claim, "ours", space.name).get("phase")  # noqa: E731
        wait_until(lambda: phase() == "Pending")
        # Another controller makes the class.
        wait_until(lambda: space.get(DeviceClass, "shared.rgpu.dev") is not None)
        assert space.get(DeviceClass, "shared.rgpu.dev").spec.config
        space.pod("user", claim="egpuc-ours")
        assert space.bound("user") == "client"
        wait_until(lambda: phase() == "Bound")

        def shown() -> list[dict[str, Any]]:
            """Those of this namespace's claims.  They have no namespace themselves."""
            gpus = [one.to_dict() for one in space.client.list(kinds.Gpu)]
            return [one for one in gpus if one["spec"]["claimRef"]["namespace"] == space.name]

        wait_until(lambda: bool(shown()) and bool(shown()[0].get("status")))
        (gpu,) = shown()
        assert gpu["spec"]["gpuShare"] == {"gpuName": "gpu7/gpu-0"}
        assert gpu["spec"]["capacity"]["elasticgpu.com/gpu-core"] == "20"
        assert gpu["spec"]["claimRef"]["name"] == "ours"
        space.delete(Pod, "user")
        space.client.delete(kinds.Claim, "ours", namespace=space.name)
        space.gone(ResourceClaim, "egpuc-ours")
        wait_until(lambda: not shown())
        assert space.get(ResourceClaim, "egpuc-theirs") is None
        wait_until(lambda: bool(status(space.client, kinds.Claim, "wrong", space.name)))
        wrong = status(space.client, kinds.Claim, "wrong", space.name)
        assert wrong["phase"] == "Pending"
        assert "spec.resources names 'nvidia.com/gpu'; write" in wrong["message"]


def test_an_original_crd_is_left_as_it_is(plane: ControlPlane, space: Space, crds: None) -> None:
    """A CRD without our label is another system's, and `kubectl create` does not replace it."""
    name = kinds.SHAREPODS[0]
    with pytest.raises(ApiError, match="already exists"):
        make(space.client, next(iter(definitions("legacy/crds.yaml"))))

    async def check(names: tuple[str, ...]) -> None:
        config = KubeConfig.from_dict(plane.kubeconfig())
        async with AsyncClient(config=config, trust_env=False) as client:
            await kinds.check_definitions(client, names)

    def label(value: str | None) -> None:
        change = {"metadata": {"labels": {OURS: value}}}
        space.client.patch(CustomResourceDefinition, name, change, patch_type=PatchType.MERGE)

    asyncio.run(check((*kinds.SHAREPODS, *kinds.ELASTIC)))
    label(None)
    try:
        with pytest.raises(ConfigError, match="belongs to another system"):
            asyncio.run(check(kinds.SHAREPODS))
        with pytest.raises(ConfigError, match=r"there is no CRD gpus\.elasticgpu\.io"):
            asyncio.run(check(("gpus.elasticgpu.io",)))
    finally:
        label("true")


@pytest.fixture
def node_paths(space: Space, crds: None) -> Iterator[str]:
    """The name of NodePaths that are not made yet.  No namespace has them."""
    yield "gpu-7"
    with suppress(ApiError):
        space.client.delete(NodePaths, "gpu-7")


def test_our_crds_take_what_we_write_and_refuse_the_rest(space: Space, node_paths: str) -> None:
    client = space.client
    quota = {"apiVersion": "rgpu.dev/v1alpha1", "kind": "GpuQuota",
             "metadata": {"name": "default", "namespace": space.name},
             "spec": {"cards": "2.5", "memory": "200Gi", "borrow": True}}  # fmt: skip
    made = client.create(codecs.from_dict(quota)).to_dict()
    assert quota_of(made).share_ppm == 2_500_000
    told = status_of(made, Use(2_600_000, 1 << 30), 1, "2026-01-01T00:00:00Z")
    merge = {"patch_type": PatchType.MERGE}
    client.patch(GpuQuota.Status, "default", {"status": told}, namespace=space.name, **merge)
    assert status(client, GpuQuota, "default", space.name) == told
    wrong = {**quota, "metadata": {"name": "second", "namespace": space.name}}
    with pytest.raises(ApiError, match="its name is default"):
        client.create(codecs.from_dict(wrong))
    paths = {
        "apiVersion": "rgpu.dev/v1alpha1",
        "kind": "NodePaths",
        "metadata": {"name": node_paths},
    }
    client.create(codecs.from_dict(paths))
    row = {"server": {"rack": "r1", "nic": "100G"}, "transport": "tcp", "roundTripNanoseconds": 60000,
           "measuredAt": "2026-01-01T00:00:00Z"}  # fmt: skip
    said = {"client": {"rack": "r2", "nic": "100G"}, "measured": 1, "paths": [row]}
    client.patch(NodePaths.Status, node_paths, {"status": said}, **merge)
    assert client.get(NodePaths, node_paths).to_dict()["status"] == said
    with pytest.raises(ApiError, match="must have at most 64 items"):
        client.patch(NodePaths.Status, node_paths, {"status": {"paths": [row] * 65}}, **merge)
