"""Short ways to set a run up."""

from __future__ import annotations

from collections.abc import Sequence

from rgpu_server.core.model import PPM
from rgpu_server.core.tokens.params import TokenParams
from rgpu_server.core.tokens.share import Share
from sim.device import MS, SECOND, US, Costs, Device
from sim.loads import Duration, Load, Saturated
from sim.worker import Worker

__all__ = ["MS", "SECOND", "US", "fraction", "saturated", "solo"]


def fraction(request: float, limit: float = 1.0, weight: int = 1, priority: int = 0) -> Share:
    return Share(round(request * PPM), round(limit * PPM), weight, priority)


def saturated(
    shares: Sequence[float | Share],
    kernels: Sequence[Duration],
    seconds: float,
    params: TokenParams | None = None,
    costs: Costs | None = None,
) -> list[Worker]:
    """The workers after a run of tenants that never stop."""
    device = Device(params, costs)
    workers = []
    for number, (share, kernel) in enumerate(zip(shares, kernels, strict=True)):
        whole = share if isinstance(share, Share) else fraction(share)
        workers.append(device.add(f"lease-{number}", whole, Saturated(kernel)))
    device.run(int(seconds * SECOND))
    return workers


def solo(share: Share, load: Load, seconds: float) -> Worker:
    """The worker after a run alone on the device."""
    device = Device()
    worker = device.add("alone", share, load)
    device.run(int(seconds * SECOND))
    return worker
