"""Limits how many failed attempts the server answers and logs, so that a flood of them costs
little.
"""

from __future__ import annotations

from collections import OrderedDict

from msgspec import Struct


class _Bucket(Struct):
    left: float
    at: float


class Failures:
    """A token bucket of failures for each peer, and one for all peers.

    Only failures are counted and limited. Otherwise a neighbour behind the same address could lock
    others out.

    burst: how many failures a peer may have at once. per_minute: how many it may have later on.
    peers: how many addresses are remembered; the one that failed longest ago is forgotten first.
    """

    def __init__(self, burst: int = 10, per_minute: float = 10.0, peers: int = 1024) -> None:
        self._burst = burst
        self._per_second = per_minute / 60
        self._peers = peers
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()
        # One attacker may have many addresses.
        self._all: _Bucket | None = None
        self._factor = 10

    def __len__(self) -> int:
        return len(self._buckets)

    def answered(self, peer: str, now: float) -> bool:
        """Notes a failure; returns False if the peer, or all peers, have failed too often to be
        answered.
        """
        if self._all is None:
            self._all = _Bucket(self._burst * self._factor, now)
        bucket = self._buckets.pop(peer, None) or _Bucket(self._burst, now)
        self._buckets[peer] = bucket
        if len(self._buckets) > self._peers:
            self._buckets.popitem(last=False)
        # Take from both buckets or from neither, so that a peer over its limit uses up none of the
        # others'.
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
    """Returns the network that counts as one peer: an IPv4 address, or the /64 of an IPv6
    address.
    """
    if ":" not in peer:
        return peer
    head, gap, tail = peer.partition("%")[0].partition("::")
    groups = head.split(":") if head else []
    if gap:
        rest = tail.split(":") if tail else []
        groups += ["0"] * (8 - len(groups) - len(rest)) + rest
    return ":".join(group.lstrip("0") or "0" for group in groups[:4]) + "::/64"
