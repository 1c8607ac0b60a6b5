"""The constants of the token scheduler, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass

MS = 1_000_000
SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class TokenParams:
    """Times in ns of wall clock or of device time, shares in ppm.

    slice_base_ns: a slice without a measure, until hand-overs have been measured.  A hand-over of
        100 us costs 1 % of it when it is not overlapped.
    slice_min_ns, slice_max_ns: below, hand-overs cost too much; above, others wait too long.
        Without the upper clamp one tenant with rare long kernels reached slices of a second.
    crowd_ns: with n leases that want the device a slice is at most crowd_ns / n (never below
        slice_min_ns): the relative share error over 10 s is L / (s * T), so 200 leases need 5 ms.
    sleep_credit_ns: device time that a sleeper is owed at most when it wakes, times its request.
        Less delays bursts, more lets a waker stop the borrowers for (1 - r) of it.  At least twice
        the longest recent hold, so that one long kernel of another does not eat the credit.
    sleep_credit_max_ns: ends what one very long kernel could lend to every sleeper.
    bucket_ns: the burst of a capped lease after a pause.  5 to 100 ms make no steady difference.
    thin_ns: a capped lease with less credit waits; else it would get one short kernel at a time.
    resume_ns: credit at which it runs again, so that it does not wait for every kernel.  Where
        hand-overs are measured to be dear it is more (`resume_credit`).
    hold_ns: how long a holder runs at least, from its Grant, before a waker cuts it.  It bounds
        what a frequent waker can make the device lose in hand-overs.
    cut_margin_ns: by how much a waker must be further behind than a holder that is itself owed.
    floor_ppm: share of the whole best-effort class, so that it moves even when the requests fill
        the device.
    silence_ns, silence_kernels: a holder that does not come back for the larger of the two (the
        second in its own kernels) is asked for.
    drain_limit_ns: a recalled holder's kernel may run on for so long while others wait, then it is
        fenced.
    jump_ns: a clock that passes a due timer by more than this has jumped; the rest is not time.
    remembered_debts: how many payers whose leases left in debt are remembered until it is over.
    """

    slice_base_ns: int = 10 * MS
    slice_min_ns: int = 5 * MS
    slice_max_ns: int = 25 * MS
    crowd_ns: int = 1 * SECOND
    sleep_credit_ns: int = 100 * MS
    sleep_credit_max_ns: int = 1 * SECOND
    bucket_ns: int = 25 * MS
    thin_ns: int = 1 * MS
    resume_ns: int = 4 * MS
    hold_ns: int = 5 * MS
    cut_margin_ns: int = 1 * MS
    floor_ppm: int = 5_000
    silence_ns: int = 1 * SECOND
    silence_kernels: int = 4
    drain_limit_ns: int = 60 * SECOND
    jump_ns: int = 10 * SECOND
    remembered_debts: int = 1024


def base_slice(params: TokenParams, hand_over_ns: int) -> int:
    """The slice for a measured hand-over: one of 100 hand-overs loses 1 % to them."""
    return min(max(100 * hand_over_ns, params.slice_min_ns), params.slice_max_ns)


def resume_credit(params: TokenParams, base_ns: int) -> int:
    """The credit at which a capped lease runs again: each of its turns loses about a hand-over, as
    a slice does (base_ns: `base_slice`), so it is the same part of one.  Less than half of a
    bucket, so that nothing is clipped while it is woken.
    """
    return max(params.resume_ns, base_ns * 2 // 5)
