"""`helm install`, `upgrade` and `uninstall` on a real API server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.helm import CHART, PROGRAM, Helm
from helpers.kubernetes import ControlPlane
from helpers.needs import fixture_needs
from helpers.waiting import wait_until
from lightkube import Client
from lightkube.generic_resource import create_global_resource
from lightkube.resources.admissionregistration_v1 import MutatingWebhookConfiguration
from lightkube.resources.apiextensions_v1 import CustomResourceDefinition
from lightkube.resources.apps_v1 import DaemonSet, Deployment
from lightkube.resources.core_v1 import Namespace
from lightkube.resources.resource_v1 import DeviceClass

pytestmark = pytest.mark.full

NAMESPACE = "gpus"
QUOTAS = "gpuquotas.rgpu.dev"
Policy = create_global_resource(
    "admissionregistration.k8s.io", "v1", "MutatingAdmissionPolicy", "mutatingadmissionpolicies"
)


@pytest.fixture(scope="module")
def cluster(built: Path) -> Iterator[ControlPlane]:
    """A cluster of its own: a chart wants all that is cluster-wide for itself."""
    with ControlPlane(built) as plane:
        yield plane


@pytest.fixture(scope="module")
@fixture_needs("helm")
def helm(cluster: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(
        PROGRAM.find(), tmp_path_factory.mktemp("helm"), str(cluster.kubeconfig_file("admin"))
    )


def done(helm: Helm, *words: str) -> str:
    ended = helm.run(*words)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def is_there(client: Client, kind: Any, name: str, namespace: str | None = None) -> bool:
    where = {} if namespace is None else {"namespace": namespace}
    return any(one.metadata.name == name for one in client.list(kind, **where))


def test_a_release_from_its_install_to_its_end(helm: Helm, cluster: ControlPlane) -> None:
    client = cluster.client()
    here = ("--namespace", NAMESPACE)
    authority = cluster.folder / "certificates" / "apiserver.crt"

    said = done(helm, "install", "rgpu", str(CHART), *here, "--create-namespace")
    assert f"make-secrets.sh {NAMESPACE} rgpu-tokens rgpu-tls | kubectl apply -f -" in said
    assert "kubectl label node NODE rgpu.dev/gpu=true" in said
    assert is_there(client, Deployment, "rgpu-manager", namespace=NAMESPACE)
    assert is_there(client, DaemonSet, "rgpu-gpu-node", namespace=NAMESPACE)
    assert is_there(client, DeviceClass, "rgpu-mig.rgpu.dev")
    assert is_there(client, Policy, "rgpu-placement")
    assert is_there(client, CustomResourceDefinition, QUOTAS)

    # What is asked again is as it was.
    before = client.get(Deployment, "rgpu-manager", namespace=NAMESPACE).metadata.generation
    done(helm, "upgrade", "rgpu", str(CHART), *here)
    assert client.get(Deployment, "rgpu-manager", namespace=NAMESPACE).metadata.generation == before

    changes = (
        "manager.replicas=3", "policies.placement=false", "legacy.webhook.enabled=true",
        "legacy.controllers.enabled=true", "legacy.extender.enabled=true",
    )  # fmt: skip
    words = ("--set", ",".join(changes), "--set-file", f"legacy.webhook.authority={authority}")
    done(helm, "upgrade", "rgpu", str(CHART), *here, *words)
    assert client.get(Deployment, "rgpu-manager", namespace=NAMESPACE).spec.replicas == 3
    assert is_there(client, MutatingWebhookConfiguration, "rgpu-units")
    assert is_there(client, CustomResourceDefinition, "sharepods.kubeshare.nthu")
    assert not is_there(client, Policy, "rgpu-placement")

    second = helm.run("install", "again", str(CHART), "--namespace", "other", "--create-namespace")
    assert second.returncode != 0
    assert "cannot be imported into the current release" in second.stderr

    done(helm, "uninstall", "rgpu", *here)
    wait_until(lambda: not is_there(client, Deployment, "rgpu-manager", namespace=NAMESPACE))
    assert not is_there(client, DeviceClass, "rgpu.dev")
    # With the CRD all quotas would go.
    assert is_there(client, CustomResourceDefinition, QUOTAS)

    # A release beside its parts makes their namespace, which stays with the Secrets in it.
    done(helm, "install", "rgpu", str(CHART), *here, "--set=namespace=rgpu-system")
    labels = client.get(Namespace, "rgpu-system").metadata.labels
    assert labels["pod-security.kubernetes.io/enforce"] == "privileged"
    assert is_there(client, Deployment, "rgpu-manager", namespace="rgpu-system")
    done(helm, "uninstall", "rgpu", *here)
    assert is_there(client, Namespace, "rgpu-system")
