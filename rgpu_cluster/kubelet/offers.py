"""Reads the ResourceSlices of GPU nodes. Pure; objects are as the API server writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from rgpu_cluster.kubernetes.names import DRIVER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Content = Mapping[str, Any]


class Offer(Struct, frozen=True):
    """What a GPU node says of itself.

    server: the address of its server for programs. agent: the address at which its agent gives
    credentials; "": it gives none, and pods show their own tokens.
    """

    server: str = ""
    agent: str = ""


def offer_of(slices: Iterable[Content], pool: str) -> Offer | None:
    """Returns what a GPU node says in its newest slices. None: no slice is of this pool."""
    specs = [one.get("spec") or {} for one in slices]
    pools = [spec for spec in specs if spec.get("driver") == DRIVER]
    pools = [spec for spec in pools if (spec.get("pool") or {}).get("name") == pool]
    if not pools:
        return None
    newest = max(pools, key=lambda spec: int(spec["pool"].get("generation", 0)))
    devices = newest.get("devices") or [{}]
    return Offer(_text(devices[0], "server"), _text(devices[0], "agent"))


def _text(device: Content, name: str) -> str:
    """Returns an attribute; one without a domain is of the driver's domain."""
    attributes = device.get("attributes") or {}
    found = attributes.get(name) or attributes.get(f"{DRIVER}/{name}") or {}
    return str(found.get("string") or "")
