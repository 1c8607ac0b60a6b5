"""Reports and claims as tests of `rgpu agent-node` need them."""

from __future__ import annotations

from typing import Any

from lightkube.resources.resource_v1 import ResourceClaim

from cluster.samples import GIB
from rgpu_cluster.kubernetes.agent.views import ClaimView, view_of
from rgpu_common.v1 import agent_pb2, network_pb2

NODE = "gpu7"
UID = "3d9a2b6e-8f0c-4a59-9a1e-000000000001"


def card(ordinal: int = 0, memory: int = 16 * GIB, **more: Any) -> agent_pb2.CardReport:
    return agent_pb2.CardReport(
        ordinal=ordinal, model="H200", uuid=f"GPU-{ordinal}", memory_bytes=memory, **more
    )


def nic(name: str, gigabits: int, **more: Any) -> network_pb2.NetDevice:
    return network_pb2.NetDevice(
        name=name,
        kind=network_pb2.NET_KIND_ETHERNET,
        up=True,
        speed_mbps=gigabits * 1000,
        **more,
    )


def report(*cards: agent_pb2.CardReport, **more: Any) -> agent_pb2.NodeReport:
    return agent_pb2.NodeReport(
        name=NODE, address="gpu7:7700", rack="r3", cards=cards or [card()], **more
    )


def held(
    uid: str = UID, ordinal: int = 0, lease: str = "lease-1", **more: Any
) -> agent_pb2.HeldLease:
    said: dict[str, Any] = {"attempt": 1, "since": 1000, "kept": True, "tenant": "team-a", **more}
    return agent_pb2.HeldLease(request_id=uid, ordinal=ordinal, lease_id=lease, **said)


def result(
    device: str = "gpu-0", share: str = "share-1", pool: str = NODE, **more: Any
) -> dict[str, Any]:
    consumed = {"core": "30", "memory": "8Gi"}
    return {
        "request": "gpu", "driver": "rgpu.dev", "pool": pool, "device": device, "shareID": share,
        "consumedCapacity": consumed, **more,
    }  # fmt: skip


def first_fit(**more: Any) -> dict[str, Any]:
    """A share that kube-scheduler has allocated by itself."""
    return result(
        bindingConditions=["rgpu.dev/leased"], bindingFailureConditions=["rgpu.dev/refused"], **more
    )


def claim(
    *results: dict[str, Any],
    pods: tuple[str, ...] = ("pod-1",),
    told: str = "",
    config: list[Any] | None = None,
    uid: str = UID,
) -> ResourceClaim:
    """A claim. told: the conditions, apart by blanks, that are true for all its shares."""
    status: dict[str, Any] = {}
    if results:
        devices: dict[str, Any] = {"results": [*results]}
        if config:
            devices["config"] = config
        status["allocation"] = {"devices": devices}
        status["reservedFor"] = [{"resource": "pods", "name": p, "uid": f"uid-{p}"} for p in pods]
    if told:
        said = [{"type": kind, "status": "True", "reason": "Told", "message": "",
                 "lastTransitionTime": "2026-01-01T00:00:00Z"} for kind in told.split()]  # fmt: skip
        names = ("driver", "pool", "device", "shareID")
        status["devices"] = [
            {**{name: one[name] for name in names}, "conditions": said} for one in results
        ]
    metadata = {"name": "third", "namespace": "team-a", "uid": uid, "resourceVersion": "7"}
    return ResourceClaim.from_dict(
        {"metadata": metadata, "spec": {"devices": {}}, "status": status}
    )


def view(*results: dict[str, Any], **more: Any) -> ClaimView:
    return view_of(claim(*results, **more), NODE)


def parameters(**said: Any) -> dict[str, Any]:
    """A row of a claim's configurations."""
    whole = {"apiVersion": "rgpu.dev/v1alpha1", "kind": "GpuRequest", **said}
    return {"source": "FromClaim", "opaque": {"driver": "rgpu.dev", "parameters": whole}}
