"""The constants of the token scheduler, each with its reason."""

from __future__ import annotations

from msgspec import Struct

MS = 1_000_000
SECOND = 1_000_000_000


class TokenParams(Struct, frozen=True):
    """Times in ns of wall clock or of device time, shares in ppm.

    slice_base_ns: a slice without a measure, until hand-overs have been measured.  A hand-over of
        100 us costs 1 % of it when it is not overlapped.
    slice_min_ns, slice_max_ns: below, hand-overs cost too much; above, others wait too long.
        Without the upper clamp one tenant with rare long kernels reached slices of a second.
    crowd_ns: with n leases that want the device a slice is at most crowd_ns / n (never below
        slice_min_ns): the relative share error over 10 s is L / (s * T), so 200 leases need 5 ms.
    sleep_credit_ns: a lease with the request r that wakes is owed at most r times this.  A smaller
        value delays bursts; with a larger one, a waking lease stops the borrowers for longer.  The
        credit is at least twice the longest recent hold, so that one long kernel of another lease
        does not use it up.
    sleep_credit_max_ns: limits the credit that one very long kernel gives to every sleeping lease.
    bucket_ns: the burst of a capped lease after a pause.  Between 5 and 100 ms the steady share is
        the same.
    thin_ns: a capped lease with less credit waits; otherwise it would get one short kernel at a
        time.
    resume_ns: the credit at which a throttled lease runs again.  It is larger where hand-overs take
        long (`resume_credit`).
    hold_ns: how long a holder runs at least, from its Grant, before a waker cuts it.  It bounds
        what a frequent waker can make the device lose in hand-overs.
    cut_margin_ns: a waking lease cuts a holder that is itself owed only if it is further behind by
        this.
    floor_ppm: share of the whole best-effort class, so that it moves even when the requests fill
        the device.
    silence_ns, silence_kernels: the supervisor is asked about a holder that is late by the larger
        of the two; the second is in kernels of the holder.
    drain_limit_ns: the kernel of a recalled holder may run on for this long while other leases
        wait; then the holder is fenced.
    jump_ns: a clock that passes a due timer by more than this has jumped; the rest is no time.
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
    """The slice for a measured hand-over: 100 times as long, so that hand-overs cost 1 %."""
    return min(max(100 * hand_over_ns, params.slice_min_ns), params.slice_max_ns)


def resume_credit(params: TokenParams, base_ns: int) -> int:
    """The credit at which a throttled lease runs again.

    Each turn of the lease costs about one hand-over, as each slice does.  So the credit is a fixed
    part of the base slice (base_ns: `base_slice`).  It is less than half of the bucket, so that the
    bucket does not overflow before the lease runs.
    """
    return max(params.resume_ns, base_ns * 2 // 5)
