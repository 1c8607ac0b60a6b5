"""What a GPU node offers to Kubernetes: the devices of its ResourceSlices.

All here is pure. A device is the JSON object that stands in a ResourceSlice.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from rgpu_cluster.kubernetes import names
from rgpu_cluster.kubernetes.names import MEMORY_STEP

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rgpu_common.v1 import agent_pb2, network_pb2

Device = dict[str, Any]
Taint = dict[str, str]

# The API server takes 128 devices in a slice, and 64 if one of them has a taint.
MAX_DEVICES = 64
# What a claim's memory is counted in. Cards with less than one step are counted in small steps.
SMALL_STEP = 1 << 20
# `core` counts percents of one card, which may be a MIG slice.
CORES = 100
_BANDWIDTH_STEP = 100_000_000
_MAX_TEXT = 64
_MAX_LABEL = 63
_MAX_NIC_BPS = 10_000_000_000_000
_BINARY = (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10), ("", 1))
_DECIMAL = (("T", 10**12), ("G", 10**9), ("M", 10**6), ("k", 10**3), ("", 1))
_NUMA = re.compile(r"numa([0-9]{1,5})")
_LABEL = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_NODE_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")


class Reach(Enum):
    """Whose pods may use the devices of a node."""

    ALL = "all"
    ZONE = "zone"
    NODE = "node"


class Place(Struct, frozen=True):
    """Where the devices are offered.

    node: the GPU node, which is also the name of the pool. zone: for Reach.ZONE. agent: the address
    at which the node's agent gives credentials; "": it gives none.
    """

    node: str
    reach: Reach = Reach.ALL
    zone: str = ""
    agent: str = ""


def is_kubernetes_name(text: str) -> bool:
    """Returns whether a text can name a node, and so a pool, here: a DNS name of 63 characters."""
    return len(text) <= _MAX_LABEL and _NODE_NAME.fullmatch(text) is not None


def memory_step(memory_bytes: int) -> int:
    """Returns what the memory of a card of this size is counted in."""
    return MEMORY_STEP if memory_bytes >= MEMORY_STEP else SMALL_STEP


def devices_of(report: agent_pb2.NodeReport, place: Place) -> list[Device]:
    """Returns the devices of a report without taints: cards in order, then network devices.

    A card with less memory than the smallest step is left out, and so is a network device that
    does not say how fast it is.
    """
    shared = {
        "server": report.address,
        "agent": place.agent,
        "rack": report.rack,
        "zone": report.zone or place.zone,
    }
    found = [_card(card, shared) for card in report.cards if card.memory_bytes >= SMALL_STEP]
    found.sort(key=lambda device: names.ordinal_of(device["name"]))
    return [*found, *_nics(report.devices, shared)]


def kind_of(device: Device) -> str:
    """Returns what kind of device it is: names.CARD or names.NIC."""
    return str(device.get("attributes", {}).get("kind", {}).get("string", ""))


def bandwidth_of(device: Device) -> int:
    """Returns the bits a second of a network device as it was made here."""
    text = str(device.get("capacity", {}).get(names.BANDWIDTH, {}).get("value", "0"))
    for suffix, size in _DECIMAL:
        number = text.removesuffix(suffix)
        if number.isdigit():
            return int(number) * size
    return 0


def tainted(device: Device, taints: Sequence[Taint]) -> Device:
    """Returns the device with these taints and no others."""
    bare = {key: value for key, value in device.items() if key != "taints"}
    return {**bare, "taints": [*taints]} if taints else bare


def specs_of(devices: Sequence[Device], place: Place, generation: int) -> list[dict[str, Any]]:
    """Returns the specs of all slices of the pool."""
    chunks = [devices[i : i + MAX_DEVICES] for i in range(0, len(devices), MAX_DEVICES)]
    pool = {"name": place.node, "generation": generation, "resourceSliceCount": len(chunks)}
    return [
        {"driver": names.DRIVER, "pool": pool, **_reached(place), "devices": [*chunk]}
        for chunk in chunks
    ]


def _reached(place: Place) -> dict[str, Any]:
    if place.reach is Reach.ALL:
        return {"allNodes": True}
    if place.reach is Reach.ZONE:
        row = {"key": names.ZONE_LABEL, "operator": "In", "values": [place.zone]}
        return {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [row]}]}}
    # Not `nodeName`: the node's kubelet removes slices with it when no plugin is registered there.
    row = {"key": "metadata.name", "operator": "In", "values": [place.node]}
    return {"nodeSelector": {"nodeSelectorTerms": [{"matchFields": [row]}]}}


def _card(card: agent_pb2.CardReport, shared: Mapping[str, str]) -> Device:
    step = memory_step(card.memory_bytes)
    memory = _binary(card.memory_bytes // step * step)
    numa = next((m[1] for m in map(_NUMA.fullmatch, card.location) if m), None)
    texts = {
        "kind": names.CARD,
        "model": card.model,
        "uuid": card.uuid,
        "pool": card.pool,
        "mig": card.mig,
        **shared,
    }
    return {
        "name": names.card_device(card.ordinal),
        "allowMultipleAllocations": True,
        "attributes": _attributes(texts, {"ordinal": card.ordinal, "numa": numa}),
        "capacity": {
            names.CORE: _capacity(str(CORES), str(CORES), "1", "1"),
            names.MEMORY: _capacity(memory, memory, _binary(step), _binary(step)),
        },
        "bindingConditions": [names.LEASED],
        "bindingFailureConditions": [names.REFUSED],
    }


def _nics(found: Iterable[network_pb2.NetDevice], shared: Mapping[str, str]) -> list[Device]:
    by_name: dict[str, Device] = {}
    for one in sorted(found, key=lambda nic: nic.name):
        name, bits = _nic_device(one.name), _bits_of(one)
        # Two interfaces whose names differ only in characters that Kubernetes does not take.
        if bits < _BANDWIDTH_STEP or name in by_name:
            continue
        value, least = (
            _decimal(bits // _BANDWIDTH_STEP * _BANDWIDTH_STEP),
            _decimal(_BANDWIDTH_STEP),
        )
        default = _decimal(min(bits // _BANDWIDTH_STEP * _BANDWIDTH_STEP, 10**9))
        numa = one.numa_node if one.HasField("numa_node") else None
        by_name[name] = {
            "name": name,
            "allowMultipleAllocations": True,
            "attributes": _attributes(
                {"kind": names.NIC, "nic": one.name, **shared}, {"numa": numa}
            ),
            "capacity": {names.BANDWIDTH: _capacity(value, default, least, least)},
        }
    return [*by_name.values()]


def _bits_of(nic: network_pb2.NetDevice) -> int:
    """Returns the bits a second of an interface; 0: it is down, or does not say."""
    ports = [port.speed_mbps for port in nic.rdma_ports if port.active]
    return min(max([nic.speed_mbps, *ports]) * 10**6, _MAX_NIC_BPS) if nic.up else 0


def _nic_device(interface: str) -> str:
    plain = re.sub(r"[^a-z0-9]+", "-", interface.lower()).strip("-")
    return f"net-{plain}"[:_MAX_LABEL].rstrip("-")


def _attributes(texts: Mapping[str, str], numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Returns attributes. A text that is empty, too long or not printable is no attribute."""
    made: dict[str, Any] = {
        name: {"string": text}
        for name, text in texts.items()
        if text and len(text.encode()) <= _MAX_TEXT and text.isprintable()
    }
    made |= {name: {"int": int(value)} for name, value in numbers.items() if value is not None}
    assert made.keys() <= set(names.ATTRIBUTES)
    return dict(sorted(made.items()))


def _capacity(value: str, default: str, least: str, step: str) -> dict[str, Any]:
    """Returns a capacity of which a claim takes `default` if it does not say how much."""
    return {
        "value": value,
        "requestPolicy": {"default": default, "validRange": {"min": least, "step": step}},
    }


def _binary(count: int) -> str:
    return _quantity(count, _BINARY)


def _decimal(count: int) -> str:
    return _quantity(count, _DECIMAL)


def _quantity(count: int, units: Iterable[tuple[str, int]]) -> str:
    """Returns a quantity as the API server itself would write it."""
    for suffix, size in units:
        if count >= size and count % size == 0:
            return f"{count // size}{suffix}"
    return str(count)
