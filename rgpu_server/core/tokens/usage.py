"""What a lease used and waited for, for metrics and `rgpu top`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from rgpu_server.core.model import PPM
from rgpu_server.core.tokens.units import PPB, State
from rgpu_server.core.tokens.windows import SECOND

if TYPE_CHECKING:
    from rgpu_server.core.tokens.units import Unit


class Usage(Struct, frozen=True):
    """Totals are ns since the lease joined, up to the last event or report.

    device_ns: the device worked for the lease.  held_ns: the lease had the token.
    waiting_ns: the lease wanted the token, and another lease had it.
    throttled_ns: the lease wanted the token, and its cap forbade it.
    owed_ns: device time that the lease is owed from its request; negative: a debt.
    share_1s_ppm, share_10s_ppm: device time over the last one and ten seconds.
    """

    lease: str
    request_ppm: int
    limit_ppm: int
    state: str
    grants: int
    device_ns: int
    held_ns: int
    waiting_ns: int
    throttled_ns: int
    owed_ns: int
    share_1s_ppm: int
    share_10s_ppm: int


def usage_of(unit: Unit, now: int, device_ns: int, sleep_credit_ns: int) -> Usage:
    """The totals of a unit, with the time in its present state counted up to now."""
    lasting = now - unit.since
    behind = device_ns - unit.payer.claim(unit)
    if unit.state in (State.OFF, State.THROTTLED):
        behind = min(behind, sleep_credit_ns)
    return Usage(
        lease=unit.lease,
        request_ppm=unit.share.request_ppm,
        limit_ppm=unit.share.limit_ppm,
        state=unit.state.value,
        grants=unit.grants,
        device_ns=unit.device_ns,
        held_ns=unit.held_ns,
        waiting_ns=unit.waiting_ns + (lasting if unit.state is State.READY else 0),
        throttled_ns=unit.throttled_ns + (lasting if unit.state is State.THROTTLED else 0),
        owed_ns=behind * unit.rate_ppb // PPB,
        share_1s_ppm=unit.window.busy(now, SECOND) * PPM // SECOND,
        share_10s_ppm=unit.window.busy(now, 10 * SECOND) * PPM // (10 * SECOND),
    )
