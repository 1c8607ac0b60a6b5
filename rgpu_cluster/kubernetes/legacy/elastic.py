"""ElasticGPU, ElasticGPUClaim and ElasticGPUClass (elasticgpu.io/v1alpha1). Pure.

A class of ours is a DeviceClass, a claim of such a class is a ResourceClaim, and an ElasticGPU
shows what a claim has. Objects are dictionaries as in YAML.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rgpu_cluster.core.errors import RequestError
from rgpu_cluster.kubernetes.legacy.asked import claim_spec
from rgpu_cluster.kubernetes.legacy.owning import owned
from rgpu_cluster.kubernetes.legacy.vendors import ECORE, EMEM, QCORE, QMEM, SYSTEMS, Options
from rgpu_cluster.kubernetes.names import CORE, DRIVER, GROUP, MEMORY, VERSION
from rgpu_cluster.kubernetes.parameters import parameters_of
from rgpu_cluster.kubernetes.units import read

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

API = "elasticgpu.io/v1alpha1"
# The provisioner of classes that are ours.
PROVISIONER = DRIVER
# A pod's annotations that name the claim of a container, in the two spellings that are in use.
ANNOTATIONS = ("elasticgpu.io/egpuc-", "egpuc.elasticgpu.io/")
PENDING, BOUND, LOST = "Pending", "Bound", "Lost"
_WORDS = {"gpu-core": ECORE, "gpu-memory": EMEM, "qgpu-core": QCORE, "qgpu-memory": QMEM}
_DOMAINS = ("elasticgpu.com", "elasticgpu.io", "tke.cloud.tencent.com")
# A whole GPU of ours.
_CARD = (
    f'device.driver == "{DRIVER}" && device.attributes["{GROUP}"].kind == "card" '
    f'&& !("mig" in device.attributes["{GROUP}"])'
)
_FLAGS = {"true": True, "false": False}


def is_ours(elastic_class: Mapping[str, Any]) -> bool:
    """Returns whether rgpu provides for an ElasticGPUClass."""
    return elastic_class.get("provisioner") == PROVISIONER


def class_name(name: str) -> str:
    """Returns the name of the DeviceClass of an ElasticGPUClass."""
    return f"{name}.{GROUP}"


def device_class(elastic_class: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the DeviceClass. The class's parameters are the fields of a GpuRequest, as texts.

    Raises:
        RequestError: a parameter is not known, or has a wrong value.
    """
    parameters: dict[str, Any] = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "GpuRequest"}
    parameters |= {k: _value(v) for k, v in (elastic_class.get("parameters") or {}).items()}
    parameters_of(parameters)
    opaque = {"opaque": {"driver": DRIVER, "parameters": parameters}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": owned(elastic_class, class_name(elastic_class["metadata"]["name"]), ""),
        "spec": {
            "selectors": [{"cel": {"expression": _CARD}}],
            "config": [opaque],
        },
    }


def _value(text: str) -> Any:
    """Returns a parameter as YAML would read it."""
    if text in _FLAGS:
        return _FLAGS[text]
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else text


def resource_claim(claim: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the ResourceClaim of an ElasticGPUClaim.

    Raises:
        RequestError: the claim asks for something that rgpu cannot give.
    """
    spec, metadata = claim.get("spec") or {}, claim["metadata"]
    if spec.get("elasticGPUName"):
        raise RequestError("rgpu chooses the card; leave spec.elasticGPUName out")
    container = {"name": "claim", "resources": _resources(spec.get("resources") or {})}
    found = read({"spec": {"containers": [container]}}, Options()).asked
    if not found:
        known = ", ".join(one for system in SYSTEMS if system.name == "Elastic GPU"
                          for one in system.resources)  # fmt: skip
        raise RequestError(f"spec.resources names none of {known}")
    made = claim_spec(found[0])
    exactly = made["devices"]["requests"][0]["exactly"]
    exactly["deviceClassName"] = class_name(str(spec.get("elasticGPUClassName")))
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": owned(claim, claim_name(metadata["name"]), metadata["namespace"]),
        "spec": made,
    }


def claim_name(name: str) -> str:
    """Returns the name of the ResourceClaim of an ElasticGPUClaim."""
    return f"egpuc-{name}"


def _resources(resources: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the resources under the names that units reads; provisioners add their domains."""
    found: dict[str, Any] = {}
    for side in ("limits", "requests"):
        found[side] = {}
        for name, value in (resources.get(side) or {}).items():
            domain, _, word = name.rpartition("/")
            known = domain in _DOMAINS or domain.endswith(".elasticgpu.io")
            if not known or word not in _WORDS:
                raise RequestError(
                    f"spec.resources names {name[:80]!r}; write elasticgpu.io/gpu-core and "
                    "elasticgpu.io/gpu-memory"
                )
            found[side][_WORDS[word]] = value
    return found


def phase_of(made: Mapping[str, Any] | None, was: str) -> str:
    """Returns the phase of an ElasticGPUClaim. made: its ResourceClaim; was: its phase before."""
    if made is None:
        return LOST if was == BOUND else PENDING
    return BOUND if (made.get("status") or {}).get("allocation") else PENDING


def shown(claim: Mapping[str, Any], made: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields an ElasticGPU for each card that a bound claim has."""
    metadata = claim["metadata"]
    allocation = (made.get("status") or {}).get("allocation") or {}
    for number, row in enumerate((allocation.get("devices") or {}).get("results") or []):
        consumed = row.get("consumedCapacity") or {}
        capacity = {ECORE: consumed.get(CORE, "100"), EMEM: consumed.get(MEMORY, "0")}
        yield {
            "apiVersion": API,
            "kind": "ElasticGPU",
            "metadata": {
                **owned(claim, f"rgpu-{metadata['uid']}-{number}", ""),
                # Only objects of the same namespace may own an object, and this one has none.
                "ownerReferences": [],
            },
            "spec": {
                "capacity": capacity,
                "gpuShare": {"gpuName": f"{row['pool']}/{row['device']}"},
                "claimRef": {
                    "apiVersion": API, "kind": "ElasticGPUClaim", "name": metadata["name"],
                    "namespace": metadata["namespace"], "uid": metadata["uid"],
                },
            },
            "status": {"phase": BOUND},
        }  # fmt: skip


def claims_of(annotations: Mapping[str, str]) -> dict[str, str]:
    """Returns container -> ElasticGPUClaim, as a pod's annotations name them."""
    return {
        name.removeprefix(prefix): claim
        for name, claim in annotations.items()
        for prefix in ANNOTATIONS
        if name.startswith(prefix)
    }
