"""What our design needs of Kubernetes, asked of the real API server, scheduler and controllers."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.kube_objects import (
    BINDING,
    DRIVER,
    FINALIZER,
    GATE,
    Space,
    allocate,
    card,
    claim_spec,
    device_class,
    node,
    policy,
    publish,
    report,
    write_status,
)
from helpers.kubernetes import ControlPlane
from helpers.waiting import wait_until
from lightkube import ApiError, Client
from lightkube.resources.core_v1 import Pod
from lightkube.resources.resource_v1 import ResourceClaim, ResourceSlice


def test_a_slice_for_all_nodes_serves_pods_of_any_node(space: Space) -> None:
    """A card of a GPU node that is no node of this cluster at all."""
    node(space.client, "client-a", zone="a")
    node(space.client, "client-b", zone="b")
    publish(space.client, "gpu7", card("gpu-0"))
    for zone in ("a", "b"):
        space.claim(f"claim-{zone}", claim_spec(30))
        space.pod(f"pod-{zone}", claim=f"claim-{zone}", nodeSelector={"zone": zone})
        assert space.bound(f"pod-{zone}") == f"client-{zone}"
        allocation = space.allocation(f"claim-{zone}")
        (result,) = allocation.devices.results
        assert (result.pool, result.device) == ("gpu7", "gpu-0")
        assert allocation.nodeSelector is None
        assert space.get(ResourceClaim, f"claim-{zone}").metadata.finalizers == [FINALIZER]


def test_claims_share_a_card_until_it_is_full(space: Space) -> None:
    node(space.client, "client")
    publish(space.client, "gpu7", card("gpu-0"))
    shares = {"first": (60, "8Gi"), "second": (40, "300Mi")}
    for name, (core, memory) in shares.items():
        space.claim(name, claim_spec(core, memory))
        space.pod(name, claim=name)
        space.bound(name)
    results = {name: space.allocation(name).devices.results[0] for name in shares}
    assert results["first"].consumedCapacity == {"core": "60", "memory": "8Gi"}
    # Memory is counted in the steps of the slice.
    assert results["second"].consumedCapacity == {"core": "40", "memory": "512Mi"}
    assert results["first"].shareID != results["second"].shareID
    space.claim("third", claim_spec(1))
    space.pod("third", claim="third")
    space.refused("third", "cannot allocate all claims")
    assert space.allocation("third") is None
    space.delete(Pod, "second")
    assert space.bound("third") == "client"


def test_a_claim_that_asks_for_more_than_a_card_is_never_allocated(space: Space) -> None:
    node(space.client, "client")
    publish(space.client, "gpu7", card("gpu-0"))
    space.claim("large", claim_spec(101))
    space.pod("large", claim="large")
    space.refused("large", "cannot allocate all claims")


def test_a_gated_pod_is_bound_by_the_allocation_of_its_claim(space: Space) -> None:
    """The claim of a template is made for the gated pod.  The scheduler keeps our allocation, and
    takes the node from it.
    """
    for name in ("client-a", "client-b", "client-c"):
        node(space.client, name)
    publish(space.client, "gpu7", card("gpu-0"), card("gpu-1"))
    space.template("third", claim_spec(30))
    pod = space.pod("train", template="third", gated=True)
    claim = space.claim_of("train")
    assert claim.status is None or claim.status.allocation is None
    done = allocate(space.client, claim, pod, ["client-b"], pool="gpu7", device="gpu-1", core=30)
    space.ungate("train")
    assert space.bound("train") == "client-b"
    after = space.get(ResourceClaim, claim.metadata.name)
    assert after.status.allocation == done.status.allocation
    assert [one.uid for one in after.status.reservedFor] == [pod.metadata.uid]


def test_a_share_that_we_allocate_counts_for_the_scheduler(space: Space) -> None:
    node(space.client, "client")
    publish(space.client, "gpu7", card("gpu-0"))
    pod = space.pod("ours", claim="ours", gated=True)
    claim = space.claim("ours", claim_spec(80))
    allocate(space.client, claim, pod, ["client"], pool="gpu7", device="gpu-0", core=80)
    space.claim("theirs", claim_spec(30))
    space.pod("theirs", claim="theirs")
    space.refused("theirs", "cannot allocate all claims")
    space.delete(Pod, "ours")
    assert space.bound("theirs") == "client"


def test_a_write_of_the_status_does_not_set_the_finalizer(space: Space) -> None:
    publish(space.client, "gpu7", card("gpu-0"))
    pod = space.pod("train", claim="named", gated=True)
    claim = space.claim("named", claim_spec(30))
    claim.metadata.finalizers = [FINALIZER]
    done = write_status(
        space.client, claim, pod, ["x"], pool="gpu7", device="gpu-0", core=30, memory="1Gi"
    )
    assert done.status.allocation is not None
    assert not done.metadata.finalizers


def test_a_gated_pod_that_is_deleted_gives_its_share_back(space: Space) -> None:
    publish(space.client, "gpu7", card("gpu-0"))
    pod = space.pod("train", claim="named", gated=True)
    claim = space.claim("named", claim_spec(30))
    allocate(space.client, claim, pod, ["x"], pool="gpu7", device="gpu-0", core=30)
    space.delete(Pod, "train")
    wait_until(lambda: space.allocation("named") is None)
    # The controller takes the finalizer away with a write of its own.
    wait_until(lambda: not space.get(ResourceClaim, "named").metadata.finalizers)


def test_the_claim_of_a_gated_pod_goes_with_the_pod(space: Space) -> None:
    publish(space.client, "gpu7", card("gpu-0"))
    space.template("third", claim_spec(30))
    pod = space.pod("train", template="third", gated=True)
    claim = space.claim_of("train")
    allocate(space.client, claim, pod, ["x"], pool="gpu7", device="gpu-0", core=30)
    space.delete(Pod, "train")
    space.gone(ResourceClaim, claim.metadata.name)


def test_a_decision_that_no_node_fits_is_replaced_by_the_scheduler(space: Space) -> None:
    """The allocation names a node that is gone.  Nobody has to free it by hand."""
    node(space.client, "client")
    publish(space.client, "gpu7", card("gpu-0"), card("gpu-1"))
    pod = space.pod("train", claim="named", gated=True)
    claim = space.claim("named", claim_spec(30))
    ours = allocate(space.client, claim, pod, ["gone"], pool="gpu7", device="gpu-1", core=30)
    space.ungate("train")
    assert space.bound("train") == "client"
    (new,) = space.allocation("named").devices.results
    (old,) = ours.status.allocation.devices.results
    assert (old.device, new.device) == ("gpu-1", "gpu-0")
    assert old.shareID != new.shareID


def test_a_reservation_of_our_kind_keeps_an_allocation(space: Space) -> None:
    """A named claim is held for later pods: no pod has it, and no controller takes it away."""
    node(space.client, "client")
    publish(space.client, "gpu7", card("gpu-0"))
    claim = space.claim("held", claim_spec(80))
    held = {"apiGroup": DRIVER, "resource": "reservations", "name": "week", "uid": "week-1"}
    allocate(space.client, claim, held, ["client"], pool="gpu7", device="gpu-0", core=80)
    space.claim("other", claim_spec(30))
    space.pod("other", claim="other")
    space.refused("other", "cannot allocate all claims")
    space.pod("first", claim="held")
    assert space.bound("first") == "client"
    users = space.get(ResourceClaim, "held").status.reservedFor
    assert sorted(one.resource for one in users) == ["pods", "reservations"]
    space.delete(Pod, "first")
    wait_until(lambda: len(space.get(ResourceClaim, "held").status.reservedFor) == 1)
    assert space.allocation("held") is not None


def test_an_allocation_without_a_time_takes_no_further_pod(space: Space) -> None:
    node(space.client, "client")
    publish(space.client, "gpu7", card("gpu-0"))
    claim = space.claim("held", claim_spec(80))
    held = {"apiGroup": DRIVER, "resource": "reservations", "name": "week", "uid": "week-1"}
    write_status(
        space.client, claim, held, ["client"],
        pool="gpu7", device="gpu-0", core=80, memory="1Gi", timed=False,
    )  # fmt: skip
    space.pod("first", claim="held")
    why = "status.allocation: Invalid value: null: field cannot be modified once set"
    space.said("first", "SchedulerError", why)


def test_the_first_fit_waits_for_the_condition_of_the_lease(space: Space) -> None:
    """The path without our manager: the scheduler allocates, and binds when the daemon agrees."""
    node(space.client, "client")
    publish(space.client, "gpu7", card("gpu-0", **BINDING))
    space.claim("named", claim_spec(30))
    space.pod("train", claim="named")
    wait_until(lambda: space.allocation("named") is not None)
    (result,) = space.allocation("named").devices.results
    assert result.bindingConditions == ["rgpu.dev/leased"]
    assert result.bindingFailureConditions == ["rgpu.dev/refused"]
    assert not space.get(Pod, "train").spec.nodeName
    report(space, "named", "rgpu.dev/leased")
    assert space.bound("train") == "client"


@pytest.mark.full
def test_a_refused_lease_frees_the_allocation(space: Space) -> None:
    node(space.client, "client")
    publish(space.client, "gpu7", card("gpu-0", **BINDING))
    space.claim("named", claim_spec(30))
    space.pod("train", claim="named")
    wait_until(lambda: space.allocation("named") is not None)
    (first,) = space.allocation("named").devices.results
    report(space, "named", "rgpu.dev/refused")

    def again() -> bool:
        new = space.allocation("named")
        return new is not None and new.devices.results[0].shareID != first.shareID

    wait_until(again, 60)
    assert not space.get(ResourceClaim, "named").to_dict()["status"].get("devices")
    report(space, "named", "rgpu.dev/leased")
    assert space.bound("train") == "client"


def test_an_allocation_of_ours_does_not_wait_for_the_condition(space: Space) -> None:
    """The lease is there before we allocate, so our result names no condition."""
    node(space.client, "client")
    publish(space.client, "gpu7", card("gpu-0", **BINDING))
    pod = space.pod("train", claim="named", gated=True)
    claim = space.claim("named", claim_spec(30))
    allocate(space.client, claim, pod, ["client"], pool="gpu7", device="gpu-0", core=30)
    space.ungate("train")
    assert space.bound("train") == "client"


def test_a_taint_keeps_new_claims_away_and_an_effect_evicts(space: Space) -> None:
    node(space.client, "client")
    publish(space.client, "gpu7", card("gpu-0"))
    space.claim("first", claim_spec(30))
    space.pod("first", claim="first")
    space.bound("first")
    drain = {"key": "rgpu.dev/drain", "effect": "NoSchedule"}
    space.replace_devices("gpu7", card("gpu-0", taints=[drain]))
    space.claim("second", claim_spec(30))
    space.pod("second", claim="second")

    def kept_away() -> bool:
        if space.get(Pod, "second").spec.nodeName:
            # The scheduler heard of the pod before it heard of the taint: a new one then.
            space.delete(Pod, "second")
            space.gone(Pod, "second")
            space.pod("second", claim="second")
        return "cannot allocate all claims" in space.scheduled("second")

    wait_until(kept_away)
    assert space.get(Pod, "first").spec.nodeName == "client"
    lost = {"key": "rgpu.dev/lost", "effect": "NoExecute"}
    space.replace_devices("gpu7", card("gpu-0", taints=[lost]))
    space.gone(Pod, "first")
    space.replace_devices("gpu7", card("gpu-0"))
    assert space.bound("second") == "client"


def test_binding_needs_a_right_of_its_own(space: Space, plane: ControlPlane) -> None:
    """Whoever writes the status of claims cannot allocate, unless a role says `binding` too."""
    manager = plane.client("manager")
    claim = space.claim("named", claim_spec(30))
    pod = space.pod("train", claim="named", gated=True)
    where = {"pool": "gpu7", "device": "gpu-0", "core": 30}
    rules = [
        {
            "apiGroups": ["resource.k8s.io"],
            "resources": ["resourceclaims"],
            "verbs": ["get", "patch"],
        },
        {
            "apiGroups": ["resource.k8s.io"],
            "resources": ["resourceclaims/status"],
            "verbs": ["update"],
        },
    ]
    space.role("rgpu-manager", rules)
    wait_until(lambda: _may(manager, space))
    with pytest.raises(ApiError, match='requires resource="resourceclaims/binding", verb="update"'):
        allocate(manager, claim, pod, ["client"], **where)
    rules.append(
        {
            "apiGroups": ["resource.k8s.io"],
            "resources": ["resourceclaims/binding"],
            "verbs": ["update"],
        }
    )
    space.role("rgpu-manager", rules)

    def allocated() -> bool:
        try:
            allocate(manager, claim, pod, ["client"], **where)
        except ApiError:
            return False
        return True

    wait_until(allocated)


def _may(client: Client, space: Space) -> bool:
    try:
        client.get(ResourceClaim, "named", namespace=space.name)
    except ApiError:
        return False
    return True


def test_a_policy_injects_gate_environment_and_volume(space: Space) -> None:
    """No server of ours answers: the API server itself changes the pod."""
    policy(space)
    space.claim("named", claim_spec(30))

    def injected() -> bool:
        # A new policy is in force a little later, so the first pods may be as they were made.
        space.pod("train", claim="named", metadata={"labels": {"rgpu.dev/placement": "managed"}})
        found = space.get(Pod, "train").spec
        if found.schedulingGates:
            return True
        space.delete(Pod, "train")
        return False

    wait_until(injected)
    spec = space.get(Pod, "train").spec
    assert [one.name for one in spec.schedulingGates] == [GATE]
    (container,) = spec.containers
    assert {one.name: one.value for one in container.env}["RGPU_TOKEN_FILE"] == "/run/rgpu/token"
    assert "/run/rgpu" in [one.mountPath for one in container.volumeMounts]
    (token,) = [one for one in spec.volumes if one.name == "rgpu"]
    assert token.projected.sources[0].serviceAccountToken.audience == "rgpu"
    space.pod("plain", claim="named")
    assert not space.get(Pod, "plain").spec.schedulingGates


def test_without_node_operations_the_slice_says_so(space: Space) -> None:
    """A stock API server drops the field, because its gate is off."""
    publish(space.client, "gpu7", card("gpu-0"), skipNodeOperations=["*"])
    assert not space.client.get(ResourceSlice, "gpu7-rgpu").spec.skipNodeOperations


@pytest.mark.full
def test_a_slice_may_ask_no_node_for_its_devices(built: Path) -> None:
    """With its gate, a slice says that no plugin has to prepare its devices.  The scheduler then
    takes nodes alone whose kubelet says that it knows this.
    """
    with ControlPlane(built, {"DRAOptionalNodeOperations": True}) as plane:
        space = Space(plane.client(), "test")
        space.open()
        device_class(space.client)
        publish(space.client, "gpu7", card("gpu-0"), skipNodeOperations=["*"])
        node(space.client, "old")
        space.claim("named", claim_spec(30))
        space.pod("train", claim="named")
        space.refused("train", "cannot allocate all claims")
        node(space.client, "new", ["DRAOptionalNodeOperations"])
        assert space.bound("train") == "new"
        (result,) = space.allocation("named").devices.results
        assert result.skipNodeOperations == ["*"]
