"""Old words to the end: a real manager and real daemons, by claims and by the extender."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers import clients, https
from helpers.kube_deploy import BASE, apply
from helpers.kube_objects import Space, card, node, publish
from helpers.kubernetes import ControlPlane, Part
from helpers.manager import ManagerProcess
from helpers.nodes import Nodes
from helpers.ports import free_port
from helpers.waiting import wait_until
from lightkube import AsyncClient, KubeConfig, codecs
from lightkube.resources.admissionregistration_v1 import MutatingWebhookConfiguration
from lightkube.resources.core_v1 import Pod
from lightkube.resources.resource_v1 import ResourceClaim

from rgpu_cluster.kubernetes.admission import Way
from rgpu_cluster.kubernetes.webhook import PATH, Webhook

LEGACY = BASE.parent / "legacy"
GPUS = {"gpu7": "r1", "gpu8": "r2"}
WORDS = {"tencent.com/vcuda-core": "40", "tencent.com/vcuda-memory": "8"}
SCHEDULER = "with-manager"


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def manager(
    plane: ControlPlane, port: int, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ManagerProcess]:
    apply(plane.client(), "namespace.yaml", "classes.yaml", "manager-rbac.yaml")
    apply(plane.client(), "extender.yaml", folder=LEGACY)
    config = tmp_path_factory.mktemp("manager") / "manager.toml"
    config.write_text(f'[kubernetes]\nextender = "127.0.0.1:{port}"\n')
    file = plane.kubeconfig_file("placer")
    words = (
        "--kubernetes",
        "--kubeconfig",
        str(file),
        "--namespace",
        "rgpu-system",
        "--config",
        str(config),
    )
    with ManagerProcess(*words) as manager:
        yield manager


@pytest.fixture(scope="module")
def gpus(manager: ManagerProcess) -> Iterator[Nodes]:
    with Nodes(manager, GPUS, "emulated:16GiB") as nodes:
        yield nodes


@pytest.fixture
def here(space: Space, gpus: Nodes) -> Space:
    # The leases of the last test's pods end a little later than its namespace.
    wait_until(lambda: leases(gpus.manager) == [])
    node(space.client, "client", **{"rgpu.dev/rack": "r2"})
    return space


def leases(manager: ManagerProcess) -> list[str]:
    cards = (one["cards"] for one in manager.pool()["nodes"])
    return [lease["request_id"] for card in itertools.chain(*cards) for lease in card["leases"]]


def old_pod(space: Space, name: str, words: dict[str, str], **spec: Any) -> None:
    container = {"name": "c", "image": "none", "resources": {"limits": words}}
    space.make("v1", "Pod", name, spec={
        "containers": [container], "terminationGracePeriodSeconds": 0, **spec,
    })  # fmt: skip


def computes(space: Space, name: str, memory: int) -> None:
    """Runs a program with what the pod is told."""
    said = space.get(Pod, name).metadata.annotations
    status, output, errors = clients.run(
        said["rgpu.dev/server"], "cuda.open(); print(cuda.memory()[1])",
        RGPU_LEASE=said["rgpu.dev/lease"], RGPU_DEVICE=said["rgpu.dev/device"], RGPU_TENANT=space.name,
    )  # fmt: skip
    assert (status, output.strip()) == (0, str(memory)), errors


@pytest.fixture
def hooked(plane: ControlPlane, here: Space) -> Iterator[Space]:
    async def routes(stack: AsyncExitStack) -> https.Routes:
        config = KubeConfig.from_dict(plane.kubeconfig())
        client = await stack.enter_async_context(AsyncClient(config=config, trust_env=False))
        return {PATH: Webhook(client, Way.CLAIMS).answer}

    with https.running(routes) as url:
        (found,) = [
            one for one in yaml.safe_load_all((LEGACY / "webhook.yaml").read_text())
            if one["kind"] == "MutatingWebhookConfiguration"
        ]  # fmt: skip
        found["webhooks"][0]["clientConfig"] = {"url": url + PATH, "caBundle": https.authority()}
        found["webhooks"][0]["namespaceSelector"] = {
            "matchLabels": {"kubernetes.io/metadata.name": here.name}
        }
        here.client.create(codecs.from_dict(found))
        try:
            yield here
        finally:
            here.client.delete(MutatingWebhookConfiguration, found["metadata"]["name"])


def test_a_pod_with_old_words_computes_by_its_claim(hooked: Space, manager: ManagerProcess) -> None:
    for name in GPUS:
        publish(hooked.client, name, card("gpu-0"))

    def changed() -> bool:
        # A new webhook is in force a little later.
        old_pod(hooked, "old", WORDS)
        if hooked.get(Pod, "old").spec.resourceClaims:
            return True
        hooked.delete(Pod, "old")
        return False

    wait_until(changed)
    assert hooked.bound("old") == "client"
    claim = hooked.claim_of("old")
    assert leases(manager) == [claim.metadata.uid]
    computes(hooked, "old", 2 << 30)
    hooked.delete(Pod, "old")
    hooked.gone(ResourceClaim, claim.metadata.name)
    wait_until(lambda: leases(manager) == [])


@pytest.fixture
def scheduled(plane: ControlPlane, here: Space, port: int, built: Path) -> Iterator[Space]:
    config = yaml.safe_load((LEGACY / "scheduler.yaml").read_text())
    config["profiles"] = [{"schedulerName": SCHEDULER}]
    config["extenders"][0] |= {"urlPrefix": f"http://127.0.0.1:{port}", "enableHTTPS": False}
    del config["extenders"][0]["tlsConfig"]
    config["clientConnection"] = {"kubeconfig": str(plane.kubeconfig_file("scheduler"))}
    config["leaderElection"] = {"leaderElect": False}
    file = plane.folder / "with-manager.json"
    file.write_text(json.dumps(config))
    part = Part("kube-scheduler", built, plane.folder, [f"--config={file}", "--secure-port=0"])
    part.log = plane.folder / "with-manager.log"
    part.start()
    try:
        yield here
    finally:
        part.stop()


def test_a_pod_with_old_words_computes_by_the_extender(
    scheduled: Space, manager: ManagerProcess
) -> None:
    """No claim, no device plugin: the daemon has granted before the pod is bound."""
    old_pod(scheduled, "old", WORDS, schedulerName=SCHEDULER)
    assert scheduled.bound("old") == "client"
    pod = scheduled.get(Pod, "old")
    assert leases(manager) == [pod.metadata.uid]
    (placed,) = [n for n in manager.pool()["nodes"] if any(c["leases"] for c in n["cards"])]
    # The rack of the pod's node first.
    assert placed["name"] == "gpu8"
    computes(scheduled, "old", 2 << 30)
    # The lease waits for the next program, and goes with the pod.
    assert leases(manager) == [pod.metadata.uid]
    scheduled.delete(Pod, "old")
    wait_until(lambda: leases(manager) == [])


def test_the_extender_refuses_what_no_card_has(scheduled: Space) -> None:
    words = {**WORDS, "tencent.com/vcuda-memory": "640"}
    old_pod(scheduled, "large", words, schedulerName=SCHEDULER)
    scheduled.refused("large", "rgpu: 2 cards cannot be used, because each has less memory in all")
