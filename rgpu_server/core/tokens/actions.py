"""What the token loop shall do, in order.  Times are on the caller's clock.

Nobody changes an action.  `Grant` and `Extend` are not frozen only because every decision makes one
of them, and a frozen object takes three times as long to make.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Grant:
    """The lease may release device work for slice_ns; with until_recall, until it is recalled.

    gen: names this holding; it rises with every Grant and stays over an Extend.
    """

    lease: str
    gen: int
    slice_ns: int
    until_recall: bool = False


@dataclass(slots=True)
class Extend:
    """The holder has just returned, and gets another slice under the same generation."""

    lease: str
    gen: int
    slice_ns: int
    until_recall: bool = False


@dataclass(frozen=True, slots=True)
class Lengthen:
    """The slice of the holder ends slice_ns later, because the holder would be picked again."""

    lease: str
    gen: int
    slice_ns: int


@dataclass(frozen=True, slots=True)
class Recall:
    """The holder must release nothing from at_ns on, and return when its work is done."""

    lease: str
    gen: int
    at_ns: int


@dataclass(frozen=True, slots=True)
class Prepare:
    """The lease is probably next.  It may get ready, but must not release work yet."""

    lease: str


@dataclass(frozen=True, slots=True)
class CheckAlive:
    """The holder is late.  Ask the supervisor and answer `Alive` or `Lost`; no answer is `Lost`."""

    lease: str
    gen: int


@dataclass(frozen=True, slots=True)
class Fence:
    """Make sure that nothing of this generation runs or will run on the device, then say `Fenced`.
    Nobody gets a Grant before that.
    """

    lease: str
    gen: int


@dataclass(frozen=True, slots=True)
class Audit:
    """A lease returned a token that it no longer held.  That time has been charged already."""

    lease: str
    gen: int
    busy_ns: int


@dataclass(frozen=True, slots=True)
class TimerAt:
    """Hand in `TimePassed` at this time.  A new TimerAt replaces the one before.

    `TokenScheduler.next_wake` says the same.  A TimePassed that comes too early is harmless.
    """

    at_ns: int


@dataclass(frozen=True, slots=True)
class Refused:
    """A join or a resize would guarantee more than the device has, so nothing was changed.

    over_ppm: how much more.  fits_ppm: the largest request that fits.
    """

    lease: str
    request_ppm: int
    over_ppm: int
    fits_ppm: int


Action = (
    Grant | Extend | Lengthen | Recall | Prepare | CheckAlive | Fence | Audit | TimerAt | Refused
)
