"""How long the manager waits for nodes, daemons and clients, and how much it keeps."""

from __future__ import annotations

from msgspec import Struct

SECOND = 1_000_000_000
# No request is placed, and no lease resized, so often. A node that says so has made the number up,
# and the manager does not count on from it: the messages have 32 bits.
MOST_COUNTED = 1 << 30


class Limits(Struct, frozen=True):
    """Times in ns.

    silence_ns: a node whose agent is silent for so long is lost. grant_ns: a daemon that has not
        answered for so long is told to revoke, and the request is placed again. start_ns: so long
        after its start the manager denies no request for want of nodes, because they may not have
        come back yet. absent_ns: a request that only a lost node could take waits for so long.
    retry_ns: the shortest, longest_retry_ns: the longest time before a request is placed again that
        a daemon has refused. refusals: a request that does not wait is denied after so many.
    clear_ns: how long leases may take to make room for a request. grace_ns: how long before it a
        lease's end is announced to its tenant, if the tenant has no grace of its own.
        plans: for how many requests it is looked after one event who could give way.
    line: the most requests in line; line_per_tenant: of one tenant. tries: how many different
        requests of one tenant are tried after one event; the others follow after the next ones.
    reserve_ns: the longest reservation. reservations_per_tenant: the most of one tenant.
    """

    silence_ns: int = 15 * SECOND
    grant_ns: int = 10 * SECOND
    start_ns: int = 0
    absent_ns: int = 600 * SECOND
    retry_ns: int = SECOND // 4
    longest_retry_ns: int = 16 * SECOND
    refusals: int = 4
    line: int = 10_000
    line_per_tenant: int = 1_000
    clear_ns: int = 10 * SECOND
    grace_ns: int = 30 * SECOND
    plans: int = 16
    tries: int = 64
    reserve_ns: int = 86400 * SECOND
    reservations_per_tenant: int = 16
