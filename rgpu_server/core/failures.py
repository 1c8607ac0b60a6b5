"""How many failed attempts are answered, and noted: floods are not worth it."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass


@dataclass(slots=True)
class _Bucket:
    left: float
    at: float


class Failures:
    """A bucket of failures per peer and one for all.  Whoever succeeds is not asked for: else a
    neighbour behind the same address could lock others out.

    burst: what a peer may fail with at once; per_minute: what it may fail with later on.
    peers: addresses that are remembered; the one that failed longest ago gives way.
    """

    def __init__(self, burst: int = 10, per_minute: float = 10.0, peers: int = 1024) -> None:
        self._burst = burst
        self._per_second = per_minute / 60
        self._peers = peers
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()
        # Many addresses may be one attacker's.
        self._all: _Bucket | None = None
        self._factor = 10

    def __len__(self) -> int:
        return len(self._buckets)

    def answered(self, peer: str, now: float) -> bool:
        """Notes a failure; returns False if it is one too many to be answered."""
        if self._all is None:
            self._all = _Bucket(self._burst * self._factor, now)
        bucket = self._buckets.pop(peer, None) or _Bucket(self._burst, now)
        self._buckets[peer] = bucket
        if len(self._buckets) > self._peers:
            self._buckets.popitem(last=False)
        # Both are taken from, or neither: who is silenced uses up nothing of the others'.
        self._fill(bucket, self._burst, self._per_second, now)
        self._fill(self._all, self._burst * self._factor, self._per_second * self._factor, now)
        if bucket.left < 1 or self._all.left < 1:
            return False
        bucket.left -= 1
        self._all.left -= 1
        return True

    @staticmethod
    def _fill(bucket: _Bucket, most: float, per_second: float, now: float) -> None:
        bucket.left = min(bucket.left + (now - bucket.at) * per_second, most)
        bucket.at = now


def network_of(peer: str) -> str:
    """Returns what counts as one peer: an IPv4 address, or the /64 of an IPv6 address."""
    if ":" not in peer:
        return peer
    head, gap, tail = peer.partition("%")[0].partition("::")
    groups = head.split(":") if head else []
    if gap:
        rest = tail.split(":") if tail else []
        groups += ["0"] * (8 - len(groups) - len(rest)) + rest
    return ":".join(group.lstrip("0") or "0" for group in groups[:4]) + "::/64"
