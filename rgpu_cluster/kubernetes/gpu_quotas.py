"""GpuQuota (rgpu.dev/v1alpha1): the quota of a namespace, and what the namespace has. Pure.

Objects are dictionaries as in YAML. A namespace is a tenant of the core.
"""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING, Any

from rgpu_cluster.core.errors import RequestError
from rgpu_cluster.core.quotas import TenantQuota
from rgpu_cluster.core.usage import Use
from rgpu_cluster.kubernetes.legacy.asked import quantity_of
from rgpu_cluster.kubernetes.wishes import quantity
from rgpu_common.units import MAX_BYTES, MAX_DEVICES, PPM

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

NAME = "default"
ACCEPTED = "Accepted"
_FIELDS = ("cards", "memory", "borrow", "graceSeconds")
_MOST_GRACE = 86400


def quota_of(content: Mapping[str, Any]) -> TenantQuota:
    """Returns the quota of a GpuQuota.

    Raises:
        RequestError: a field is not known, or has a wrong value.
    """
    spec = content.get("spec") or {}
    strange = sorted(set(spec) - set(_FIELDS))
    if strange:
        raise RequestError(f"spec has no field {strange[0]!r}; it has {', '.join(_FIELDS)}")
    return TenantQuota(
        share_ppm=_scaled(spec, "cards", PPM, MAX_DEVICES),
        memory_bytes=_scaled(spec, "memory", 1, MAX_BYTES),
        borrow=_flag(spec.get("borrow", False)),
        grace_seconds=_grace(spec.get("graceSeconds")),
    )


def _scaled(spec: Mapping[str, Any], name: str, scale: int, most: int) -> int | None:
    if spec.get(name) is None:
        return None
    try:
        found = quantity(spec[name])
    except RequestError:
        example = "2.5" if name == "cards" else "200Gi"
        said = str(spec[name])[:40]
        raise RequestError(
            f"spec.{name} is {said!r}, and no quantity; write it as {example}"
        ) from None
    if not 0 <= found <= most:
        raise RequestError(f"spec.{name} is {str(spec[name])[:40]}; write 0 to {most}")
    return int(found * scale)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise RequestError(f"spec.borrow is {str(value)[:40]!r}; write true or false")
    return value


def _grace(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST_GRACE:
        raise RequestError(f"spec.graceSeconds is {str(value)[:40]!r}; write 0 to {_MOST_GRACE}")
    return float(value)


def quotas_of(
    objects: Iterable[Mapping[str, Any]],
) -> tuple[dict[str, TenantQuota], dict[str, str]]:
    """Returns the quotas by namespace; and for each namespace whose quota is wrong, why.

    A namespace with a wrong quota has none here. The API server takes few wrong ones.
    """
    quotas: dict[str, TenantQuota] = {}
    wrong: dict[str, str] = {}
    for one in objects:
        metadata = one["metadata"]
        if metadata["name"] != NAME:
            continue
        try:
            quotas[metadata["namespace"]] = quota_of(one)
        except RequestError as error:
            wrong[metadata["namespace"]] = str(error)
    return quotas, wrong


def status_of(content: Mapping[str, Any], use: Use, waiting: int, now: str) -> dict[str, Any]:
    """Returns the status of a GpuQuota.

    use: what the namespace has. waiting: how many of its claims wait. now: the time, as Kubernetes
    writes it.
    """
    try:
        quota, why = quota_of(content), ""
    except RequestError as error:
        quota, why = TenantQuota(), str(error)
    generation = content["metadata"].get("generation", 0)
    return {
        "observedGeneration": generation,
        "used": _amount(use),
        "borrowed": _amount(_beyond(use, quota)),
        "waiting": waiting,
        "conditions": [_condition(content, why, generation, now)],
    }


def _beyond(use: Use, quota: TenantQuota) -> Use:
    share = 0 if quota.share_ppm is None else max(use.share_ppm - quota.share_ppm, 0)
    memory = 0 if quota.memory_bytes is None else max(use.memory_bytes - quota.memory_bytes, 0)
    return Use(share, memory)


def _amount(use: Use) -> dict[str, str]:
    cards = Decimal(use.share_ppm) / PPM
    text = f"{cards.quantize(Decimal('0.01'), ROUND_HALF_UP):f}".rstrip("0").rstrip(".")
    return {"cards": text, "memory": quantity_of(use.memory_bytes)}


def _condition(content: Mapping[str, Any], why: str, generation: int, now: str) -> dict[str, Any]:
    """Returns the condition that says whether the quota is in force."""
    value = "False" if why else "True"
    known = (content.get("status") or {}).get("conditions") or []
    since = next(
        (
            one["lastTransitionTime"]
            for one in known
            if one.get("type") == ACCEPTED and one.get("status") == value
        ),
        now,
    )
    return {
        "type": ACCEPTED,
        "status": value,
        "reason": "Invalid" if why else "Accepted",
        "message": why or "the manager holds the namespace to this quota",
        "lastTransitionTime": since,
        "observedGeneration": generation,
    }
