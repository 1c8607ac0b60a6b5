"""Claims, pods and slices as an API server has them, for tests without one."""

from __future__ import annotations

from typing import Any

Content = dict[str, Any]
NAMESPACE, NODE = "team-a", "client-1"
UID = "6f1c2f0e-0000-4000-8000-00000000000{}"


def uid(number: int = 1) -> str:
    return UID.format(number)


def claim(
    number: int = 1, *devices: str, users: tuple[str, ...] = ("pod-1",), **more: Any
) -> Content:
    """Returns an allocated claim. devices: as `gpu:gpu7/gpu-0`, of the request `gpu`."""
    results = []
    for place, text in enumerate(devices or ("gpu:gpu7/gpu-0",)):
        request, _, where = text.partition(":")
        pool, _, device = where.rpartition("/")
        results.append({
            "request": request, "driver": "rgpu.dev", "pool": pool, "device": device,
            "shareID": f"share-{number}-{place}",
        })  # fmt: skip
    return {
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": f"claim-{number}", "namespace": NAMESPACE, "uid": uid(number)},
        "spec": {"devices": {"requests": []}},
        "status": {
            "allocation": {"devices": {"results": results}},
            "reservedFor": [{"resource": "pods", "name": one, "uid": one} for one in users],
        },
        **more,
    }  # fmt: skip


def container(name: str = "c", *claims: str, user: int | None = None, **more: Any) -> Content:
    """Returns a container. claims: as `gpu`, or `gpu/REQUEST`."""
    rows: list[Content] = [
        {
            "name": one.partition("/")[0],
            **({"request": one.partition("/")[2]} if "/" in one else {}),
        }
        for one in claims or ("gpu",)
    ]
    context = {} if user is None else {"securityContext": {"runAsUser": user}}
    return {"name": name, "image": "none", "resources": {"claims": rows}, **context, **more}


def pod(name: str = "pod-1", *containers: Content, claims: dict[str, int] | None = None,
        node: str = NODE, **more: Any) -> Content:  # fmt: skip
    """Returns a pod. claims: the numbers of its claims by their names in the pod."""
    rows = [
        {"name": local, "resourceClaimName": f"claim-{number}"}
        for local, number in (claims or {"gpu": 1}).items()
    ]
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "uid": name},
        "spec": {"nodeName": node, "containers": [*(containers or (container(),))],
                 "resourceClaims": rows, **more},
    }  # fmt: skip


def published(
    pool: str = "gpu7", agent: str = "gpu7:7711", generation: int = 1, count: int = 1
) -> Content:
    """Returns the slice of a GPU node."""
    attributes = {"kind": {"string": "card"}, "server": {"string": f"{pool}:7700"}}
    if agent:
        attributes["agent"] = {"string": agent}
    return {
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
        "metadata": {"name": f"{pool}-rgpu"},
        "spec": {
            "driver": "rgpu.dev", "allNodes": True,
            "pool": {"name": pool, "generation": generation, "resourceSliceCount": count},
            "devices": [{"name": "gpu-0", "attributes": attributes}],
        },
    }  # fmt: skip
