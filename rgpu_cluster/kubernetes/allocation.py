"""Writes a decision as the status of a ResourceClaim, and as what its pods are told. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from rgpu_client.device_names import DeviceName
from rgpu_cluster.core.request import Mode
from rgpu_cluster.kubernetes.names import (
    CORE,
    DEVICE,
    DRIVER,
    HOST_LABEL,
    LEASE,
    MEMORY,
    MEMORY_STEP,
    RACK_LABEL,
    SERVER,
    card_device,
)
from rgpu_common.clusters import lease_key
from rgpu_common.units import PPM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from rgpu_cluster.core.card import CardId
    from rgpu_cluster.core.pool import Pool
    from rgpu_cluster.kubernetes.wishes import Wish

_CORE_PPM = PPM // 100


class Place(Struct, frozen=True):
    """Where one card of a claim is. server: the address for programs. rack: that of its node."""

    node: str
    ordinal: int
    memory_bytes: int
    server: str
    rack: str


def places_of(cards: Iterable[CardId], pool: Pool) -> list[Place] | None:
    """Returns the places of cards; None if one has left the pool."""
    found = []
    for card in cards:
        node = pool.node(card.node)
        if node is None:
            return None
        there = [one for one in node.cards if one.id == card]
        if not there:
            return None
        memory = there[0].memory_bytes
        found.append(Place(card.node, card.ordinal, memory, node.address, node.rack))
    return found


def allocation(
    wish: Wish, places: Sequence[Place], time: str, new_id: Callable[[], str]
) -> dict[str, Any]:
    """Returns `status.allocation` of a claim. time: now, as Kubernetes writes it. new_id: makes a
    UUID.
    """
    results = [
        {
            "request": wish.name,
            "driver": DRIVER,
            "pool": place.node,
            "device": card_device(place.ordinal),
            "shareID": new_id(),
            "consumedCapacity": _consumed(wish, place),
        }
        for place in places
    ]
    devices: dict[str, Any] = {"results": results}
    if wish.config:
        devices["config"] = [*wish.config]
    made: dict[str, Any] = {"devices": devices, "allocationTimestamp": time}
    where = _selector(wish.mode, places)
    if where is not None:
        made["nodeSelector"] = where
    return made


def _consumed(wish: Wish, place: Place) -> dict[str, str]:
    memory = wish.request.memory_on(place.memory_bytes) // MEMORY_STEP * MEMORY_STEP
    core = 100 if wish.request.whole else wish.request.share_ppm // _CORE_PPM
    return {CORE: str(core), MEMORY: str(memory)}


def _selector(mode: Mode, places: Sequence[Place]) -> dict[str, Any] | None:
    """Returns the nodes on which the claim's pods may run; None: on all."""
    if mode is Mode.ANY:
        return None
    key, values = RACK_LABEL, sorted({place.rack for place in places})
    if mode is not Mode.NEAR or not all(values):
        key, values = HOST_LABEL, sorted({place.node for place in places})
    row = {"key": key, "operator": "In", "values": values}
    return {"nodeSelectorTerms": [{"matchExpressions": [row]}]}


def told(claim: str, places: Sequence[Place]) -> dict[str, str]:
    """Returns what a pod's programs need of a claim: RGPU_SERVER, RGPU_LEASE and RGPU_DEVICE."""
    several = len({place.server for place in places}) > 1
    devices = [DeviceName(place.ordinal, place.server if several else "") for place in places]
    return {
        SERVER: "" if several else places[0].server,
        LEASE: lease_key(claim, 0),
        DEVICE: ",".join(map(str, devices)),
    }


def allocated(claim: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns our pools and devices in a claim's allocation; [] if there is none of ours."""
    made = (claim.get("status") or {}).get("allocation") or {}
    rows = (made.get("devices") or {}).get("results") or []
    return [(row["pool"], row["device"]) for row in rows if row.get("driver") == DRIVER]
