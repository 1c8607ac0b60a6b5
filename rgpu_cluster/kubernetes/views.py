"""What the manager reads of pods and claims, as lightkube's models have them. Pure."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rgpu_cluster.core.line import gang_key
from rgpu_cluster.kubernetes.names import (
    GANG_LABEL,
    GANG_SIZE_LABEL,
    GATE,
    GROUP,
    RESERVATIONS,
    RESERVE_UNTIL,
)
from rgpu_common.clusters import MAX_RESERVE_SECONDS
from rgpu_common.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MOST_GANG = 1024
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

_METADATA = ("name", "namespace", "uid", "resourceVersion", "labels", "deletionTimestamp")
_SPEC = ("schedulingGates", "resourceClaims", "nodeName", "nodeSelector")
_STATUS = ("phase", "resourceClaimStatuses")


def is_uid(request: str) -> bool:
    """Returns whether the id of a request is that of an object of Kubernetes."""
    return _UID.fullmatch(request) is not None


def is_gated(pod: Any) -> bool:
    """Returns whether a pod waits for our gate, and is to run at all."""
    gates = (pod.spec.schedulingGates or []) if pod.spec is not None else []
    return pod.metadata.deletionTimestamp is None and any(one.name == GATE for one in gates)


def claim_names(pod: Any) -> Iterator[str | None]:
    """Yields the name of each claim of a pod; None: Kubernetes has not made it from its template
    yet.
    """
    made = {
        row.name: row.resourceClaimName
        for row in (pod.status.resourceClaimStatuses or [] if pod.status is not None else [])
    }
    for one in pod.spec.resourceClaims or []:
        if one.resourceClaimName:
            yield one.resourceClaimName
        elif one.name in made:
            # "" says that no claim is needed.
            if made[one.name]:
                yield made[one.name]
        else:
            yield None


def reserved_until(
    claim: Any, now: datetime, longest_seconds: float = MAX_RESERVE_SECONDS
) -> datetime | str | None:
    """Returns when a claim's reservation ends; None: it is none. Or what is wrong with it."""
    text = (claim.metadata.annotations or {}).get(RESERVE_UNTIL, "")
    if not text:
        return None
    try:
        # Python 3.10 does not read the Z of a time.
        until = datetime.fromisoformat(text[:40].replace("Z", "+00:00"))
    except ValueError:
        until = None
    if until is None or until.tzinfo is None:
        return f"{RESERVE_UNTIL} {text[:40]!r} is no time; write it as 2026-12-01T18:00:00Z"
    if (until - now).total_seconds() > longest_seconds:
        return (
            f"{RESERVE_UNTIL} is more than {format_duration(longest_seconds)} away, for which this "
            "manager reserves at most; write an earlier time"
        )
    return until


def pod_user(pod: Any) -> dict[str, str]:
    """Returns the entry of `reservedFor` for a pod."""
    return {"resource": "pods", "name": pod.metadata.name, "uid": pod.metadata.uid}


def reservation_user(claim: Any) -> dict[str, str]:
    """Returns the entry of `reservedFor` for a claim that is a reservation.

    Kubernetes keeps entries that it does not know, so the claim stays allocated while there is one.
    """
    metadata = claim.metadata
    resource = {"apiGroup": GROUP, "resource": RESERVATIONS}
    return {**resource, "name": metadata.name, "uid": metadata.uid}


def is_reserved(claim: Any) -> bool:
    """Returns whether a claim is reserved for its reservation."""
    users = (claim.status.reservedFor or []) if claim.status is not None else []
    return any(one.apiGroup == GROUP and one.resource == RESERVATIONS for one in users)


def gang_of(pod: Any) -> tuple[str, int] | str:
    """Returns the gang of a pod and its size, "" and 1 if it is in none; or what is wrong."""
    labels = pod.metadata.labels or {}
    name, size = labels.get(GANG_LABEL, ""), labels.get(GANG_SIZE_LABEL, "")
    if not name and not size:
        return "", 1
    if not name or not size.isdecimal() or not 1 <= int(size) <= _MOST_GANG:
        return (
            f"a gang has both labels {GANG_LABEL} and {GANG_SIZE_LABEL}, its size from 1 to "
            f"{_MOST_GANG}"
        )
    return gang_key(pod.metadata.namespace, name), int(size)


def needed_of_pod(content: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what the manager needs of a pod, which is a small part of it.

    Of annotations that are not ours one name stays, because it decides how ours are added.
    """
    metadata, spec = content["metadata"], content.get("spec") or {}
    status, annotations = content.get("status") or {}, metadata.get("annotations") or {}
    others = [name for name in annotations if not name.startswith(f"{GROUP}/")]
    notes = {name: text for name, text in annotations.items() if name.startswith(f"{GROUP}/")}
    said = status.get("conditions") or []
    return {
        "metadata": {
            **{name: metadata[name] for name in _METADATA if name in metadata},
            "annotations": {**dict.fromkeys(others[:1], ""), **notes},
        },
        "spec": {"containers": [], **{name: spec[name] for name in _SPEC if name in spec}},
        "status": {
            **{name: status[name] for name in _STATUS if name in status},
            "conditions": [one for one in said if str(one.get("type")).startswith(f"{GROUP}/")],
        },
    }
