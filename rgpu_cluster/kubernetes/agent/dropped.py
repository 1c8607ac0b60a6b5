"""What an API server has dropped from the devices of a pool, as its feature gates are off. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

# A field of a device -> the feature gate that keeps it, and what holds without it.
GATES = {
    "allowMultipleAllocations": (
        "DRAConsumableCapacity", "a claim takes a whole card, whatever it asks for",
    ),
    "bindingConditions": (
        "DRADeviceBindingConditions", "kube-scheduler binds pods before their claims have leases",
    ),
    "taints": (
        "DRADeviceTaints", "kube-scheduler gives drained and lost cards to new claims",
    ),
}  # fmt: skip


def dropped_words(asked: Mapping[str, Any], kept: Mapping[str, Any]) -> str:
    """Returns what a ResourceSlice's spec lacks of what it was to have, and what to do; "": nothing
    that rgpu needs.
    """
    found = {one["name"]: one for one in kept.get("devices") or []}
    lacking = {
        field
        for one in asked["devices"]
        for field in GATES
        if field in one and field not in found.get(one["name"], one)
    }
    if not lacking:
        return ""
    rows = [GATES[field] for field in GATES if field in lacking]
    gates = ", ".join(gate for gate, _ in rows)
    so = ", and ".join(what for _, what in rows)
    return (
        f"this API server drops {', '.join(field for field in GATES if field in lacking)} of "
        f"devices, so {so}; use Kubernetes 1.36 or later, or switch the feature gates {gates} on "
        "in kube-apiserver, kube-scheduler and kube-controller-manager"
    )
