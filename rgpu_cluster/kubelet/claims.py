"""Reads what a claim has been allocated. Pure; objects are as the API server writes them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from rgpu_cluster.kubelet.errors import PrepareError
from rgpu_cluster.kubernetes.names import DRIVER

if TYPE_CHECKING:
    from collections.abc import Mapping

    Content = Mapping[str, Any]

# The names that `names.card_device` gives. Other devices of a claim are network devices.
_CARD = re.compile(r"gpu-(0|[1-9][0-9]{0,5})")
# A UID becomes the name of a folder and of a CDI device.
_UID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,62}[A-Za-z0-9])?")


class ClaimName(Struct, frozen=True):
    """A ResourceClaim, as the kubelet names it."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"claim {self.namespace}/{self.name}"


class Part(Struct, frozen=True):
    """One device of a claim. request: without the name of a sub-request."""

    request: str
    pool: str
    device: str
    share: str

    @property
    def ordinal(self) -> int | None:
        """The card that it is; None: it is no card."""
        found = _CARD.fullmatch(self.device)
        return int(found[1]) if found else None


class Allocated(Struct, frozen=True):
    """A claim with its devices of our driver, in the order of the allocation. pods, pod_names: the
    UIDs and the names of the pods that it is reserved for.
    """

    claim: ClaimName
    parts: tuple[Part, ...]
    pods: frozenset[str]
    pod_names: tuple[str, ...] = ()

    @property
    def pools(self) -> tuple[str, ...]:
        """The GPU nodes of its cards, each once, in the order of the allocation."""
        return tuple(dict.fromkeys(part.pool for part in self.parts if part.ordinal is not None))


def is_uid(text: str) -> bool:
    """Returns whether a text can be a UID."""
    return _UID.fullmatch(text) is not None


def check_uid(claim: ClaimName) -> None:
    """Raises PrepareError if the claim's UID cannot be one."""
    if _UID.fullmatch(claim.uid) is None:
        raise PrepareError(f"{claim.uid[:64]!r} is no UID of a claim: restart the kubelet")


def allocated(claim: ClaimName, content: Content) -> Allocated:
    """Returns what a claim has been allocated.

    Raises:
        PrepareError: it is another claim now, or has nothing of our driver, or is for no pod.
    """
    check_uid(claim)
    uid = (content.get("metadata") or {}).get("uid", "")
    if uid != claim.uid:
        raise PrepareError(
            f"{claim} was deleted and made again, with the UID {uid} instead of {claim.uid}: "
            "delete the pod too, so that a new one gets the new claim"
        )
    status = content.get("status") or {}
    rows = ((status.get("allocation") or {}).get("devices") or {}).get("results") or []
    parts = tuple(_part(row) for row in rows if row.get("driver") == DRIVER)
    if all(part.ordinal is None for part in parts):
        raise PrepareError(
            f"{claim} has no card of {DRIVER} (any more): ask for one in the claim, and delete the "
            "pod, so that the scheduler places a new one"
        )
    users = [one for one in status.get("reservedFor") or [] if one.get("resource") == "pods"]
    pods = frozenset(str(one["uid"]) for one in users)
    if not pods:
        raise PrepareError(
            f"{claim} is reserved for no pod: delete the pod, so that the scheduler reserves the "
            "claim for a new one"
        )
    return Allocated(claim, parts, pods, tuple(sorted({str(one["name"]) for one in users})))


def _part(row: Content) -> Part:
    request = str(row["request"]).partition("/")[0]
    return Part(request, str(row["pool"]), str(row["device"]), str(row.get("shareID") or ""))
