"""What leases used, told to the daemon a few at a time, so that no grant waits for it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rgpu_server.tokens.protocol import DeviceIs, UsageIs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rgpu_server.tokens.device import DeviceTokens

# Of one tick.
_BUDGET_NS = 500_000


class Reports:
    """Goes round all leases and begins again where it stopped."""

    def __init__(self) -> None:
        self._left: list[tuple[DeviceTokens, str]] = []

    def send(
        self, devices: Mapping[int, DeviceTokens], tell: Callable[[UsageIs | DeviceIs], None]
    ) -> None:
        """Tells as many as the budget allows, at most each lease once."""
        until = time.monotonic_ns() + _BUDGET_NS
        if not self._left:
            for number, device in devices.items():
                tell(_device(number, device))
            self._left = [(d, lease) for d in devices.values() for lease in d.seats]
        while self._left:
            device, lease = self._left.pop()
            usage = device.scheduler.usage(lease)
            if usage is not None:
                tell(
                    UsageIs(
                        lease=lease,
                        grants=usage.grants,
                        device_ns=usage.device_ns,
                        held_ns=usage.held_ns,
                        waiting_ns=usage.waiting_ns,
                        throttled_ns=usage.throttled_ns,
                        share_1s_ppm=usage.share_1s_ppm,
                        share_10s_ppm=usage.share_10s_ppm,
                    )
                )
            if time.monotonic_ns() >= until:
                break


def _device(number: int, device: DeviceTokens) -> DeviceIs:
    health = device.health
    return DeviceIs(
        device=number,
        switches=device.switching.switches,
        fenced=health.fenced,
        decision_ns=health.decisions.total_ns,
        decisions=tuple(health.decisions.counts),
        handover_ns=health.handovers.total_ns,
        handovers=tuple(health.handovers.counts),
    )
