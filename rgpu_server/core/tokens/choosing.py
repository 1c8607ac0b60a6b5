"""Questions about a holder and those who wait for it; the answers change nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_server.core.model import PPM
from rgpu_server.core.tokens.units import PPB

if TYPE_CHECKING:
    from rgpu_server.core.tokens.clock import Clocks
    from rgpu_server.core.tokens.debt import Payer
    from rgpu_server.core.tokens.holding import Holding
    from rgpu_server.core.tokens.params import TokenParams
    from rgpu_server.core.tokens.queues import ReadyQueues
    from rgpu_server.core.tokens.units import Unit


def slice_for(params: TokenParams, unit: Unit, waiting: int, now: int) -> int:
    """The next slice of a unit: its own, smaller in a crowd, never more than its cap has left at
    the end of it, with what is earned until then; one that ended before would need another.
    """
    crowd = max(params.slice_min_ns, params.crowd_ns // (waiting + 1))
    slice_ns = min(unit.slice_ns, crowd)
    if unit.capped:
        unit.refill(now, params.bucket_ns)
        left = unit.credit // (PPM - unit.share.limit_ppm)
        slice_ns = min(slice_ns, max(left, 1))
    return slice_ns


def hold_against(params: TokenParams, holding: Holding, unit: Unit, clocks: Clocks) -> int | None:
    """How long, from its Grant, the holder may stay now that a unit began to wait; None is to the
    end of its slice.
    """
    holder, elapsed = holding.unit, clocks.now - holding.since
    claim = unit.tag if unit.payer is holder.payer else unit.payer.claim(unit)
    owed = claim <= clocks.device_ns + elapsed
    if holding.ends_at is None:
        # An endless run always ends: at once for a claim, else after one slice.
        return params.hold_ns if owed else holder.slice_ns
    if not owed:
        first = holding.lent and unit.share.priority > holder.share.priority
        return params.hold_ns if first else None
    behind = _place_after(holder, elapsed, unit.payer) - _place(unit, holder.payer)
    return params.hold_ns if holding.lent or behind > params.cut_margin_ns else None


def _place(unit: Unit, other: Payer) -> int:
    """Where a unit stands: its own tag among the leases of its payer, else its payer's place."""
    return unit.tag if unit.payer is other else unit.payer.place(unit)


def _place_after(holder: Unit, used_ns: int, other: Payer) -> int:
    """The same for a holder that has used used_ns more of its request."""
    rate = holder.rate_ppb if holder.payer is other else holder.payer.rate_ppb
    return _place(holder, other) + used_ns * PPB // rate


def _claim_after(holder: Unit, used_ns: int, other: Payer | None = None) -> int:
    """The device clock from which a holder may be served from its request when it has used used_ns
    more of it; among leases of its own payer the payer's debt does not matter.
    """
    payer = holder.payer
    own = holder.tag + used_ns * PPB // holder.rate_ppb
    if payer is other:
        return own
    return max(own, payer.claim(holder) + used_ns * PPB // payer.rate_ppb)


def may_go_on(params: TokenParams, holding: Holding, clocks: Clocks) -> bool:
    """True if the holder's slice may be made longer.  Only shortly before its end, else that is
    decided too early; and what is lent and what is owed is charged apart, so a slice is one of the
    two.
    """
    unit, ends_at = holding.unit, holding.ends_at
    if ends_at is None or ends_at - clocks.now > 2 * params.slice_min_ns:
        return False
    if unit.capped or unit.paused or holding.recall_at is not None:
        return False
    left = ends_at - clocks.now
    end, own = clocks.device_ns + left, unit.tag + left * PPB // unit.rate_ppb
    if not holding.lent:
        return max(own, _claim_after(unit, left)) <= end
    return unit.payer.claim(unit) > end and (own <= end) == holding.passed_on


def successor(queues: ReadyQueues, holding: Holding, clocks: Clocks) -> Unit | None:
    """Who would be picked if the holder returned at the end of its slice, which what is in flight
    will use up; None if nobody else.
    """
    payer = queues.first()
    if payer is None:
        return None
    unit = payer.waiting.first()
    now, holder = clocks.now, holding.unit
    elapsed = max(now, holding.recall_at or holding.ends_at or now) - holding.since
    device = clocks.device_ns + elapsed
    spent = holder.capped and holder.credit <= elapsed * PPM
    wants = not (holder.paused or spent or holding.ends_at is None)
    used = 0 if holding.lent and not holding.passed_on else elapsed
    claim = unit.tag if payer is holder.payer else payer.claim(unit)
    if min(claim, _claim_after(holder, used, payer) if wants else claim) <= device:
        first = _place_after(holder, used, payer) < _place(unit, holder.payer)
        return None if wants and first else unit
    unit = queues.lent() or unit
    lent_tag = holder.lent_tag
    if holding.lent:
        lent_tag += elapsed * PPM // holder.share.weight
    mine = (not holder.elastic, -holder.share.priority, lent_tag)
    theirs = (not unit.elastic, -unit.share.priority, unit.lent_tag)
    return None if wants and mine < theirs else unit
