"""Which devices of a pool new claims have to avoid, and which lose their pods.

A device that the server no longer reports stays in the pool with a taint, because pods are evicted
from devices that are there. It leaves the pool when its pods have had to go and no claim has it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from rgpu_cluster.kubernetes import names
from rgpu_cluster.kubernetes.slices import Reach, bandwidth_of, kind_of, tainted
from rgpu_cluster.kubernetes.times import seconds_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from rgpu_cluster.kubernetes.slices import Device, Taint

KEEPS_AWAY, EVICTS = "NoSchedule", "NoExecute"


class State(Struct, frozen=True):
    """Of the node. degraded: its measured paths have become much worse."""

    draining: bool = False
    degraded: bool = False


class Health:
    """Remembers since when devices have been away. Times are seconds since 1970.

    evict_seconds: after so long without a device its pods are evicted. reach: pods on the node
    itself do not need its network.
    """

    def __init__(self, evict_seconds: float, reach: Reach = Reach.ALL) -> None:
        self._evict_seconds = evict_seconds
        self._local = reach is Reach.NODE
        self._away_since: dict[str, float] = {}
        self._full_until: dict[str, float] = {}

    def fill(self, device: str, until: float) -> None:
        """Keeps new claims off a card whose server had no room for one."""
        self._full_until[device] = until

    def devices(
        self,
        reported: Mapping[str, Device],
        state: State,
        published: Mapping[str, Device],
        used: AbstractSet[str],
        now: float,
    ) -> list[Device]:
        """Returns the devices of the pool with their taints.

        reported: what the server has now; {} if there is no server. published: what is in the pool
        in the API server. used: the devices that claims have.
        """
        for name in reported:
            self._away_since.pop(name, None)
        away = {name: device for name, device in published.items() if name not in reported}
        slow = self._is_slow(reported, away, state.degraded)
        found = [
            tainted(device, self._taints_of(device, state.draining, slow, now))
            for device in reported.values()
        ]
        for name, device in away.items():
            evicts = now >= self._since(name, device, now) + self._evict_seconds
            if evicts and name not in used:
                continue
            effect = EVICTS if evicts else KEEPS_AWAY
            found.append(tainted(device, [_taint(names.UNHEALTHY_TAINT, effect)]))
        return found

    def next_change(self, now: float) -> float | None:
        """Returns when `devices` would answer differently although nobody has said anything new."""
        ends = [since + self._evict_seconds for since in self._away_since.values()]
        later = [end for end in (*ends, *self._full_until.values()) if end > now]
        return min(later, default=None)

    def _taints_of(self, device: Device, draining: bool, slow: bool, now: float) -> list[Taint]:
        card = kind_of(device) == names.CARD
        full = card and now < self._full_until.get(device["name"], now)
        rows = (
            (names.DRAIN_TAINT, draining),
            (names.NETWORK_TAINT, card and slow),
            (names.FULL_TAINT, full),
        )
        return [_taint(key, KEEPS_AWAY) for key, wanted in rows if wanted]

    def _since(self, name: str, device: Device, now: float) -> float:
        """Returns since when a device is away; an agent before this one may have said it."""
        return self._away_since.setdefault(name, min(_told_since(device) or now, now))

    def _is_slow(
        self, reported: Mapping[str, Device], away: Mapping[str, Device], degraded: bool
    ) -> bool:
        """Returns whether the node has lost more than half of its network, or its paths."""
        has = sum(bandwidth_of(device) for device in reported.values())
        lost = sum(bandwidth_of(device) for device in away.values())
        return bool(reported) and not self._local and (lost > has or degraded)


def _taint(key: str, effect: str) -> Taint:
    return {"key": key, "effect": effect}


def _told_since(device: Device) -> float | None:
    for taint in device.get("taints", []):
        if taint["key"] == names.UNHEALTHY_TAINT and taint["effect"] == KEEPS_AWAY:
            return seconds_of(taint.get("timeAdded"))
    return None
