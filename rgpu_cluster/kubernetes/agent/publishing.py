"""Decides which writes make the pool of a node in the API server say what the node has. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from rgpu_cluster.kubernetes import names
from rgpu_cluster.kubernetes.slices import specs_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rgpu_cluster.kubernetes.slices import Device, Place

API = "resource.k8s.io/v1"


class Write(Struct, frozen=True):
    """One write. verb: create, replace or delete. content: the whole object; {} for delete."""

    verb: str
    name: str
    content: dict[str, Any]


def slice_name(node: str, number: int) -> str:
    """Returns the name of a node's slice; no two nodes have one name in common."""
    return f"{node}-rgpu" if not number else f"{node}-rgpu-{number}"


def of_pool(content: dict[str, Any], node: str) -> bool:
    """Returns whether a ResourceSlice belongs to the node's pool."""
    spec = content.get("spec", {})
    return bool(spec.get("driver") == names.DRIVER and spec.get("pool", {}).get("name") == node)


def published(found: Iterable[dict[str, Any]]) -> dict[str, Device]:
    """Returns the devices of the newest generation by name."""
    newest = _newest(found)
    return {d["name"]: d for content in newest for d in content["spec"].get("devices") or []}


def plan(
    found: Sequence[dict[str, Any]],
    devices: Sequence[Device],
    place: Place,
    owner: dict[str, Any] | None,
) -> list[Write]:
    """Returns the writes, in order; none if everything is as it should be.

    found: all slices of the pool. owner: the reference to the Node, None if there is none.
    """
    by_name = {content["metadata"]["name"]: content for content in found}
    newest = _newest(found)
    generation = _generation(newest[0]) if newest else 0
    current = _contents(devices, place, generation, owner)
    keep = {content["metadata"]["name"] for content in current}
    same = len(newest) == len(current) and all(
        _says_the_same(by_name.get(content["metadata"]["name"]), content) for content in current
    )
    writes: list[Write] = []
    if not same:
        contents = _contents(devices, place, generation + 1, owner)
        writes = [_put(by_name.get(content["metadata"]["name"]), content) for content in contents]
    stale = sorted(name for name in by_name if name not in keep)
    return [*writes, *(Write("delete", name, {}) for name in stale)]


def _contents(
    devices: Sequence[Device], place: Place, generation: int, owner: dict[str, Any] | None
) -> list[dict[str, Any]]:
    contents = []
    for number, spec in enumerate(specs_of(devices, place, generation)):
        metadata: dict[str, Any] = {
            "name": slice_name(place.node, number),
            "labels": {names.POOL_LABEL: place.node},
        }
        if owner is not None:
            metadata["ownerReferences"] = [owner]
        contents.append(
            {"apiVersion": API, "kind": "ResourceSlice", "metadata": metadata, "spec": spec}
        )
    return contents


def _put(before: dict[str, Any] | None, content: dict[str, Any]) -> Write:
    """Returns the write of a slice over what is there."""
    name = content["metadata"]["name"]
    if before is None:
        return Write("create", name, content)
    # A write with the version of what was read fails if somebody has written in between.
    content["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"]
    old = {d["name"]: d for d in before["spec"].get("devices") or []}
    devices = [_with_times(d, old.get(d["name"])) for d in content["spec"]["devices"]]
    return Write("replace", name, {**content, "spec": {**content["spec"], "devices": devices}})


def _with_times(device: Device, before: Device | None) -> Device:
    """Returns the device whose taints that were there keep their time."""
    if before is None or "taints" not in device:
        return device
    times = {(t["key"], t["effect"]): t.get("timeAdded") for t in before.get("taints") or []}
    taints = []
    for taint in device["taints"]:
        time = times.get((taint["key"], taint["effect"]))
        taints.append({**taint, "timeAdded": time} if time is not None else taint)
    return {**device, "taints": taints}


def _says_the_same(before: dict[str, Any] | None, content: dict[str, Any]) -> bool:
    if before is None:
        return False
    old, new = before["metadata"], content["metadata"]
    return (
        timeless(before["spec"]) == timeless(content["spec"])
        and (old.get("labels") or {}).get(names.POOL_LABEL) == new["labels"][names.POOL_LABEL]
        and _owners(old) == _owners(new)
    )


def _owners(metadata: dict[str, Any]) -> list[str]:
    return [str(owner["uid"]) for owner in metadata.get("ownerReferences") or []]


def timeless(spec: dict[str, Any]) -> dict[str, Any]:
    """Returns the spec without the times that the API server adds to taints."""
    devices = []
    for device in spec.get("devices") or []:
        taints = [
            {k: v for k, v in t.items() if k != "timeAdded"} for t in device.get("taints") or []
        ]
        bare = {key: value for key, value in device.items() if key != "taints"}
        devices.append({**bare, "taints": taints})
    return {**spec, "devices": devices}


def _newest(found: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    every = [*found]
    newest = max(map(_generation, every), default=0)
    return [content for content in every if _generation(content) == newest]


def _generation(content: dict[str, Any]) -> int:
    return int(content["spec"]["pool"]["generation"])
