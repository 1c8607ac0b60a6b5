"""A tenant with many small leases: together they get what one lease of their sum would."""

from __future__ import annotations

import pytest

from rgpu_server.core.model import PPM
from rgpu_server.core.tokens.share import Share
from sim.device import Device
from sim.loads import Load, Once, Saturated
from sim.measures import longest_gap, used
from sim.runs import MS, SECOND, fraction
from sim.worker import Worker


def storm(kernel: int, end: int, leases: int, ppm: int, load: type[Load]) -> Worker:
    """A tenant with 90 % beside another tenant's small leases; returns the first one's worker."""
    device = Device()
    victim = device.add("victim", fraction(0.9), Saturated(max(2 * MS, kernel // 200)), payer="v")
    for n in range(leases):
        device.add(f"small-{n}", Share(ppm, PPM), load(kernel), at=1 * SECOND, payer="many")
    device.run(end)
    return victim


@pytest.mark.parametrize(
    ("load", "leases", "ppm", "kernel"),
    [
        (Once, 250, 1, 1 * SECOND),
        (Saturated, 250, 1, 60 * MS),
        (Saturated, 250, 1, 1 * SECOND),
        (Saturated, 250, 1, 60 * SECOND),
        (Saturated, 250, 400, 1 * SECOND),
        (Saturated, 10, 10_000, 60 * MS),
        (Saturated, 10, 10_000, 1 * SECOND),
        (Saturated, 10, 10_000, 60 * SECOND),
    ],
)
def test_small_leases_of_one_tenant_never_get_ahead_of_another_tenants_request(
    load: type[Load], leases: int, ppm: int, kernel: int
) -> None:
    end = SECOND + 50 * kernel
    victim = storm(kernel, end, leases, ppm, load)
    assert longest_gap(victim, SECOND) <= kernel + MS
    # The kernel that runs at the end of the window has not been made up for.
    assert used(victim, SECOND, end) >= 0.895 * (end - SECOND) - kernel
