"""Turns a ResourceClaim into a request of the core. Pure; objects are dictionaries as in YAML."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from math import ceil
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from rgpu_cluster.core.errors import RequestError
from rgpu_cluster.core.request import Client, Mode, Request
from rgpu_cluster.kubernetes.names import CORE, DRIVER, GROUP, MEMORY, MEMORY_STEP, RACK_LABEL
from rgpu_cluster.kubernetes.parameters import Parameters, parameters_of
from rgpu_cluster.kubernetes.selectors import choice_of
from rgpu_common.sharing import SharePolicy
from rgpu_common.units import MAX_BYTES, PPM

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from rgpu_cluster.kubernetes.selectors import Choice

_CORE_PPM = PPM // 100
# As many as Kubernetes takes.
_MOST_ALTERNATIVES = 8
_QUANTITY = re.compile(r"([0-9.]{1,20}(?:[eE][+-]?[0-9]{1,2})?)(m|[kMGTPE]|[KMGTPE]i)?")
_UNITS: dict[str | None, Decimal] = {
    None: Decimal(1), "m": Decimal("0.001"),
    **{unit: Decimal(1000) ** n for n, unit in enumerate("kMGTPE", 1)},
    **{f"{unit}i": Decimal(1024) ** n for n, unit in enumerate("KMGTPE", 1)},
}  # fmt: skip


class Wish(Struct, frozen=True):
    """What a claim asks for, or one of its alternatives, as the core takes it.

    name: that of the claim's one request, with an alternative `request/alternative`. mode: how far
    from its card a pod may be; the pod has no node yet, so the card decides where the pod may go.
    config: the configurations that count for it, as an allocation has them.
    """

    name: str
    mode: Mode
    request: Request
    config: tuple[Mapping[str, Any], ...] = ()


def is_ours(claim: Mapping[str, Any]) -> bool:
    """Returns whether a claim asks for one of our device classes at all."""
    for one in _requests(claim):
        rows = [one.get("exactly") or {}, *(one.get("firstAvailable") or [])]
        if any(is_our_class(str(row.get("deviceClassName", ""))) for row in rows):
            return True
    return False


def is_our_class(name: str) -> bool:
    """Returns whether a DeviceClass is one of ours, by its name."""
    return name == GROUP or name.endswith(f".{GROUP}")


def wishes_of(
    claim: Mapping[str, Any],
    classes: Mapping[str, Mapping[str, Any]],
    pod: Mapping[str, Any] | None = None,
) -> tuple[Wish, ...]:
    """Returns what a claim asks for: several wishes are alternatives, the best first.

    classes: the DeviceClasses by name. pod: the first pod that uses the claim.

    Raises:
        RequestError: the claim cannot be met as it is; the sentence says what to write.
    """
    row = _only_request(claim)
    name, alternatives = str(row["name"]), row.get("firstAvailable")
    if not alternatives:
        return (_wish(claim, name, row.get("exactly") or {}, classes, pod),)
    if len(alternatives) > _MOST_ALTERNATIVES:
        raise RequestError(f"a claim has at most {_MOST_ALTERNATIVES} alternatives")
    found = []
    for one in alternatives:
        called = f"{name}/{one['name']}"
        if not is_our_class(str(one.get("deviceClassName", ""))):
            raise RequestError(
                f"{called} is of another driver's DeviceClass; leave the label {GROUP}/placement "
                "off the pod, and kube-scheduler chooses"
            )
        try:
            found.append(_wish(claim, called, one, classes, pod))
        except RequestError as error:
            raise RequestError(f"{called}: {error}") from None
    if len({one.request.priority for one in found}) > 1:
        raise RequestError(
            "the alternatives have different priorities; write one `priority` for the request "
            f"{name!r}"
        )
    return tuple(found)


def _wish(
    claim: Mapping[str, Any],
    name: str,
    row: Mapping[str, Any],
    classes: Mapping[str, Mapping[str, Any]],
    pod: Mapping[str, Any] | None,
) -> Wish:
    """Returns one alternative. row: what the claim says of it."""
    class_name = str(row.get("deviceClassName", ""))
    if class_name not in classes:
        raise RequestError(
            f"there is no DeviceClass {class_name!r}; the classes are {', '.join(sorted(classes))}"
        )
    config = (
        *_config(classes[class_name].get("spec", {}).get("config") or [], name, "FromClass"),
        *_config(claim["spec"]["devices"].get("config") or [], name, "FromClaim"),
    )
    asked = parameters_of(*_parameters(config))
    if asked.mode is Mode.PASSTHROUGH and not asked.whole:
        raise RequestError("mode passthrough gives the whole card; write `whole: true` as well")
    chosen = choice_of(
        class_name, classes[class_name].get("spec", {}), row.get("selectors") or [], asked
    )
    return Wish(name, asked.mode, _request(claim, row, asked, chosen, pod), config)


def _request(
    claim: Mapping[str, Any],
    row: Mapping[str, Any],
    asked: Parameters,
    chosen: Choice,
    pod: Mapping[str, Any] | None,
) -> Request:
    metadata = claim["metadata"]
    share_ppm, memory_bytes, memory_ppm = _sizes(row, asked)
    return Request(
        id=str(metadata["uid"]),
        tenant=str(metadata["namespace"]),
        share_ppm=share_ppm,
        memory_bytes=memory_bytes,
        memory_ppm=memory_ppm,
        cards=_count(row),
        limit_ppm=asked.limit_of(share_ppm),
        policy=asked.policy or SharePolicy.NONE,
        whole=asked.whole,
        model=chosen.model,
        pool=chosen.pool,
        mig=chosen.mig,
        client=_client(pod or {}),
        max_slowdown_ppm=asked.max_slowdown_ppm,
        profile=asked.profile,
        bandwidth_bps=asked.bandwidth_bps,
        labels=asked.labels,
        max_per_node=asked.max_per_node,
        max_per_rack=asked.max_per_rack,
        max_per_zone=asked.max_per_zone,
        one_node=asked.one_node and _count(row) > 1,
        priority=asked.priority,
        weight=asked.weight,
        least_ppm=asked.least_ppm,
        least_bytes=asked.least_bytes,
        kept=True,
    )


def quantity(text: Any) -> Decimal:
    """Returns a number as Kubernetes writes it: 8Gi, 30, 1500m; RequestError."""
    found = _QUANTITY.fullmatch(str(text))
    try:
        if found is not None:
            return Decimal(found[1]) * _UNITS[found[2]]
    except InvalidOperation:
        pass
    raise RequestError(f"{str(text)[:40]!r} is no quantity; write it as 8Gi")


def _requests(claim: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list(claim.get("spec", {}).get("devices", {}).get("requests") or [])


def _only_request(claim: Mapping[str, Any]) -> Mapping[str, Any]:
    rows = _requests(claim)
    if len(rows) != 1:
        raise RequestError(
            f"the claim has {len(rows)} requests; write one request with `count` for equal cards, "
            "and a claim for each kind of card"
        )
    if claim["spec"]["devices"].get("constraints"):
        raise RequestError(
            "the placer does not know constraints; leave them out (the cards of a claim are of one "
            "node unless it says `oneNode: false`)"
        )
    return rows[0]


def _config(config: list[Any], name: str, source: str) -> Iterator[Mapping[str, Any]]:
    """Yields the configurations for all requests, for this one, or for this alternative of it."""
    for one in config:
        named = one.get("requests") or []
        if source == "FromClass" or not named or {name, name.partition("/")[0]} & set(named):
            yield {**one, "source": source}


def _parameters(config: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yields the parameters that are ours."""
    for one in config:
        opaque = one.get("opaque") or {}
        if opaque.get("driver") == DRIVER:
            yield opaque.get("parameters") or {}


def _count(row: Mapping[str, Any]) -> int:
    if row.get("allocationMode", "ExactCount") != "ExactCount":
        raise RequestError("allocationMode All would take every card; write `count`")
    if row.get("adminAccess"):
        raise RequestError("adminAccess needs no placement; leave the pod's placement label off")
    return int(row.get("count") or 1)


def _sizes(row: Mapping[str, Any], asked: Parameters) -> tuple[int, int, int]:
    """Returns the share, the memory, and the part of a card's memory if no memory is named."""
    capacity = (row.get("capacity") or {}).get("requests") or {}
    strange = set(capacity) - {CORE, MEMORY}
    if strange:
        raise RequestError(f"a card has no capacity {min(strange)!r}; it has {CORE} and {MEMORY}")
    core = quantity(capacity[CORE]) if CORE in capacity else Decimal(100)
    if core != int(core) or not 1 <= core <= 100:
        raise RequestError(f"core is 1 to 100, the percent of one card, and not {core}")
    share = PPM if asked.whole else int(core) * _CORE_PPM
    if asked.whole and core != 100:
        raise RequestError(f"a whole card was asked for with core {core}; leave core out")
    if MEMORY not in capacity:
        return share, 0, PPM
    if asked.whole:
        raise RequestError(
            f"a whole card was asked for with memory {str(capacity[MEMORY])[:40]}, and it has all "
            "of its memory; leave memory out, and name a model if the card is to be large"
        )
    memory = quantity(capacity[MEMORY])
    if not 0 < memory <= MAX_BYTES:
        raise RequestError(f"no card has memory {capacity[MEMORY]}")
    # Rounded up, because a server takes 0 for its default, which no quota would count.
    return share, -(-ceil(memory) // MEMORY_STEP) * MEMORY_STEP, 0


def _client(pod: Mapping[str, Any]) -> Client:
    """Returns what a pod says of the place where it will run."""
    selector = pod.get("spec", {}).get("nodeSelector") or {}
    return Client(rack=str(selector.get(RACK_LABEL, "")))
