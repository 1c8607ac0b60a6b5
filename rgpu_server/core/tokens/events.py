"""What happens to a device's token, in the past tense.  All durations are ns; a lease is one
scheduled unit, whatever number of processes and streams it has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rgpu_server.core.tokens.share import Share


@dataclass(frozen=True, slots=True)
class Joined:
    """A lease came to the device; it wants nothing until it wakes.

    payer: whose debts it takes over, and who takes over its; empty: only it does.
    """

    lease: str
    share: Share
    payer: str = ""


@dataclass(frozen=True, slots=True)
class Resized:
    lease: str
    share: Share


@dataclass(frozen=True, slots=True)
class Left:
    """The lease is gone.  If it holds the token, it is fenced first."""

    lease: str


@dataclass(frozen=True, slots=True)
class Paused:
    """The operator stops the lease's device work; a holder is recalled."""

    lease: str


@dataclass(frozen=True, slots=True)
class Resumed:
    lease: str


@dataclass(frozen=True, slots=True)
class Woke:
    """The lease has device work and no token.  Saying it twice is harmless."""

    lease: str


@dataclass(frozen=True, slots=True)
class Slept:
    """A lease that waits for the token has no work any more.  A holder says it by `Returned`."""

    lease: str


@dataclass(frozen=True, slots=True)
class NearEnd:
    """The holder releases no more work in this slice; what it released still runs.

    may_lengthen: its slice can be made longer meanwhile, and what it held up to now has just been
    reported (`Progressed`).
    """

    lease: str
    gen: int
    may_lengthen: bool = False


@dataclass(frozen=True, slots=True)
class Returned:
    """The token is back and everything released under it has completed.

    held_ns: from the first release, or from where the last report ended, to drained.  In a run
        until recall all of the time counts, whatever it says.
    busy_ns: device time within that, at most held_ns.
    empty: the lease has no work left; else it wants to go on.
    kernel_ns: the holder's own estimate of one of its kernels, 0 if it has none.
    """

    lease: str
    gen: int
    held_ns: int
    busy_ns: int
    empty: bool
    kernel_ns: int = 0


@dataclass(frozen=True, slots=True)
class Progressed:
    """The holder's time since its last report, while it goes on: reports of a long run move, and
    a run that is fenced later is charged by measure up to here.
    """

    lease: str
    gen: int
    held_ns: int
    busy_ns: int


@dataclass(frozen=True, slots=True)
class Alive:
    """Answers `CheckAlive`: the holder lives, its kernel still runs."""

    lease: str
    gen: int


@dataclass(frozen=True, slots=True)
class Lost:
    """Answers `CheckAlive`, or comes by itself: the holder does not react any more."""

    lease: str
    gen: int


@dataclass(frozen=True, slots=True)
class Died:
    """A worker of the lease died while it held the token, or all of its workers did.

    The lease counts as asleep afterwards; if others of its workers have work, say `Woke` again.
    """

    lease: str


@dataclass(frozen=True, slots=True)
class Fenced:
    """Answers `Fence`: nothing of that generation runs on the device or ever will.

    busy_ns: device time since the last report as the lease page shows it; None if it is unknown,
    then the whole time counts.
    """

    lease: str
    gen: int
    busy_ns: int | None = None


@dataclass(frozen=True, slots=True)
class TimePassed:
    """The time that `TokenScheduler.next_wake` named has come."""


Event = (
    Joined
    | Resized
    | Left
    | Paused
    | Resumed
    | Woke
    | Slept
    | NearEnd
    | Returned
    | Progressed
    | Alive
    | Lost
    | Died
    | Fenced
    | TimePassed
)
