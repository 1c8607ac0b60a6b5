"""What the agent of one node needs to know of a ResourceClaim. Pure."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from lightkube.utils.quantity import parse_quantity
from msgspec import Struct

from rgpu_cluster.kubernetes import names

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lightkube.models.resource_v1 import (
        AllocatedDeviceStatus,
        AllocationResult,
        DeviceRequestAllocationResult,
    )
    from lightkube.resources.resource_v1 import ResourceClaim


# Device and share -> the conditions that are true.
Told = dict[tuple[str, str], frozenset[str]]


class PodRef(Struct, frozen=True):
    name: str
    uid: str


class Share(Struct, frozen=True):
    """A part of a card of this node that a claim has been allocated.

    core, memory_bytes: how much; -1: the allocation does not say. waits: kube-scheduler binds no
    pod before it is told that there is a lease. told: the conditions that are true for this share.
    """

    request: str
    device: str
    ordinal: int
    share_id: str
    core: int
    memory_bytes: int
    waits: bool
    told: frozenset[str] = frozenset()


class ClaimView(Struct, frozen=True):
    """A claim. shares: those on this node. first: the place of the first of them among all cards of
    the claim, from 0. cards: how many cards it has on all nodes. apart: cards of another node stand
    between those of this node. parameters: the opaque parameters for our driver, with the requests
    that they are for; later ones win. devices: all devices of this node that it has.
    """

    uid: str
    namespace: str
    name: str
    shares: tuple[Share, ...] = ()
    first: int = 0
    cards: int = 0
    apart: bool = False
    pods: tuple[PodRef, ...] = ()
    parameters: tuple[tuple[tuple[str, ...], Any], ...] = ()
    devices: frozenset[str] = frozenset()

    @property
    def key(self) -> tuple[tuple[str, str], ...]:
        """What tells one allocation of the claim from the next one."""
        return tuple((share.device, share.share_id) for share in self.shares)

    @property
    def waits(self) -> bool:
        """True if kube-scheduler has allocated it, and waits for its lease."""
        return any(share.waits for share in self.shares)

    def told(self, condition: str) -> bool:
        """Returns whether all shares say this condition."""
        return all(condition in share.told for share in self.shares)


def view_of(claim: ResourceClaim, node: str) -> ClaimView:
    """Returns what concerns the node whose pool this is."""
    metadata = claim.metadata
    assert metadata is not None
    uid, namespace, name = str(metadata.uid), str(metadata.namespace), str(metadata.name)
    status = claim.status
    allocation = status.allocation if status is not None else None
    if status is None or allocation is None or allocation.devices is None:
        return ClaimView(uid, namespace, name)
    every = [one for one in allocation.devices.results or [] if one.driver == names.DRIVER]
    # A monitor looks at a card and takes nothing of it.
    cards = [one for one in every if names.ordinal_of(one.device) >= 0 and not one.adminAccess]
    here = [place for place, one in enumerate(cards) if one.pool == node]
    told = _told(status.devices or [], node)
    pods = [
        PodRef(str(user.name), str(user.uid))
        for user in status.reservedFor or []
        if user.resource == "pods" and not user.apiGroup
    ]
    return ClaimView(
        uid, namespace, name,
        shares=tuple(_share(cards[place], told) for place in here),
        first=here[0] if here else 0,
        cards=len(cards),
        apart=bool(here) and here[-1] - here[0] + 1 != len(here),
        pods=tuple(sorted(pods, key=lambda pod: pod.uid)),
        parameters=_parameters(allocation),
        devices=frozenset(one.device for one in every if one.pool == node),
    )  # fmt: skip


def _share(
    one: DeviceRequestAllocationResult, told: dict[tuple[str, str], frozenset[str]]
) -> Share:
    share_id, consumed = one.shareID or "", one.consumedCapacity or {}
    return Share(
        request=one.request,
        device=one.device,
        ordinal=names.ordinal_of(one.device),
        share_id=share_id,
        core=_whole(consumed.get(names.CORE)),
        memory_bytes=_whole(consumed.get(names.MEMORY)),
        waits=names.LEASED in (one.bindingConditions or []),
        told=told.get((one.device, share_id), frozenset()),
    )


def _told(
    devices: Iterable[AllocatedDeviceStatus], node: str
) -> dict[tuple[str, str], frozenset[str]]:
    return {
        (one.device, one.shareID or ""): frozenset(
            said.type for said in one.conditions or [] if said.status == "True"
        )
        for one in devices
        if one.driver == names.DRIVER and one.pool == node
    }


def _parameters(allocation: AllocationResult) -> tuple[tuple[tuple[str, ...], Any], ...]:
    devices = allocation.devices
    rows = (devices.config or []) if devices is not None else []
    return tuple(
        (tuple(row.requests or ()), row.opaque.parameters)
        for row in rows
        if row.opaque is not None and row.opaque.driver == names.DRIVER
    )


def _whole(quantity: object) -> int:
    """Returns a quantity in whole units; -1 if there is none, or nothing that can be read."""
    if quantity is None:
        return -1
    try:
        number = parse_quantity(str(quantity))
    except ValueError:
        return -1
    return int(number) if isinstance(number, Decimal) and number >= 0 else -1
