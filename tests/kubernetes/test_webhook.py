"""One pod for each old unit, through the webhook and the real API server."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers import https
from helpers.kube_deploy import apply
from helpers.kube_objects import Space, card, node, publish
from helpers.kubernetes import ControlPlane
from helpers.waiting import wait_until
from lightkube import ApiError, AsyncClient, Client, KubeConfig, codecs
from lightkube.resources.admissionregistration_v1 import MutatingWebhookConfiguration
from lightkube.resources.core_v1 import Pod
from lightkube.resources.resource_v1 import ResourceClaimTemplate

from rgpu_cluster.kubernetes.admission import TEMPLATE_LABEL, Way
from rgpu_cluster.kubernetes.legacy.vendors import SYSTEMS
from rgpu_cluster.kubernetes.names import GATE
from rgpu_cluster.kubernetes.webhook import PATH, Webhook

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy" / "kubernetes" / "legacy"
NAME = "rgpu-units"
# One pod for each system; the numbers are those of docs/how-to/migrating.md.
OLD: dict[str, dict[str, Any]] = {
    "gpumanager": {"limits": {"tencent.com/vcuda-core": "40", "tencent.com/vcuda-memory": "32"}},
    "gpushare": {"limits": {"aliyun.com/gpu-mem": "3"}},
    "cgpu": {"limits": {"aliyun.com/gpu-mem": "6", "aliyun.com/gpu-core.percentage": "25"}},
    "qgpu": {
        "limits": {
            "tke.cloud.tencent.com/qgpu-core": "30",
            "tke.cloud.tencent.com/qgpu-memory": "10",
        }
    },
    "hami": {
        "limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "4096", "nvidia.com/gpucores": "30"}
    },
    "elastic": {"limits": {"elasticgpu.com/gpu-core": "20", "elasticgpu.com/gpu-memory": "512"}},
}
WANTED = {
    "gpumanager": {"core": "40", "memory": "8Gi"},
    "gpushare": {"core": "1", "memory": "3Gi"},
    "cgpu": {"core": "25", "memory": "6Gi"},
    "qgpu": {"core": "30", "memory": "10Gi"},
    "hami": {"core": "30", "memory": "4Gi"},
    "elastic": {"core": "20", "memory": "512Mi"},
    "kubeshare": {"core": "50", "memory": "1Gi"},
}
KUBESHARE = {
    "kubeshare/gpu_request": "0.5",
    "kubeshare/gpu_limit": "1.0",
    "kubeshare/gpu_mem": "1073741824",
}


def configuration() -> dict[str, Any]:
    for one in yaml.safe_load_all((DEPLOY / "webhook.yaml").read_text()):
        if one["kind"] == "MutatingWebhookConfiguration":
            found: dict[str, Any] = one
            return found
    raise AssertionError("there is no MutatingWebhookConfiguration")


def at(url: str, space: Space) -> dict[str, Any]:
    """The configuration that is shipped, for one namespace and a server of this test."""
    found = configuration()
    (hook,) = found["webhooks"]
    hook["clientConfig"] = {"url": url + PATH, "caBundle": https.authority()}
    hook["namespaceSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": space.name}}
    return found


def install(client: Client, found: dict[str, Any]) -> None:
    client.create(codecs.from_dict(found))


def remove(client: Client) -> None:
    client.delete(MutatingWebhookConfiguration, NAME)


@pytest.fixture
def seen() -> list[Any]:
    return []


@pytest.fixture
def hooked(plane: ControlPlane, space: Space, seen: list[Any]) -> Iterator[Space]:
    """A namespace whose pods go through the webhook.  seen: what the API server sends."""

    async def routes(stack: AsyncExitStack) -> https.Routes:
        config = KubeConfig.from_dict(plane.kubeconfig())
        client = await stack.enter_async_context(AsyncClient(config=config, trust_env=False))
        hook = Webhook(client, Way.CLAIMS)

        async def answer(message: Any) -> Any:
            seen.append(message)
            return await hook.answer(message)

        return {PATH: answer}

    with https.running(routes) as url:
        install(space.client, at(url, space))
        try:
            wait_until(lambda: reached(space, seen))
            yield space
        finally:
            remove(space.client)


def reached(space: Space, seen: list[Any]) -> bool:
    """A new webhook is in force a little later."""
    space.client.create(old_pod(space, "probe", OLD["gpushare"]), dry_run=True)
    return bool(seen)


def old_pod(space: Space, name: str, resources: dict[str, Any], **metadata: Any) -> Any:
    container = {"name": "c", "image": "none", "resources": resources}
    return codecs.from_dict({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": space.name, **metadata},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
    })  # fmt: skip


def claimed(space: Space, name: str) -> dict[str, Any]:
    found = space.claim_of(name).to_dict()
    requests: dict[str, Any] = found["spec"]["devices"]["requests"][0]["exactly"]["capacity"][
        "requests"
    ]
    return requests


def test_each_old_unit_becomes_a_claim(hooked: Space) -> None:
    for name, resources in OLD.items():
        hooked.client.create(old_pod(hooked, name, resources))
    hooked.client.create(old_pod(hooked, "kubeshare", {}, annotations=KUBESHARE))
    for name, wanted in WANTED.items():
        assert claimed(hooked, name) == wanted, name
        pod = hooked.get(Pod, name).to_dict()
        assert [one["name"] for one in pod["spec"]["schedulingGates"]] == [GATE]
        assert pod["metadata"]["labels"]["rgpu.dev/placement"] == "managed"
        (container,) = pod["spec"]["containers"]
        assert container["resources"] == {"claims": [{"name": "rgpu-0"}]}
        assert "RGPU_SERVER" in [one["name"] for one in container["env"]]


def test_equal_pods_share_a_template(hooked: Space) -> None:
    for number in range(3):
        hooked.client.create(old_pod(hooked, f"pod-{number}", OLD["gpushare"]))
    made = list(
        hooked.client.list(
            ResourceClaimTemplate, namespace=hooked.name, labels={TEMPLATE_LABEL: "v1"}
        )
    )
    assert len(made) == 1


def test_a_pod_that_cannot_be_met_is_refused_with_a_sentence(hooked: Space) -> None:
    wrong = {"limits": {"tencent.com/vcuda-core": "150", "tencent.com/vcuda-memory": "1"}}
    with pytest.raises(
        ApiError, match=r"rgpu: container c: tencent.com/vcuda-core 150 .* write 100 or 200"
    ):
        hooked.client.create(old_pod(hooked, "wrong", wrong))
    assert hooked.get(Pod, "wrong") is None


def test_a_dry_run_makes_nothing(hooked: Space) -> None:
    """The webhook was asked in a dry run before each of these tests."""
    assert not list(hooked.client.list(ResourceClaimTemplate, namespace=hooked.name))


def test_the_webhook_is_not_asked_about_other_pods(hooked: Space, seen: list[Any]) -> None:
    before = len(seen)
    hooked.client.create(old_pod(hooked, "plain", {"limits": {"cpu": "1"}}))
    hooked.client.create(old_pod(hooked, "nvidia", {"limits": {"nvidia.com/gpu": "1"}}))
    assert len(seen) == before
    managed = {"labels": {"rgpu.dev/placement": "managed"}}
    hooked.client.create(old_pod(hooked, "whole", {"limits": {"nvidia.com/gpu": "1"}}, **managed))
    assert len(seen) == before + 1
    claim = hooked.claim_of("whole").to_dict()["spec"]["devices"]
    assert claim["config"][0]["opaque"]["parameters"]["whole"] is True


def test_the_condition_knows_every_unit(hooked: Space, seen: list[Any]) -> None:
    for system in SYSTEMS:
        for unit in system.resources:
            before = len(seen)
            labels = {"rgpu.dev/placement": "managed"} if unit == system.weak else {}
            one = old_pod(hooked, "probe", {"limits": {unit: "1"}}, labels=labels)
            # What is no right request is refused, and was asked about.
            with suppress(ApiError):
                hooked.client.create(one, dry_run=True)
            assert len(seen) == before + 1, unit


def test_the_changed_pod_runs_where_its_claim_is(hooked: Space) -> None:
    """Without our manager, once somebody removes the gate: kube-scheduler's first fit."""
    node(hooked.client, "client")
    publish(hooked.client, "gpu7", card("gpu-0"))
    hooked.client.create(old_pod(hooked, "old", OLD["gpumanager"]))
    hooked.claim_of("old")
    hooked.ungate("old")
    assert hooked.bound("old") == "client"
    claim = hooked.claim_of("old").metadata.name
    (result,) = hooked.allocation(claim).devices.results
    assert result.consumedCapacity == {"core": "40", "memory": "8Gi"}


def test_the_manifests_are_taken_whole(plane: ControlPlane) -> None:
    """Their webhook is asked by no other test."""
    client = plane.client()
    apply(client, "namespace.yaml")
    files = ("webhook.yaml", "controllers.yaml", "extender.yaml")
    try:
        apply(client, *files, folder=DEPLOY)
        apply(client, *files, folder=DEPLOY)
    finally:
        remove(client)


def test_without_the_webhook_such_a_pod_is_refused(space: Space) -> None:
    install(space.client, at("https://127.0.0.1:9", space))
    try:

        def failed() -> bool:
            try:
                space.client.create(old_pod(space, "old", OLD["gpumanager"]))
            except ApiError as error:
                return "failed calling webhook" in str(error)
            space.delete(Pod, "old")
            return False

        wait_until(failed)
        space.client.create(old_pod(space, "plain", {"limits": {"cpu": "1"}}))
    finally:
        remove(space.client)


def test_what_the_api_server_sends_is_as_in_the_golden_file(hooked: Space, seen: list[Any]) -> None:
    """The golden review has the fields of a real one."""
    hooked.client.create(old_pod(hooked, "old", OLD["gpumanager"]))
    golden = json.loads((Path(__file__).parent / "golden" / "review.json").read_text())
    assert seen[-1].keys() == golden.keys()
    assert seen[-1]["request"].keys() == golden["request"].keys()
    assert base64.b64decode(https.authority())
