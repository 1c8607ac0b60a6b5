"""Compares the holder with the leases that wait.  The answers change nothing."""

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


def hold_against(params: TokenParams, holding: Holding, unit: Unit, clocks: Clocks) -> int | None:
    """How long the holder may stay, counted from its Grant, now that a unit begins to wait.  None:
    to the end of its slice.
    """
    holder, elapsed = holding.unit, clocks.now - holding.since
    claim = unit.tag if unit.payer is holder.payer else unit.payer.claim(unit)
    owed = claim <= clocks.device_ns + elapsed
    if holding.ends_at is None:
        # A run until recall always ends: soon for a unit that is owed, else after one slice.
        return params.hold_ns if owed else holder.slice_ns
    if not owed:
        first = holding.lent and unit.share.priority > holder.share.priority
        return params.hold_ns if first else None
    behind = _place_after(holder, elapsed, unit.payer) - _place(unit, holder.payer)
    return params.hold_ns if holding.lent or behind > params.cut_margin_ns else None


def _place(unit: Unit, other: Payer) -> int:
    """The place of a unit beside a lease of the payer `other`: by its own tag if both leases have
    the same payer, else by its payer.
    """
    return unit.tag if unit.payer is other else unit.payer.place(unit)


def _place_after(holder: Unit, used_ns: int, other: Payer) -> int:
    """As `_place`, for a holder that has used used_ns more of its request."""
    rate = holder.rate_ppb if holder.payer is other else holder.payer.rate_ppb
    return _place(holder, other) + used_ns * PPB // rate


def _claim_after(holder: Unit, used_ns: int, other: Payer | None = None) -> int:
    """The device clock from which a holder that has used used_ns more of its request may be served
    from its request.  Beside a lease of the same payer, the debt of the payer does not matter.
    """
    payer = holder.payer
    own = holder.tag + used_ns * PPB // holder.rate_ppb
    if payer is other:
        return own
    return max(own, payer.claim(holder) + used_ns * PPB // payer.rate_ppb)


def may_go_on(params: TokenParams, holding: Holding, clocks: Clocks) -> bool:
    """True if the holder's slice may be made longer.

    That is decided only shortly before the end of the slice, when it is known which leases wait.
    Lent time and owed time are charged differently, so the longer slice must be all of one kind.
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
    """The unit that would be picked if the holder returned at the end of its slice; None if that is
    the holder itself, or no unit waits.  The work in flight will use up the slice.
    """
    payer = queues.first()
    if payer is None:
        return None
    unit: Unit = payer.head
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
    unit = queues.surplus.first() or unit
    lent_tag = holder.lent_tag
    if holding.lent:
        lent_tag += elapsed * PPM // holder.share.weight
    mine = (not holder.elastic, -holder.share.priority, lent_tag)
    theirs = (not unit.elastic, -unit.share.priority, unit.lent_tag)
    return None if wants and mine < theirs else unit
