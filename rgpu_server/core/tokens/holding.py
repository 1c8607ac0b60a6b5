"""A token that is out: who has it, since when, and what is expected of the holder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rgpu_server.core.tokens.params import TokenParams
    from rgpu_server.core.tokens.units import Unit


@dataclass(slots=True, eq=False)
class Holding:
    """granted_at: the Grant, from which the least hold counts; an Extend does not move it.
    since: the start of what has not been charged yet.  run_ns: what has been, in this slice.
    ends_at: when a finite slice is over, None in a run until recall.
    lent: nobody was owed when it was picked.  passed_on: its payer got what is lent, and gave it to
    this lease, which is behind its own request.  among_siblings: only leases of the same payer
    waited then.  contended_at: since when another one waits.
    recall_at: the earliest recall sent.  silent_at: when to do something about its silence.
    asked: its supervisor has been asked whether it lives.
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
    """How long the holder may be silent behind its end, in ns."""
    silence = params.silence_kernels * holding.unit.kernel_ns
    if silence < params.silence_ns:
        silence = params.silence_ns
    if silence > params.drain_limit_ns:
        silence = params.drain_limit_ns
    return silence
