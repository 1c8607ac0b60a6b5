"""One hold of the token: by which lease, since when, and until when."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from rgpu_server.core.tokens.params import TokenParams
    from rgpu_server.core.tokens.units import Unit


class Holding(Struct, eq=False):
    """The state of one hold, from its Grant until the token is back or fenced.

    granted_at: time of the Grant, from which the least hold counts.  An Extend does not change it.
    since: the start of the time that has not been charged yet.
    run_ns: the time of this slice that has been charged.
    ends_at: when a finite slice is over; None in a run until recall.
    lent: no lease was owed anything when the unit was picked.
    passed_on: the surplus was for another lease of the payer, and the payer passed it on to this
        lease, which was behind its own request.
    among_siblings: passed_on, and only leases of the same payer waited.
    contended_at: since when another lease waits; None while none does.
    recall_at: the earliest recall sent.
    silent_at: when the scheduler acts if the holder has sent nothing.
    asked: the supervisor has been asked whether the holder is alive.
    """

    unit: Unit
    gen: int
    granted_at: int
    since: int
    ends_at: int | None
    lent: bool
    contended_at: int | None
    passed_on: bool = False
    among_siblings: bool = False
    run_ns: int = 0
    recall_at: int | None = None
    silent_at: int | None = None
    asked: bool = False

    def matches(self, lease: str, gen: int) -> bool:
        return self.gen == gen and self.unit.lease == lease


def patience(params: TokenParams, holding: Holding) -> int:
    """How long the holder may be silent after the end of its slice, in ns."""
    silence = params.silence_kernels * holding.unit.kernel_ns
    if silence < params.silence_ns:
        silence = params.silence_ns
    if silence > params.drain_limit_ns:
        silence = params.drain_limit_ns
    return silence
