"""Objects of Kubernetes as tests need them, and questions about them."""

from __future__ import annotations

import functools
import itertools
import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import yaml
from lightkube import ApiError, Client, codecs
from lightkube.resources.apiextensions_v1 import CustomResourceDefinition
from lightkube.resources.core_v1 import Namespace, Node, Pod, ServiceAccount
from lightkube.resources.resource_v1 import ResourceClaim, ResourceClaimStatus, ResourceSlice
from lightkube.types import PatchType

from helpers.waiting import wait_until

DRIVER = "rgpu.dev"
GATE = "rgpu.dev/placement"
FINALIZER = "resource.kubernetes.io/delete-protection"
RESOURCE = "resource.k8s.io/v1"
# The words of a device that has no share before its daemon has granted the lease.
BINDING = {
    "bindingConditions": ["rgpu.dev/leased"],
    "bindingFailureConditions": ["rgpu.dev/refused"],
}
WAIT_SECONDS = 90


def make(client: Client, content: dict[str, Any]) -> Any:
    """Creates the object that `content` describes; returns it as the API server has it."""
    return client.create(codecs.from_dict(content))


def device_class(client: Client) -> None:
    """Makes the class of all our devices."""
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    make(client, {"apiVersion": RESOURCE, "kind": "DeviceClass", "metadata": {"name": DRIVER},
                  "spec": {"selectors": [selector]}})  # fmt: skip


def node(client: Client, name: str, features: Sequence[str] = (), **labels: str) -> None:
    """Makes a node that is ready.  No kubelet stands behind it.

    features: what its kubelet would declare that it knows.
    """
    ready = {"type": "Ready", "status": "True", "reason": "Made", "message": "made by a test"}
    room = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    labels = {"kubernetes.io/hostname": name, **labels}
    make(client, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
                  "status": {"capacity": room, "allocatable": room, "conditions": [ready],
                             "declaredFeatures": [*features]}})  # fmt: skip
    wait_until(lambda: not client.get(Node, name).spec.taints, WAIT_SECONDS)


def card(name: str, **more: Any) -> dict[str, Any]:
    """Returns a device of 100 core and 16 GiB that several claims may share."""
    core = {
        "value": "100",
        "requestPolicy": {"default": "100", "validRange": {"min": "1", "step": "1"}},
    }
    policy = {"default": "16Gi", "validRange": {"min": "256Mi", "step": "256Mi"}}
    return {
        "name": name,
        "allowMultipleAllocations": True,
        "attributes": {"kind": {"string": "card"}, "model": {"string": "H200"}},
        "capacity": {"core": core, "memory": {"value": "16Gi", "requestPolicy": policy}},
        **more,
    }


def publish(client: Client, pool: str, *devices: dict[str, Any], **spec: Any) -> None:
    """Makes the slice of a pool.  Without more words in `spec` its devices are for all nodes."""
    where = {} if {"nodeSelector", "nodeName"} & spec.keys() else {"allNodes": True}
    body = {"driver": DRIVER, "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1},
            "devices": list(devices), **where, **spec}  # fmt: skip
    make(client, {"apiVersion": RESOURCE, "kind": "ResourceSlice", "metadata": {"name": f"{pool}-rgpu"},
                  "spec": body})  # fmt: skip


def install_crds(client: Client, *files: Iterable[Path]) -> None:
    """Makes the CRDs of YAML files; returns when they are served."""
    made = [one for file in itertools.chain(*files) for one in yaml.safe_load_all(file.read_text())]
    for content in made:
        make(client, content)

    def served(name: str) -> bool:
        status = client.get(CustomResourceDefinition, name).status
        rows = (status.conditions or []) if status else []
        return any(one.type == "Established" and one.status == "True" for one in rows)

    for content in made:
        wait_until(functools.partial(served, content["metadata"]["name"]), WAIT_SECONDS)


def claim_spec(core: int, memory: str = "1Gi") -> dict[str, Any]:
    """Returns the spec of a claim on a share of one card."""
    asked = {"requests": {"core": str(core), "memory": memory}}
    request = {"name": "gpu", "exactly": {"deviceClassName": DRIVER, "capacity": asked}}
    return {"devices": {"requests": [request]}}


class Space:
    """A namespace of one test, and what it makes in it."""

    def __init__(self, client: Client, name: str) -> None:
        self.client = client
        self.name = name

    def open(self) -> None:
        """Makes the namespace; returns when pods can be made in it."""
        make(
            self.client, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.name}}
        )
        wait_until(lambda: self.get(ServiceAccount, "default") is not None, WAIT_SECONDS)

    def close(self) -> None:
        """Removes all that a test has made, in this namespace and for all of them."""
        for kind in (Pod, ResourceClaim):
            for one in self.client.list(kind, namespace=self.name):
                # A strategic patch would change the opaque parameters of a claim.
                with suppress(ApiError):  # it has gone meanwhile
                    self.client.patch(kind, one.metadata.name, {"metadata": {"finalizers": None}},
                                      namespace=self.name, patch_type=PatchType.MERGE)  # fmt: skip
            self.client.deletecollection(kind, namespace=self.name)
        for kind in (ResourceSlice, Node):
            self.client.deletecollection(kind)
        self.client.delete(Namespace, self.name)

    def vanished(self) -> None:
        """Waits until the namespace is gone after `close`, so that its name can be used again."""

        def gone() -> bool:
            found = self.client.list(Namespace, fields={"metadata.name": self.name})
            return not list(found)

        wait_until(gone, WAIT_SECONDS)

    def make(self, version: str, kind: str, name: str, **content: Any) -> Any:
        """Creates an object in the namespace."""
        metadata = {"name": name, "namespace": self.name, **content.pop("metadata", {})}
        return make(
            self.client, {"apiVersion": version, "kind": kind, "metadata": metadata, **content}
        )

    def template(self, name: str, spec: dict[str, Any]) -> None:
        self.make(RESOURCE, "ResourceClaimTemplate", name, spec={"spec": spec})

    def claim(self, name: str, spec: dict[str, Any]) -> ResourceClaim:
        made: ResourceClaim = self.make(RESOURCE, "ResourceClaim", name, spec=spec)
        return made

    def pod(self, name: str, claim: str = "", template: str = "", gated: bool = False,
            metadata: dict[str, Any] | None = None, **spec: Any) -> Pod:  # fmt: skip
        """Makes a pod that uses the named claim, or one of the template.

        gated: no scheduler sees the pod before the gate is removed.
        """
        source = {"resourceClaimName": claim} if claim else {"resourceClaimTemplateName": template}
        container = {"name": "c", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}
        gates = [{"name": GATE}] if gated else []
        body = {"containers": [container], "resourceClaims": [{"name": "gpu", **source}],
                "schedulingGates": gates, "terminationGracePeriodSeconds": 0, **spec}  # fmt: skip
        made: Pod = self.make("v1", "Pod", name, metadata=metadata or {}, spec=body)
        return made

    def get(self, kind: Any, name: str) -> Any:
        """Returns the object, None if there is none."""
        try:
            return self.client.get(kind, name, namespace=self.name)
        except ApiError as error:
            if error.status.code == 404:
                return None
            raise

    def claim_of(self, pod: str) -> ResourceClaim:
        """Returns the claim of a pod, once there is one."""

        def name() -> str:
            status = self.get(Pod, pod).status
            rows = status.resourceClaimStatuses or []
            return rows[0].resourceClaimName if rows else ""

        wait_until(lambda: bool(name()), WAIT_SECONDS)
        return self.client.get(ResourceClaim, name(), namespace=self.name)

    def claim_of_made(self, pod: str) -> ResourceClaim:
        """Returns the claim of a pod that somebody else makes, once there are both."""
        wait_until(lambda: self.get(Pod, pod) is not None, WAIT_SECONDS)
        return self.claim_of(pod)

    def bound(self, pod: str) -> str:
        """Waits until the scheduler has bound the pod; returns the node."""
        wait_until(lambda: bool(self.get(Pod, pod).spec.nodeName), WAIT_SECONDS)
        return str(self.get(Pod, pod).spec.nodeName)

    def refused(self, pod: str, says: str) -> None:
        """Waits until the scheduler says with these words that it cannot place the pod."""
        self.said(pod, "Unschedulable", says)

    def said(self, pod: str, reason: str, says: str) -> None:
        """Waits until the pod's condition `PodScheduled` has this reason, and a message with these
        words.  The first message may be another: the scheduler hears of the nodes, of the claims
        and of the cards each in its own time.
        """
        found: list[str] = []

        def right() -> bool:
            found[:] = [self.scheduled(pod)]
            return found[0].startswith(f"{reason}: ") and says in found[0]

        try:
            wait_until(right, WAIT_SECONDS)
        except AssertionError:
            raise AssertionError(f"pod {pod} is told {found[0]!r}, not {says!r}") from None

    def ungate(self, pod: str) -> None:
        """Removes the gates of a pod."""
        self.client.patch(Pod, pod, {"spec": {"schedulingGates": None}}, namespace=self.name)

    def allocation(self, claim: str) -> Any:
        """Returns the allocation of a claim, None if it has none."""
        status = self.get(ResourceClaim, claim).status
        return status.allocation if status else None

    def replace_devices(self, pool: str, *devices: dict[str, Any]) -> None:
        """Publishes other devices in a pool that has a slice."""
        found = self.client.get(ResourceSlice, f"{pool}-rgpu").to_dict()
        found["spec"]["devices"] = [*devices]
        found["spec"]["pool"]["generation"] += 1
        self.client.replace(codecs.from_dict(found))

    def role(self, user: str, rules: list[dict[str, Any]]) -> None:
        """Gives a user these rights in all namespaces, and no others."""
        group = "rbac.authorization.k8s.io"
        metadata = {"name": user}
        for content in (
            {"kind": "ClusterRole", "rules": rules},
            {"kind": "ClusterRoleBinding", "subjects": [{"kind": "User", "name": user, "apiGroup": group}],
             "roleRef": {"kind": "ClusterRole", "name": user, "apiGroup": group}},
        ):  # fmt: skip
            whole = {"apiVersion": f"{group}/v1", "metadata": metadata, **content}
            self.client.apply(codecs.from_dict(whole), field_manager="test", force=True)

    def delete(self, kind: Any, name: str) -> None:
        self.client.delete(kind, name, namespace=self.name, grace_period=0)

    def gone(self, kind: Any, name: str) -> None:
        """Waits until there is no such object."""
        wait_until(lambda: self.get(kind, name) is None, WAIT_SECONDS)

    def scheduled(self, pod: str) -> str:
        """Returns why the scheduler does not place the pod: "REASON: MESSAGE", or "" if it may."""
        conditions = self.get(Pod, pod).status.conditions or []
        rows = [one for one in conditions if one.type == "PodScheduled" and one.status == "False"]
        return f"{rows[0].reason}: {rows[0].message}" if rows else ""


def allocate(client: Client, claim: ResourceClaim, user: Pod | dict[str, str], hosts: Sequence[str], *,
             pool: str, device: str, core: int, memory: str = "1Gi") -> ResourceClaim:  # fmt: skip
    """Allocates a share of a device for a claim as our manager will: the finalizer first, then
    allocation and reservation in one write of the status.

    user: the pod that the claim is reserved for, or an entry of `reservedFor`.
    hosts: the only nodes for a pod with this claim.
    """
    assert claim.metadata
    finalizers = [*(claim.metadata.finalizers or []), FINALIZER]
    held = client.patch(
        ResourceClaim, str(claim.metadata.name), {"metadata": {"finalizers": finalizers}},
        namespace=str(claim.metadata.namespace),
    )  # fmt: skip
    return write_status(
        client, held, user, hosts, pool=pool, device=device, core=core, memory=memory
    )


def write_status(client: Client, claim: ResourceClaim, user: Pod | dict[str, str], hosts: Sequence[str], *,
                 pool: str, device: str, core: int, memory: str, timed: bool = True) -> ResourceClaim:  # fmt: skip
    """Writes allocation and reservation into a claim that nobody has changed since.

    timed: says when the claim was allocated.  A scheduler that adds a pod to a claim without a time
    sets one, and the API server refuses that, because an allocation may not be changed.
    """
    assert claim.metadata
    result = {
        "request": "gpu", "driver": DRIVER, "pool": pool, "device": device,
        "shareID": str(uuid.uuid4()), "consumedCapacity": {"core": str(core), "memory": memory},
    }  # fmt: skip
    term = {
        "matchExpressions": [
            {"key": "kubernetes.io/hostname", "operator": "In", "values": [*hosts]}
        ]
    }
    allocation: dict[str, Any] = {
        "devices": {"results": [result]},
        "nodeSelector": {"nodeSelectorTerms": [term]},
    }
    content = claim.to_dict()
    if timed:
        allocation["allocationTimestamp"] = _now()
    if isinstance(user, Pod):
        assert user.metadata
        user = {"resource": "pods", "name": str(user.metadata.name), "uid": str(user.metadata.uid)}
    content["status"] = {"allocation": allocation, "reservedFor": [user]}
    return client.replace(
        ResourceClaimStatus.from_dict(content), str(claim.metadata.name),
        namespace=str(claim.metadata.namespace),
    )  # fmt: skip


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def report(space: Space, claim: str, condition: str) -> None:
    """Sets a condition of the claim's first device, as the agent of its node will."""
    found = space.get(ResourceClaim, claim)
    (result,) = found.status.allocation.devices.results
    said = {"type": condition, "status": "True", "reason": "Told", "message": "told by a test",
            "lastTransitionTime": _now()}  # fmt: skip
    content = found.to_dict()
    content["status"]["devices"] = [{
        "driver": result.driver, "pool": result.pool, "device": result.device,
        "shareID": result.shareID, "conditions": [said],
    }]  # fmt: skip
    space.client.replace(ResourceClaimStatus.from_dict(content), claim, namespace=space.name)


_INJECTED = """
Object{
  spec: Object.spec{
    schedulingGates: [Object.spec.schedulingGates{name: "rgpu.dev/placement"}],
    containers: object.spec.containers
      .filter(c, has(c.resources) && has(c.resources.claims))
      .map(c, Object.spec.containers{
        name: c.name,
        env: [Object.spec.containers.env{name: "RGPU_TOKEN_FILE", value: "/run/rgpu/token"}],
        volumeMounts: [Object.spec.containers.volumeMounts{
          name: "rgpu", mountPath: "/run/rgpu", readOnly: true}]})}}
"""

# An applied configuration may not change a list such as `projected.sources`.  The API server asks
# again after other policies, and a patch, unlike a configuration, would then add a second volume.
_VOLUME = """
has(object.spec.volumes) && object.spec.volumes.exists(v, v.name == "rgpu") ? [] :
(has(object.spec.volumes) ? [] : [JSONPatch{op: "add", path: "/spec/volumes", value: []}]) +
[JSONPatch{op: "add", path: "/spec/volumes/-", value: Object.spec.volumes{
  name: "rgpu",
  projected: Object.spec.volumes.projected{sources: [Object.spec.volumes.projected.sources{
    serviceAccountToken: Object.spec.volumes.projected.sources.serviceAccountToken{
      audience: "rgpu", path: "token", expirationSeconds: 3600}}]}}}]
"""


def policy(space: Space) -> None:
    """Has the API server change each new pod of the namespace that asks for our placement."""
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods"],
    }
    changes = [
        {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": _INJECTED}},
        {"patchType": "JSONPatch", "jsonPatch": {"expression": _VOLUME}},
    ]
    wanted = {"matchLabels": {"rgpu.dev/placement": "managed"}}
    here = {"matchLabels": {"kubernetes.io/metadata.name": space.name}}
    for kind, spec in (
        ("MutatingAdmissionPolicy", {
            "matchConstraints": {"resourceRules": [rule], "objectSelector": wanted},
            "failurePolicy": "Fail", "reinvocationPolicy": "IfNeeded", "mutations": changes}),
        ("MutatingAdmissionPolicyBinding", {
            "policyName": space.name, "matchResources": {"namespaceSelector": here}}),
    ):  # fmt: skip
        make(space.client, {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
                            "metadata": {"name": space.name}, "spec": spec})  # fmt: skip
