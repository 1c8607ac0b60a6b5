"""What the token loop shall do, in order.  Times are on the caller's clock.

Nobody changes an action.  `Grant` and `Extend` are not frozen only because every decision makes one
of them, and a frozen object takes three times as long to make.
"""

from __future__ import annotations

from msgspec import Struct


class Grant(Struct):
    """The lease may release device work for slice_ns; with until_recall, until it is recalled.

    gen: names this holding; it rises with every Grant and stays over an Extend.
    """

    lease: str
    gen: int
    slice_ns: int
    until_recall: bool = False


class Extend(Struct):
    """The holder has just returned, and gets another slice under the same generation."""

    lease: str
    gen: int
    slice_ns: int
    until_recall: bool = False


class Lengthen(Struct, frozen=True):
    """The slice of the holder ends slice_ns later, because the holder would be picked again."""

    lease: str
    gen: int
    slice_ns: int


class Recall(Struct, frozen=True):
    """The holder must release nothing from at_ns on, and return when its work is done."""

    lease: str
    gen: int
    at_ns: int


class Prepare(Struct, frozen=True):
    """The lease is probably next.  It may get ready, but must not release work yet."""

    lease: str


class CheckAlive(Struct, frozen=True):
    """The holder is late.  Ask the supervisor and answer `Alive` or `Lost`; no answer is `Lost`."""

    lease: str
    gen: int


class Fence(Struct, frozen=True):
    """Make sure that nothing of this generation runs or will run on the device, then say `Fenced`.
    Nobody gets a Grant before that.
    """

    lease: str
    gen: int


class Audit(Struct, frozen=True):
    """A lease returned a token that it no longer held.  That time has been charged already."""

    lease: str
    gen: int
    busy_ns: int


class TimerAt(Struct, frozen=True):
    """Hand in `TimePassed` at this time.  A new TimerAt replaces the one before.

    `TokenScheduler.next_wake` says the same.  A TimePassed that comes too early is harmless.
    """

    at_ns: int


class Refused(Struct, frozen=True):
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
