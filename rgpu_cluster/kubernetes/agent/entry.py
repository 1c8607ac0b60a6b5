"""What is known of one claim and of its leases on this node. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field

from rgpu_cluster.kubernetes import names

if TYPE_CHECKING:
    from rgpu_cluster.kubernetes.agent.actions import Key
    from rgpu_cluster.kubernetes.agent.views import ClaimView
    from rgpu_common.v1 import agent_pb2

# A lease of this age is not one whose manager has yet to write the allocation.
SETTLED_SECONDS = 120.0


class Entry(Struct):
    """A claim, or leases whose claim is unknown.

    view: None: there is no such claim.
    held: its leases, as the server has reported them last.
    mine: those that the claim had when it was allocated here.
    ended: those that the server has ended and may still report.
    leased, refused, lost: the allocation that has its lease, the one that was denied it, and the
    one that had it.
    reported: the server has reported the lease since it granted it.
    attempt, granted: the last attempt of all, and the last of ours that was granted.
    grant_after: the server is asked for a lease no earlier.
    quiet_until: nothing is done before, because something has failed.
    busy: an action is under way.
    kept_at, kept_pods: when the lease was kept alive last, and for which pods.
    annotated: the pods that have been told their server.
    """

    view: ClaimView | None = None
    held: tuple[agent_pb2.HeldLease, ...] = ()
    mine: frozenset[str] = frozenset()
    leased: Key | None = None
    reported: bool = False
    refused: Key | None = None
    lost: Key | None = None
    sentence: str = ""
    refusals: int = 0
    grant_after: float = 0.0
    quiet_until: float = 0.0
    attempt: int = 0
    granted: int = 0
    ended: frozenset[str] = frozenset()
    busy: bool = False
    kept_at: float | None = None
    kept_pods: tuple[str, ...] = ()
    annotated: set[str] = field(default_factory=set)

    @property
    def here(self) -> bool:
        return self.view is not None and bool(self.view.shares)

    @property
    def is_leased(self) -> bool:
        return self.view is not None and self.here and self.leased == self.view.key

    def waits(self) -> bool:
        """Returns whether kube-scheduler waits for the claim's lease. It does not for one that the
        claim has had, because the pods of the claim are bound.
        """
        return self.view is not None and self.view.waits and not self.has_lost()

    def has_lost(self) -> bool:
        """Returns whether the allocation has had its lease and has it no more."""
        view = self.view
        if view is None or not view.shares or self.is_leased:
            return False
        # An earlier agent may have said it.
        return self.lost == view.key or view.told(names.LOST)

    def owns(self, lease: agent_pb2.HeldLease) -> bool:
        """Returns whether a lease is that of an allocation which has been written."""
        return lease.lease_id in self.mine or lease.attempt == self.granted

    def living(self) -> list[agent_pb2.HeldLease]:
        return [lease for lease in self.held if lease.lease_id not in self.ended]

    def pods(self) -> tuple[str, ...]:
        """Returns the UIDs of the pods that use the claim."""
        return tuple(pod.uid for pod in self.view.pods) if self.view is not None else ()

    def note(self) -> None:
        """Notes which leases are those of the allocation that the claim has now."""
        living = self.living()
        self.mine &= {lease.lease_id for lease in living}
        if self.view is not None and living and belongs(self.view, living):
            self.mine |= {lease.lease_id for lease in living}


def belongs(view: ClaimView, held: list[agent_pb2.HeldLease]) -> bool:
    """Returns whether leases are those of the allocation that a claim has.

    A manager has the lease before it allocates. A lease from before an allocation by kube-scheduler
    is that of an earlier one, unless an agent has told the claim of it.
    """
    same = sorted(lease.ordinal for lease in held) == sorted(share.ordinal for share in view.shares)
    return same and (not view.waits or view.told(names.LEASED))


def is_settled(lease: agent_pb2.HeldLease, wall: float) -> bool:
    return 0 < lease.since < wall - SETTLED_SECONDS
