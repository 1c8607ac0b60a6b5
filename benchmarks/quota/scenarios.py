"""The matrix: who shares a device with whom, doing what, for how long.  Data."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.quota.tenants import Grant, Work, compute, copies, hold

MS = 1_000_000

SHORT = hold("short", 30_000)
MEDIUM = hold("medium", 2 * MS)
LONG = hold("long", 250 * MS)
MIXED = hold("mixed", 30_000, 2 * MS, 500_000, 20 * MS)
COMPUTE = compute("compute", 40_000)
COPIES = copies("copies", 4 << 20)


@dataclass(frozen=True, slots=True)
class Scenario:
    """tenants: what each has and does.

    seconds: the window, after a second to warm up.  lender: the first tenant sleeps and wakes.
    storm: all others are leases of one tenant, and only what they leave to the first is judged.
    """

    name: str
    tenants: tuple[tuple[Grant, Work], ...]
    seconds: float
    lender: bool = False
    storm: bool = False

    @property
    def lone(self) -> bool:
        """A cap is measured, not a share."""
        return len(self.tenants) == 1


def shares(work: Work, seconds: float, *parts: float) -> Scenario:
    """Tenants with the same work, and shares that add up to 1."""
    name = f"{'/'.join(f'{round(100 * part)}' for part in parts)} {work.name}"
    return Scenario(name, tuple((Grant(part), work) for part in parts), seconds)


def cap(work: Work, seconds: float, limit: float) -> Scenario:
    """A tenant alone, below its limit's cap."""
    return Scenario(f"cap {round(100 * limit)} {work.name}", ((Grant(0, limit), work),), seconds)


def lending(work: Work, seconds: float) -> Scenario:
    """Who owns 70 % sleeps and wakes; who owns 30 % may have everything."""
    return Scenario(f"lending {work.name}", ((Grant(0.7), work), (Grant(0.3), work)), seconds, True)


def storm(work: Work, seconds: float, leases: int) -> Scenario:
    """Who owns 90 % has work all the time; another tenant has many leases of 1 ppm with work."""
    small = Grant(1e-6, tenant="storm")
    others = [(small, work)] * leases
    name = f"storm of {leases} small leases, {work.name}"
    return Scenario(name, ((Grant(0.9), MEDIUM), *others), seconds, storm=True)


def _full() -> tuple[Scenario, ...]:
    made: list[Scenario] = []
    for work, seconds in ((SHORT, 10), (MEDIUM, 10), (LONG, 60)):
        made += [shares(work, seconds, *parts) for parts in SPLITS]
        made += [cap(work, seconds if seconds < 60 else 30, limit) for limit in (0.3, 0.1)]
        made.append(lending(work, 12 if work is not LONG else 24))
    made += [
        shares(MIXED, 10, 0.3, 0.7),
        Scenario("50/50 short, 20 ms", ((Grant(0.5), SHORT), (Grant(0.5), TWENTY)), 10),
        Scenario("30/70 medium, long", ((Grant(0.3), MEDIUM), (Grant(0.7), LONG)), 60),
        Scenario("70/30 copies, medium", ((Grant(0.7), COPIES), (Grant(0.3), MEDIUM)), 10),
        shares(COPIES, 10, 0.5, 0.5),
        shares(COMPUTE, 10, 0.3, 0.7),
        shares(COMPUTE, 10, 0.5, 0.5),
        cap(COMPUTE, 10, 0.3),
        cap(COPIES, 10, 0.3),
        storm(LONG, 10, 20),
    ]
    return tuple(made)


TWENTY = hold("20 ms", 20 * MS)
SPLITS = ((0.5, 0.5), (0.3, 0.7), (0.1, 0.9), (0.25, 0.25, 0.5))
FULL = _full()
QUICK = (
    shares(MEDIUM, 5, 0.3, 0.7),
    shares(SHORT, 3, 0.5, 0.5),
    cap(MEDIUM, 3, 0.3),
    lending(MEDIUM, 4),
)
