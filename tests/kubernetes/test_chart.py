"""The Helm chart makes the objects of the manifests, and so does kustomize."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers import kustomize, pages
from helpers.helm import CHART, KUBERNETES, PROGRAM, Helm
from helpers.kube_deploy import without_tls
from helpers.needs import fixture_needs, needs

Object = dict[str, Any]
ROOT = KUBERNETES.parents[1]
# What deploy/kubernetes/base makes: its own namespace, beside which the release lies.
AS_BASE = ("--set", "namespace=rgpu-system")
LEGACY = (
    *("--set", "legacy.webhook.enabled=true", "--set", "legacy.webhook.authority=PEM"),
    *("--set", "legacy.controllers.enabled=true", "--set", "legacy.extender.enabled=true"),
)


@pytest.fixture(scope="module")
@fixture_needs("helm")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(PROGRAM.find(), tmp_path_factory.mktemp("helm"))


def key(one: Object) -> tuple[str, str, str]:
    metadata = one["metadata"]
    return one["kind"], metadata.get("namespace", ""), metadata["name"]


def by_key(objects: list[Object]) -> dict[tuple[str, str, str], Object]:
    found = {key(one): one for one in objects}
    assert len(found) == len(objects), "an object is there twice"
    return found


def written(*files: str) -> dict[tuple[str, str, str], Object]:
    """Returns the objects of files of deploy/kubernetes."""
    texts = [(KUBERNETES / file).read_text() for file in files]
    return by_key([one for text in texts for one in yaml.safe_load_all(text) if one])


def base() -> list[str]:
    named = yaml.safe_load((KUBERNETES / "base" / "kustomization.yaml").read_text())["resources"]
    return [f"base/{name}" for name in named]


def crds() -> list[str]:
    return sorted(f"crds/{file.name}" for file in (KUBERNETES / "crds").glob("*.yaml"))


def bare(objects: list[Object]) -> dict[tuple[str, str, str], Object]:
    """Returns rendered objects without the words that have Helm keep them."""
    for one in objects:
        annotations = one["metadata"].get("annotations", {})
        if one["kind"] in ("CustomResourceDefinition", "Namespace"):
            assert annotations == {"helm.sh/resource-policy": "keep"}
            del one["metadata"]["annotations"]
    return by_key(objects)


def same(one: dict[Any, Object], other: dict[Any, Object]) -> None:
    """Asserts that both have the same objects, and says which differ."""
    assert sorted(one) == sorted(other)
    for name, content in one.items():
        assert content == other[name], name


def named(objects: list[Object], kind: str, name: str) -> Object:
    (found,) = [one for one in objects if one["kind"] == kind and one["metadata"]["name"] == name]
    return found


def containers(objects: list[Object]) -> dict[str, Object]:
    """Returns all containers by their names."""
    specs = [
        one["spec"]["template"]["spec"] for one in objects if "template" in one.get("spec", {})
    ]
    return {one["name"]: one for spec in specs for one in spec["containers"]}


def test_the_chart_makes_the_objects_of_the_base(helm: Helm) -> None:
    same(bare(helm.template(*AS_BASE)), written(*base(), *crds()))


def test_without_tls_it_makes_the_objects_of_the_plain_manifests(helm: Helm) -> None:
    expected = written(*base(), *crds())
    without_tls([*expected.values()])
    found = bare(helm.template(*AS_BASE, "--set", "tls.enabled=false"))
    same(found, expected)
    workloads = [one for one in found.values() if one["kind"] in ("Deployment", "DaemonSet")]
    for word in ("tls:", "--tls-", "RGPU_TLS_", "rgpu-tls"):
        assert word not in yaml.safe_dump_all(workloads), word


def test_who_speaks_tls_has_its_files(helm: Helm) -> None:
    objects = helm.template(*AS_BASE, "--set", "tls.secret=mine")

    def volumes(kind: str, name: str) -> dict[str, Object]:
        pod = named(objects, kind, name)["spec"]["template"]["spec"]
        return {one["name"]: one.get("secret", {}) for one in pod["volumes"]}

    authority = {"secretName": "mine", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    assert volumes("Deployment", "rgpu-manager")["tls"] == {"secretName": "mine-manager"}
    assert volumes("DaemonSet", "rgpu-gpu-node")["tls"] == {"secretName": "mine"}
    # No client node has a key.
    plugin = volumes("DaemonSet", "rgpu-node-plugin")
    assert [one for one in plugin.values() if one] == [authority]


def test_the_old_words_are_those_of_the_manifests(helm: Helm) -> None:
    found = bare(helm.template(*AS_BASE, *LEGACY))
    files = sorted(file.name for file in (KUBERNETES / "legacy").glob("*.yaml"))
    # Configuration of kube-scheduler, and no object.
    files.remove("scheduler.yaml")
    expected = written(*base(), *crds(), *(f"legacy/{file}" for file in files))
    hook = expected["MutatingWebhookConfiguration", "", "rgpu-units"]
    hook["webhooks"][0]["clientConfig"]["caBundle"] = b64encode(b"PEM").decode()
    # The manager serves the extender by its configuration.
    manager = "Deployment", "rgpu-system", "rgpu-manager"
    text = found.pop(("ConfigMap", "rgpu-system", "rgpu-manager"))["data"]["rgpu.toml"]
    assert 'kubernetes.extender = "0.0.0.0:7444"\n' in text
    (container,) = found[manager]["spec"]["template"]["spec"]["containers"]
    assert container["args"][-1] == "--config=/etc/rgpu/rgpu.toml"
    assert {one["mountPath"] for one in container["volumeMounts"]} == {
        "/etc/rgpu", "/run/secrets/rgpu", "/run/secrets/rgpu-extender", "/run/secrets/rgpu-tls",
    }  # fmt: skip
    del found[manager], expected[manager]
    same(found, expected)


def test_a_package_has_all_that_the_links_lead_to(helm: Helm, tmp_path: Path) -> None:
    done = helm.run("package", str(CHART), "--destination", str(tmp_path))
    assert done.returncode == 0, done.stderr
    (file,) = tmp_path.iterdir()
    same(by_key(helm.template(*AS_BASE, chart=file)), by_key(helm.template(*AS_BASE)))


def test_helm_finds_nothing_wrong(helm: Helm) -> None:
    done = helm.run("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout


def test_all_parts_are_in_the_namespace_of_the_release(helm: Helm) -> None:
    objects = helm.template(*LEGACY, namespace="gpus")
    assert "rgpu-system" not in yaml.safe_dump_all(objects)
    assert {one["metadata"].get("namespace", "gpus") for one in objects} == {"gpus"}
    assert "Namespace" not in {one["kind"] for one in objects}


@pytest.mark.parametrize(
    ("switch", "files"),
    [
        ("gpuNodes.enabled", ["base/gpu-node.yaml", "base/agent-rbac.yaml"]),
        ("nodePlugin.enabled", ["base/node-plugin.yaml", "base/node-plugin-rbac.yaml"]),
        ("policies.placement", ["base/policy.yaml"]),
        ("policies.guards", ["base/own-pool-policy.yaml", "base/own-changes-policy.yaml"]),
        ("policies.quotas", ["base/quota-policy.yaml"]),
        ("networkPolicies", ["base/network-policy.yaml"]),
        ("crds", ["crds/gpuquotas.yaml", "crds/nodepaths.yaml"]),
    ],
)
def test_what_is_switched_off_is_not_there(helm: Helm, switch: str, files: list[str]) -> None:
    found = by_key(helm.template(*AS_BASE, "--set", f"{switch}=false"))
    assert found.keys() == written(*base(), *crds()).keys() - written(*files).keys()


def test_only_the_kinds_that_are_served_are_made(helm: Helm) -> None:
    words = ("--set", "legacy.controllers.sharePods=false")
    objects = helm.template(*AS_BASE, *LEGACY, *words)
    assert containers(objects)["controllers"]["args"] == ["--elastic-gpu"]
    groups = [one["spec"]["group"] for one in objects if one["kind"] == "CustomResourceDefinition"]
    assert sorted(set(groups)) == ["elasticgpu.io", "rgpu.dev"]


VALUES = """
image: {repository: registry.example/rgpu, tag: "7", pullPolicy: Always, pullSecrets: [{name: pull}]}
tokensSecret: mine
manager:
  replicas: 3
  args: [--log-level, debug]
  config: |
    placement.preset = "spread"
  nodeSelector: {pool: system}
watchdog: {args: [--seconds, "60"]}
gpuNodes:
  nodeSelector: {rgpu.dev/gpu: null, accelerator: nvidia}
  tolerations: []
  server: {config: "[identity]\\n", resources: {limits: {memory: 8Gi}}}
  agent: {args: [--offer, zone]}
nodePlugin: {resources: {requests: {cpu: 1m}, limits: null}}
autoscaling:
- {namespace: team-a, deployment: serve, maxReplicas: 4, usedCards: 500m}
"""


def test_values_are_put_in(helm: Helm, tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text(VALUES)
    objects = helm.template(*AS_BASE, "--values", str(tmp_path / "values.yaml"))
    named_containers = containers(objects)
    assert {one["image"] for one in named_containers.values()} == {"registry.example/rgpu:7"}
    assert {one["imagePullPolicy"] for one in named_containers.values()} == {"Always"}
    manager = named(objects, "Deployment", "rgpu-manager")["spec"]
    pod = manager["template"]["spec"]
    assert (manager["replicas"], pod["nodeSelector"]) == (3, {"pool": "system"})
    assert pod["imagePullSecrets"] == [{"name": "pull"}]
    assert pod["containers"][0]["args"][-3:] == [
        "--log-level",
        "debug",
        "--config=/etc/rgpu/rgpu.toml",
    ]
    assert "mine" in {one.get("secret", {}).get("secretName") for one in pod["volumes"]}
    config = named(objects, "ConfigMap", "rgpu-manager")["data"]["rgpu.toml"]
    assert config == 'placement.preset = "spread"\n'
    assert named_containers["watchdog"]["args"][-2:] == ["--seconds", "60"]
    gpu = named(objects, "DaemonSet", "rgpu-gpu-node")["spec"]["template"]["spec"]
    assert gpu["nodeSelector"] == {"accelerator": "nvidia"}
    assert "tolerations" not in gpu
    assert "mine" in {one.get("secret", {}).get("secretName") for one in gpu["volumes"]}
    assert named_containers["server"]["resources"] == {"limits": {"memory": "8Gi"}}
    assert named_containers["agent"]["args"][-2:] == ["--offer", "zone"]
    assert named_containers["plugin"]["resources"] == {"requests": {"cpu": "1m", "memory": "80Mi"}}
    assert named(objects, "ConfigMap", "rgpu-server")["data"] == {"rgpu.toml": "[identity]\n"}
    (example,) = written("autoscaling/hpa.yaml").values()
    made = named(objects, "HorizontalPodAutoscaler", "serve")
    assert made["metadata"] == {"name": "serve", "namespace": "team-a"}
    example["spec"]["maxReplicas"] = 4
    example["spec"]["metrics"][0]["external"]["target"]["averageValue"] = "500m"
    assert made["spec"] == example["spec"]


def test_gpu_nodes_have_the_nodes_driver_and_no_emulated_card(helm: Helm) -> None:
    def node(*words: str) -> tuple[Object, Object]:
        objects = helm.template(*AS_BASE, *words)
        pod = named(objects, "DaemonSet", "rgpu-gpu-node")["spec"]["template"]["spec"]
        return pod, containers(objects)["server"]

    def visible(server: Object) -> str:
        return next(x["value"] for x in server["env"] if x["name"] == "NVIDIA_VISIBLE_DEVICES")

    pod, server = node()
    assert pod["runtimeClassName"] == "nvidia"
    assert [one for one in server["args"] if "--device" in one] == ["--device=cuda"]
    assert visible(server) == "all"
    words = ("gpuNodes.runtimeClassName=", "gpuNodes.devices={emulated:8GiB,emulated:8GiB}",
             "gpuNodes.visibleDevices=GPU-1")  # fmt: skip
    pod, server = node(*[word for one in words for word in ("--set", one)])
    assert "runtimeClassName" not in pod
    assert [one for one in server["args"] if "--device" in one] == 2 * ["--device=emulated:8GiB"]
    assert visible(server) == "GPU-1"


def test_a_manager_starts_again_when_its_configuration_changes(helm: Helm) -> None:
    def mark(text: str) -> str:
        objects = helm.template(*AS_BASE, "--set-string", f"manager.config={text}")
        template = named(objects, "Deployment", "rgpu-manager")["spec"]["template"]
        return str(template["metadata"]["annotations"]["rgpu.dev/configuration"])

    assert mark("a") != mark("b")


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (["imgae.tag=1"], "additional properties 'imgae' not allowed"),
        (["gpuNodes.devices={gpu}"], "/gpuNodes/devices/0'.*does not match pattern"),
        (["manager.replicas=0"], "/manager/replicas'.*minimum"),
        (["image.pullPolicy=Sometimes"], "'', 'Always', 'IfNotPresent', 'Never'"),
        (
            ["legacy.webhook.enabled=true"],
            "authority is empty: give the authority of .* `rgpu tls init`",
        ),
        (["autoscaling[0].deployment=a"], "missing prop"),
        (
            ["legacy.extender.enabled=true", "manager.config=[kubernetes]"],
            "write `kubernetes.KEY = VALUE` lines at the top",
        ),
    ],
)
def test_wrong_values_are_refused(helm: Helm, values: list[str], says: str) -> None:
    words = [word for value in values for word in ("--set", value)]
    assert re.search(says, helm.refusal(*words), re.DOTALL)


def test_a_cluster_that_is_too_old_is_refused(helm: Helm) -> None:
    assert "requires kubeVersion: >=1.34.0" in helm.refusal(version="1.33.4")


def test_a_cluster_without_its_feature_gates_is_refused(helm: Helm) -> None:
    said = helm.refusal(version="1.35.4")
    assert "Kubernetes v1.35.4 serves no MutatingAdmissionPolicy" in said
    assert "--feature-gates=MutatingAdmissionPolicy=true" in said
    words = ("--set", "policies.placement=false", "--kube-version", "1.35.4")
    assert "MutatingAdmissionPolicy" not in {one["kind"] for one in helm.template(*words)}


def test_a_cluster_gets_the_version_of_the_policy_that_it_serves(helm: Helm) -> None:
    def versions(*words: str) -> set[str]:
        objects = helm.template(*words)
        return {x["apiVersion"] for x in objects if x["kind"].startswith("MutatingAdmission")}

    group = "admissionregistration.k8s.io"
    served = ("--api-versions", f"{group}/v1beta1/MutatingAdmissionPolicy")
    assert versions("--kube-version", "1.34.2", *served) == {f"{group}/v1beta1"}
    assert versions("--kube-version", "1.36.0-gke.1", *served) == {f"{group}/v1"}


def test_a_chart_whose_links_lead_nowhere_says_so(helm: Helm, tmp_path: Path) -> None:
    for file in ("Chart.yaml", "values.yaml", "templates/_parts.tpl", "templates/objects.yaml"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text((CHART / file).read_text())
    done = helm.run("template", "rgpu", str(tmp_path), "--kube-version", "1.37.0")
    assert "copy the whole of deploy/kubernetes" in done.stderr


# By kustomize


@needs("kustomize")
def test_kustomize_makes_the_objects_of_the_base_and_without_tls_the_plain_ones() -> None:
    expected = written(*base())
    same(by_key(kustomize.build(KUBERNETES / "base")), expected)
    without_tls([*expected.values()])
    same(by_key(kustomize.build(KUBERNETES / "plain")), expected)


@needs("kustomize")
def test_the_kustomization_of_the_page_names_another_image(tmp_path: Path) -> None:
    (images,) = re.findall(r"`(images: \[\{.*?\}\])`", pages.text_of("how-to/kubernetes.md"))
    (tmp_path / "base").symlink_to(KUBERNETES / "base")
    own = {"resources": ["base"], **yaml.safe_load(images)}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(own))
    found = containers(kustomize.build(tmp_path))
    assert len(found) >= 5
    (wanted,) = own["images"]
    image = f"{wanted['newName']}:{wanted['newTag']}"
    assert {one["image"] for one in found.values()} == {image}


# Without helm


def properties(schema: Object, where: str = "") -> Iterator[tuple[str, Object]]:
    for name, one in schema.get("properties", {}).items():
        yield f"{where}{name}", one
        yield from properties(one, f"{where}{name}.")
        yield from properties(one.get("items", {}), f"{where}{name}[].")


def test_the_schema_has_a_sentence_for_each_value() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    described = dict(properties(schema))
    for name, one in described.items():
        text = one.get("description") or schema["$defs"][one["$ref"].split("/")[-1]]["description"]
        assert text.endswith((".", ")", "pki/ca.pem")), name

    def check(values: Object, where: str = "") -> None:
        for name, value in values.items():
            assert f"{where}{name}" in described, f"{where}{name} is not in values.schema.json"
            if isinstance(value, dict) and "properties" in described[f"{where}{name}"]:
                check(value, f"{where}{name}.")

    check(yaml.safe_load((CHART / "values.yaml").read_text()))


def test_the_chart_has_the_version_of_rgpu() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = (ROOT / "CMakeLists.txt").read_text()
    found = re.search(r"^project\(rgpu VERSION (\S+) ", project, re.MULTILINE)
    assert found
    assert {chart["version"], chart["appVersion"]} == {found[1]}


def test_the_links_lead_to_the_manifests() -> None:
    links = {one.name: one.resolve() for one in (CHART / "files").iterdir()}
    assert links == {name: KUBERNETES / name for name in ("base", "crds", "legacy", "autoscaling")}
