"""Every YAML of docs/how-to/migrating.md: as functions, and on the real API server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers import https, pages
from helpers.kube_objects import Space, make
from helpers.kubernetes import ControlPlane
from helpers.waiting import wait_until
from lightkube import ApiError, AsyncClient, KubeConfig, codecs
from lightkube.resources.admissionregistration_v1 import MutatingWebhookConfiguration
from lightkube.resources.core_v1 import Pod

from rgpu_cluster.kubernetes.admission import Way, change_of
from rgpu_cluster.kubernetes.gpu_quotas import quota_of
from rgpu_cluster.kubernetes.legacy import controllers as kinds
from rgpu_cluster.kubernetes.legacy import elastic, sharepods
from rgpu_cluster.kubernetes.legacy.vendors import Options
from rgpu_cluster.kubernetes.quota_keeping import GpuQuota
from rgpu_cluster.kubernetes.webhook import PATH, Webhook

ROOT = Path(__file__).parents[2]
NAME = "how-to/migrating.md"


def pairs() -> list[Any]:
    """What was before, and what it becomes."""
    return [
        pytest.param(before, after, id=before["metadata"]["name"])
        for before, after in pages.pairs(NAME)
    ]


def there(content: dict[str, Any], namespace: str = "team") -> dict[str, Any]:
    """An object as the API server would have it."""
    return {**content, "metadata": {**content["metadata"], "namespace": namespace, "uid": "u-1"}}


def becomes(before: dict[str, Any]) -> dict[str, Any]:
    """The spec of the claim that rgpu makes of an object with old words."""
    content = there(before)
    if content["kind"] == "ElasticGPUClaim":
        made: dict[str, Any] = elastic.resource_claim(content)["spec"]
        return made
    if content["kind"] == "SharePod":
        _, templates = sharepods.pod_of(content)
    else:
        templates = dict(change_of(content, Way.CLAIMS, Options()).templates)
    (spec,) = templates.values()
    return dict(spec)


@pytest.mark.parametrize(("before", "after"), pairs())
def test_what_was_before_becomes_what_is_after(
    before: dict[str, Any], after: list[dict[str, Any]]
) -> None:
    shown = after[0]["spec"]
    assert becomes(before) == (
        shown["spec"] if after[0]["kind"] == "ResourceClaimTemplate" else shown
    )


def test_the_class_of_the_page_is_ours() -> None:
    (content,) = [one[0] for _, one in pages.blocks(NAME) if one[0]["kind"] == "ElasticGPUClass"]
    assert elastic.is_ours(content)
    made = elastic.device_class(there(content))
    assert made["spec"]["config"][0]["opaque"]["parameters"]["policy"] == "burst"


def test_the_quota_of_the_page_is_right() -> None:
    (content,) = [one[0] for _, one in pages.blocks(NAME) if one[0]["kind"] == "GpuQuota"]
    assert quota_of(content).share_ppm == 2_500_000


def test_the_refusal_of_the_page_is_the_real_one() -> None:
    words = {"tencent.com/vcuda-core": 150, "tencent.com/vcuda-memory": 1}
    pod = {
        "metadata": {},
        "spec": {"containers": [{"name": "app", "resources": {"limits": words}}]},
    }
    with pytest.raises(Exception, match="container app") as caught:
        change_of(pod, Way.CLAIMS, Options())
    assert str(caught.value) in " ".join(pages.text_of(NAME).split())


# On the real API server


@pytest.fixture
def hooked(plane: ControlPlane, space: Space) -> Iterator[Space]:
    asked: list[Any] = []

    async def routes(stack: AsyncExitStack) -> https.Routes:
        config = KubeConfig.from_dict(plane.kubeconfig())
        client = await stack.enter_async_context(AsyncClient(config=config, trust_env=False))
        hook = Webhook(client, Way.CLAIMS)

        async def answer(message: Any) -> Any:
            asked.append(message)
            return await hook.answer(message)

        return {PATH: answer}

    with https.running(routes) as url:
        (found,) = [
            one
            for one in yaml.safe_load_all(
                (ROOT / "deploy/kubernetes/legacy/webhook.yaml").read_text()
            )
            if one["kind"] == "MutatingWebhookConfiguration"
        ]
        (hook,) = found["webhooks"]
        hook["clientConfig"] = {"url": url + PATH, "caBundle": https.authority()}
        hook["namespaceSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": space.name}}
        make(space.client, found)
        first = pairs()[0].values[0]

        def reached() -> bool:
            space.client.create(codecs.from_dict(placed(first, space)), dry_run=True)
            return bool(asked)

        try:
            wait_until(reached)
            yield space
        finally:
            space.client.delete(MutatingWebhookConfiguration, found["metadata"]["name"])


def placed(content: dict[str, Any], space: Space) -> dict[str, Any]:
    return {**content, "metadata": {**content["metadata"], "namespace": space.name}}


@pytest.fixture
def classes(space: Space, crds: None) -> Iterator[None]:
    """Has no class be left: no namespace has it."""
    yield
    with suppress(ApiError):
        space.client.delete(kinds.Class, "shared")


@pytest.mark.usefixtures("classes")
def test_the_api_server_takes_all_of_it(hooked: Space) -> None:
    """Pods with old words go through the webhook; our words and other kinds as they are."""
    client = hooked.client
    for kind, objects in pages.blocks(NAME):
        for content in objects:
            namespaced = content["kind"] != "ElasticGPUClass"
            name = content["metadata"]["name"]
            if content["kind"] == "Pod" and kind == "After":
                # It has the name of the pod before.
                content["metadata"]["name"] = name = f"{name}-after"
            made = make(client, placed(content, hooked) if namespaced else content)
            if content["kind"] == "Pod":
                assert made.spec.schedulingGates or kind == "After", name
                claim = hooked.claim_of(name).to_dict()
                assert (
                    claim["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"]
                    == "rgpu.dev"
                )
                hooked.delete(Pod, name)
    assert client.get(GpuQuota, "default", namespace=hooked.name)
