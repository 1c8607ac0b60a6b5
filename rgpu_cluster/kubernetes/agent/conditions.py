"""The conditions of a claim's devices: whether there is a lease. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rgpu_cluster.kubernetes import names

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rgpu_cluster.kubernetes.agent.views import ClaimView

_GRANTED = "the server of the GPU node has granted the lease"
# What is said -> the conditions that it sets. The pods of a lost lease are bound, and the lease
# that is granted in its place is the claim's as well, so a loss leaves `leased` as it is.
_SETS = {
    names.LEASED: {names.LEASED: True, names.REFUSED: False, names.LOST: False},
    names.REFUSED: {names.LEASED: False, names.REFUSED: True},
    names.LOST: {names.LOST: True},
}
_REASONS = {names.LEASED: "Granted", names.REFUSED: "Refused", names.LOST: "Lost"}
_MOST_CONDITIONS = 8


def status_with(
    status: dict[str, Any], view: ClaimView, node: str, says: str, sentence: str, time: str
) -> dict[str, Any]:
    """Returns the status of a claim in which the node's shares say whether they are leased.

    status: as it is. says: as `Say.condition`. time: now, as Kubernetes writes it. All that others
    have said stays.
    """
    rows = [*(status.get("devices") or [])]
    for share in view.shares:
        key = {"driver": names.DRIVER, "pool": node, "device": share.device}
        if share.share_id:
            key["shareID"] = share.share_id
        old = next((row for row in rows if _key(row) == _key(key)), None)
        new = _row(old or key, says, sentence, time)
        rows = [row for row in rows if row is not old] + [new]
    return {**status, "devices": rows}


def is_said(view: ClaimView, says: str) -> bool:
    """Returns whether a claim says this already."""
    wrong = {kind for kind, holds in _SETS[says].items() if not holds}
    return view.told(says) and not any(wrong & share.told for share in view.shares)


def _row(row: dict[str, Any], says: str, sentence: str, time: str) -> dict[str, Any]:
    said = [*(row.get("conditions") or [])]
    types = {one["type"] for one in said}
    wanted = _SETS[says]
    kept = [one for one in said if one["type"] not in wanted][: _MOST_CONDITIONS - len(wanted)]
    for kind, holds in wanted.items():
        if holds or kind in types:
            before = next((one for one in said if one["type"] == kind), None)
            kept.append(_condition(kind, holds, says, sentence, time, before))
    return {**row, "conditions": kept}


def _condition(
    kind: str, holds: bool, says: str, sentence: str, time: str, before: dict[str, Any] | None
) -> dict[str, Any]:
    status = "True" if holds else "False"
    same = before is not None and before["status"] == status
    return {
        "type": kind,
        "status": status,
        "reason": _REASONS[says],
        "message": _GRANTED if says == names.LEASED else sentence,
        "lastTransitionTime": before["lastTransitionTime"] if same and before else time,
    }


def _key(row: dict[str, Any]) -> Iterable[str]:
    return tuple(str(row.get(name) or "") for name in ("driver", "pool", "device", "shareID"))
