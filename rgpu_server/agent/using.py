"""Sums up what the programs of a node use of its cards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from rgpu_common.units import PPM
from rgpu_common.v1 import agent_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rgpu_server.core.lease import Lease
    from rgpu_server.tokens.protocol import UsageIs


class Meters(Protocol):
    """What is known of each lease (`LeasePages`)."""

    def charged(self, lease_id: str) -> int: ...

    def time_used(self, lease_id: str) -> UsageIs: ...


def card_uses(leases: Iterable[Lease], meters: Meters) -> list[agent_pb2.CardUse]:
    """Returns one row for each card that has a lease in use, by its number.

    Only a lease that uses more than its guaranteed share uses lent time.
    """
    rows: dict[int, agent_pb2.CardUse] = {}
    for lease in leases:
        used, held = meters.time_used(lease.id).share_1s_ppm, meters.charged(lease.id)
        if not (used or held):
            continue
        row = rows.setdefault(lease.device, agent_pb2.CardUse(ordinal=lease.device))
        row.used_ppm = min(row.used_ppm + used, PPM)
        row.lent_ppm = min(row.lent_ppm + max(used - lease.quota.share_request_ppm, 0), PPM)
        row.used_bytes += held
    return [rows[ordinal] for ordinal in sorted(rows)]
