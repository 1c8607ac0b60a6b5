"""SharePod (kubeshare.nthu/v1): a pod with a claim. Pure; objects are dictionaries as in YAML."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rgpu_cluster.kubernetes.admission import Way, change_of, changed
from rgpu_cluster.kubernetes.legacy.owning import owned
from rgpu_cluster.kubernetes.legacy.vendors import Options
from rgpu_cluster.kubernetes.names import DEVICE, SERVER

if TYPE_CHECKING:
    from collections.abc import Mapping

API = "kubeshare.nthu/v1"
# The condition in `status.PodStatus` of a SharePod that has no pod.
REFUSED = "GpuRefused"


def pod_of(share: Mapping[str, Any]) -> tuple[dict[str, Any], Mapping[str, Mapping[str, Any]]]:
    """Returns the pod of a SharePod, and the ResourceClaimTemplates that it needs, by name.

    Raises:
        RequestError: the SharePod asks for something that rgpu cannot do.
    """
    metadata = share["metadata"]
    made = owned(share, metadata["name"], metadata["namespace"])
    made["labels"] |= metadata.get("labels") or {}
    made["annotations"] = dict(metadata.get("annotations") or {})
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": made,
        "spec": dict(share.get("spec") or {}),
    }
    change = change_of(pod, Way.CLAIMS, Options())
    return changed(pod, change), change.templates


def status_of(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the status of a SharePod whose pod this is."""
    annotations = pod["metadata"].get("annotations") or {}
    server, device = annotations.get(SERVER, ""), annotations.get(DEVICE, "")
    return {
        "PodStatus": dict(pod.get("status") or {}),
        "PodObjectMeta": {
            name: pod["metadata"][name]
            for name in ("name", "namespace", "uid", "labels", "annotations", "creationTimestamp")
            if name in pod["metadata"]
        },
        # A card has no UUID that programs elsewhere could use; this is where it is.
        "BoundDeviceID": f"{server}/{device}" if server else "",
        "PodManagerPort": 0,
    }


def refused(sentence: str) -> dict[str, Any]:
    """Returns the status of a SharePod that gets no pod."""
    pod = {"phase": "Failed", "reason": REFUSED, "message": f"rgpu: {sentence}"}
    return {"PodStatus": pod, "BoundDeviceID": "", "PodManagerPort": 0}
