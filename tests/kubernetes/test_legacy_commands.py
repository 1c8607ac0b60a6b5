"""`rgpu units-webhook` and `rgpu legacy-controllers` as processes."""

from __future__ import annotations

import json
import re
import ssl
import subprocess
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers import pki
from helpers.command import rgpu_command, running
from helpers.kube_deploy import BASE, apply
from helpers.kube_objects import Space, make
from helpers.kubernetes import ControlPlane
from helpers.waiting import wait_until
from lightkube.resources.core_v1 import Pod
from lightkube.resources.resource_v1 import ResourceClaimTemplate

from rgpu_cluster.kubernetes.legacy import controllers as kinds

SECONDS = 60
LEGACY = BASE.parent / "legacy"
GOLDEN = Path(__file__).parent / "golden"


def failed(*words: str, **environment: str) -> str:
    """The one line of a command that cannot begin."""
    done = subprocess.run([rgpu_command(), *words], capture_output=True, text=True, timeout=SECONDS,
                          env={"PATH": "/usr/bin", **environment}, cwd="/")  # fmt: skip
    assert done.returncode != 0
    (line,) = done.stderr.splitlines()[-1:]
    assert "Traceback" not in done.stderr
    return line


def tls_words() -> tuple[str, ...]:
    return (
        "--certificate",
        str(pki.folder() / "server.pem"),
        "--key",
        str(pki.folder() / "server.key"),
    )


def ask(url: str, message: Any) -> Any:
    context = ssl.create_default_context(cafile=str(pki.folder() / "ca.pem"))
    asked = urllib.request.Request(url, json.dumps(message).encode())
    with urllib.request.urlopen(asked, timeout=SECONDS, context=context) as answer:
        return json.load(answer)


def test_the_webhook_for_the_extender_needs_no_api_server() -> None:
    words = ("units-webhook", "--listen", "127.0.0.1:0", "--for", "extender", *tls_words())
    with running("the units webhook serves https://", *words) as line:
        url = re.search(r"https://\S+", line)
        assert url
        answer = ask(url[0], json.loads((GOLDEN / "review.json").read_text()))
        assert answer["response"]["allowed"] is True
        assert answer["response"]["patchType"] == "JSONPatch"


def test_the_webhook_has_just_the_rights_of_its_manifest(plane: ControlPlane, space: Space) -> None:
    apply(space.client, "namespace.yaml")
    apply(space.client, "webhook-rights.yaml", folder=rights(plane.folder, "webhook.yaml"))
    kubeconfig = str(plane.kubeconfig_file("webhook"))
    words = ("units-webhook", "--listen", "127.0.0.1:0", "--kubeconfig", kubeconfig, *tls_words())
    with running("the units webhook serves https://", *words) as line:
        url = re.search(r"https://\S+", line)
        assert url
        review = json.loads((GOLDEN / "review.json").read_text())
        review["request"]["namespace"] = space.name
        for _ in range(2):
            answer = ask(url[0], review)
            assert answer["response"]["allowed"] is True, answer
        assert len(list(space.client.list(ResourceClaimTemplate, namespace=space.name))) == 1
        review["request"]["namespace"] = "nowhere"
        status = ask(url[0], review)["response"]["status"]
        assert "could not be made" in status["message"]


def rights(folder: Path, file: str) -> Path:
    """A file with the rights of a manifest alone."""
    kinds = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding")
    found = [one for one in yaml.safe_load_all((LEGACY / file).read_text()) if one["kind"] in kinds]
    (folder / file.replace(".yaml", "-rights.yaml")).write_text(yaml.safe_dump_all(found))
    return folder


def test_the_controllers_have_just_the_rights_of_their_manifest(
    plane: ControlPlane, space: Space, crds: None
) -> None:
    apply(space.client, "namespace.yaml")
    apply(space.client, "controllers-rights.yaml", folder=rights(plane.folder, "controllers.yaml"))
    kubeconfig = str(plane.kubeconfig_file("legacy"))
    words = ("legacy-controllers", "--share-pods", "--elastic-gpu", "--kubeconfig", kubeconfig)
    with running("the legacy controllers work", *words), ExitStack() as stack:
        make(space.client, {"apiVersion": "elasticgpu.io/v1alpha1", "kind": "ElasticGPUClass",
                            "metadata": {"name": "rights"}, "provisioner": "rgpu.dev"})  # fmt: skip
        # No namespace has it.
        stack.callback(space.client.delete, kinds.Class, "rights")
        words_of = {
            "kubeshare/gpu_request": "0.5",
            "kubeshare/gpu_limit": "1.0",
            "kubeshare/gpu_mem": "1073741824",
        }
        make(space.client, {
            "apiVersion": "kubeshare.nthu/v1", "kind": "SharePod",
            "metadata": {"name": "one", "namespace": space.name, "annotations": words_of},
            "spec": {"containers": [{"name": "c", "image": "none"}], "terminationGracePeriodSeconds": 0},
        })  # fmt: skip
        make(space.client, {
            "apiVersion": "elasticgpu.io/v1alpha1", "kind": "ElasticGPUClaim",
            "metadata": {"name": "one", "namespace": space.name},
            "spec": {"elasticGPUClassName": "rights", "resources": {"requests": {"elasticgpu.io/gpu-core": 100}}},
        })  # fmt: skip
        space.claim_of_made("one")

        def phase() -> Any:
            content = space.client.get(kinds.Claim, "one", namespace=space.name).to_dict()
            return (content.get("status") or {}).get("phase")

        wait_until(lambda: phase() == "Pending")
        space.client.delete(kinds.SharePod, "one", namespace=space.name)
        space.gone(Pod, "one")
        space.client.delete(kinds.Claim, "one", namespace=space.name)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("units-webhook", "--certificate", "/no/file", "--key", "/no/file"), "/no/file and /no/file are no certificate"),
        (("units-webhook", *tls_words()), "this is no pod, and KUBECONFIG does not say how to reach Kubernetes"),
        (("units-webhook", "--listen", "unix:/x", *tls_words()), "is no address; write 0.0.0.0:7443"),
        (("legacy-controllers",), "nothing is to be served; write --share-pods or --elastic-gpu or both"),
        (("legacy-controllers", "--share-pods", "--kubeconfig", "/no/file"), "name a kubeconfig file with --kubeconfig"),
    ],
)  # fmt: skip
def test_a_command_that_cannot_begin_says_why(words: tuple[str, ...], sentence: str) -> None:
    assert sentence in failed(*words)
