"""Objects that are made for an object of another system. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rgpu_cluster.kubernetes.names import GROUP

if TYPE_CHECKING:
    from collections.abc import Mapping

# A CRD with this label is the one that rgpu ships; objects with it were made for such objects.
OURS = f"{GROUP}/legacy"


def owned(owner: Mapping[str, Any], name: str, namespace: str) -> dict[str, Any]:
    """Returns the metadata of an object that goes when its owner goes. namespace: "" for none."""
    metadata = owner["metadata"]
    made: dict[str, Any] = {"name": name, "labels": {OURS: "true"}}
    if namespace:
        made["namespace"] = namespace
    made["ownerReferences"] = [
        {
            "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": metadata["name"],
            "uid": metadata["uid"], "controller": True, "blockOwnerDeletion": False,
        }
    ]  # fmt: skip
    return made


def made_for(content: Mapping[str, Any], owner: Mapping[str, Any]) -> bool:
    """Returns whether an object was made for this owner."""
    references = content["metadata"].get("ownerReferences") or []
    return any(one.get("uid") == owner["metadata"]["uid"] for one in references)


def may_serve(definition: Mapping[str, Any] | None, name: str) -> str:
    """Returns why the controllers may not serve a CRD; "" if they may. definition: None: there is
    none.
    """
    if definition is None:
        return f"there is no CRD {name}; kubectl create -f deploy/kubernetes/legacy/crds.yaml"
    labels = definition["metadata"].get("labels") or {}
    if labels.get(OURS) != "true":
        return (
            f"CRD {name} belongs to another system, because it has no label {OURS}; remove that "
            "system first, or leave this one out"
        )
    return ""
