"""What has happened on a device.  All durations are in ns.  A lease is scheduled as one unit,
whatever number of processes and streams it has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from rgpu_server.core.tokens.share import Share


class Joined(Struct, frozen=True):
    """A lease came to the device.  It does not want the token until `Woke`.

    payer: the tenant that owes the debts of the lease; empty: the lease pays for itself.
    """

    lease: str
    share: Share
    payer: str = ""


class Resized(Struct, frozen=True):
    """The lease has another share from now on."""

    lease: str
    share: Share


class Left(Struct, frozen=True):
    """The lease is gone.  If it holds the token, it is fenced first."""

    lease: str


class Paused(Struct, frozen=True):
    """The operator stops the lease's device work; a holder is recalled."""

    lease: str


class Resumed(Struct, frozen=True):
    """The operator lets a paused lease go on."""

    lease: str


class Woke(Struct, frozen=True):
    """The lease has device work and no token.  A second `Woke` changes nothing."""

    lease: str


class Slept(Struct, frozen=True):
    """A lease that waits for the token has no work any more.  A holder sends `Returned` instead."""

    lease: str


class NearEnd(Struct, frozen=True):
    """The holder releases no more work in this slice; what it released still runs.

    may_lengthen: the caller can make the slice longer now, and has just reported the time held so
    far (`Progressed`).
    """

    lease: str
    gen: int
    may_lengthen: bool = False


class Returned(Struct, frozen=True):
    """The token is back and everything released under it has completed.

    held_ns: from the first release, or from the end of the last report, until the work was done.
        In a run until recall the scheduler counts the whole time instead.
    busy_ns: device time within held_ns.
    empty: the lease has no work left; otherwise the lease wants to go on.
    kernel_ns: the holder's own estimate of one of its kernels, 0 if it has none.
    """

    lease: str
    gen: int
    held_ns: int
    busy_ns: int
    empty: bool
    kernel_ns: int = 0


class Progressed(Struct, frozen=True):
    """The holder's time since its last report; the holder goes on.  So the usage of a long run
    stays up to date, and if the run is fenced later, its device time up to here is measured.
    """

    lease: str
    gen: int
    held_ns: int
    busy_ns: int


class Alive(Struct, frozen=True):
    """Answers `CheckAlive`: the holder lives, its kernel still runs."""

    lease: str
    gen: int


class Lost(Struct, frozen=True):
    """The holder does not react any more.  Answers `CheckAlive`, or comes without a question."""

    lease: str
    gen: int


class Died(Struct, frozen=True):
    """A worker of the lease died while it held the token, or all of its workers did.

    The lease counts as asleep afterwards.  If another worker of the lease has work, send `Woke`.
    """

    lease: str


class Fenced(Struct, frozen=True):
    """Answers `Fence`: nothing of that generation runs on the device or ever will.

    busy_ns: device time since the last report, as the lease page shows it.  None: unknown, so the
    whole time counts as device time.
    """

    lease: str
    gen: int
    busy_ns: int | None = None


class TimePassed(Struct, frozen=True):
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
