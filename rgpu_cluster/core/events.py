"""What happens to the manager. Every event has the time of the manager's clock beside it."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from msgspec import Struct, field

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rgpu_cluster.core.card import CardId, Holding
    from rgpu_cluster.core.node import Node
    from rgpu_cluster.core.paths import End, Figures
    from rgpu_cluster.core.quotas import TenantQuota
    from rgpu_cluster.core.request import Request


class NodeReported(Struct, frozen=True):
    """A node's agent sent its cards and all leases of its daemon.

    The node's generation grows with every change of the daemon's leases, so a report tells of all
    leases that were granted up to it.
    """

    node: Node
    held: Mapping[CardId, tuple[Holding, ...]] = field(default_factory=dict)


class NodeBeat(Struct, frozen=True):
    """A node's agent is alive, and nothing has changed since this generation."""

    name: str
    generation: int


class NodeCut(Struct, frozen=True):
    """The connection to a node's agent has ended. It may come back within a moment."""

    name: str


class Asked(Struct, frozen=True):
    """A client asks for cards. The same id again is the same request.

    wait: it waits in line if there is no room. waited_ns: how long it has waited already, for
        a manager before this one.
    gang, gang_size: requests of one gang are placed together, once all of them are here.
    others: what the client takes if there is no room for `request`, the best first. They have its
        id, tenant and priority.
    """

    request: Request
    wait: bool = False
    waited_ns: int = 0
    gang: str = ""
    gang_size: int = 1
    others: tuple[Request, ...] = ()


class QuotasSet(Struct, frozen=True):
    """The operator has changed the quotas; these are all of them, by tenant."""

    of_tenant: Mapping[str, TenantQuota]


class Withdrawn(Struct, frozen=True):
    """A client gave up, or its program has ended."""

    id: str


class Left(Struct, frozen=True):
    """A client that knows its place has gone: its program runs, or will never come."""

    id: str


class Granted(Struct, frozen=True):
    """A daemon granted the lease. generation: that of its node with this lease."""

    id: str
    node: str
    attempt: int
    generation: int


class Ground(Enum):
    """Why a daemon refuses. ROOM: it has less room than the pool believes. TENANT: the tenant has
    what it may have there, which can pass. FORBIDDEN: it never allows this request.
    """

    ROOM = "room"
    TENANT = "tenant"
    FORBIDDEN = "forbidden"


class GrantFailed(Struct, frozen=True):
    """A daemon refused the lease, or did not answer.

    certain: the daemon said no, so it has no such lease; otherwise it may have one.
    """

    id: str
    node: str
    attempt: int
    why: str
    certain: bool
    ground: Ground = Ground.ROOM


class Revoked(Struct, frozen=True):
    """A daemon says that it has no lease of this id, and will grant none for this attempt or an
    earlier one.
    """

    id: str
    node: str
    attempt: int


class Resized(Struct, frozen=True):
    """A daemon says how large a lease is after an order. there: it has the lease.

    generation: that of its node with this size.
    """

    id: str
    card: CardId
    attempt: int
    number: int
    share_ppm: int
    memory_bytes: int
    least_bytes: int
    generation: int
    there: bool = True


class PathMeasured(Struct, frozen=True):
    """An agent measured a path of one class."""

    client: End
    server: End
    figures: Figures


class Tick(Struct, frozen=True):
    """Time has passed."""


Event = (
    NodeReported
    | NodeBeat
    | NodeCut
    | Asked
    | Withdrawn
    | Left
    | Granted
    | GrantFailed
    | Revoked
    | Resized
    | PathMeasured
    | QuotasSet
    | Tick
)
