"""What the manager's shell does about an event."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from rgpu_cluster.core.card import CardId
    from rgpu_cluster.core.decision import Decision, Refusal
    from rgpu_cluster.core.request import Request


class Grant(Struct, frozen=True):
    """Ask the daemon of a node for the lease. The same id and attempt again is the same lease.

    first_place: the place of the first of these cards among all cards of the request.
    """

    request: Request
    node: str
    cards: tuple[CardId, ...]
    attempt: int
    first_place: int = 0


class Revoke(Struct, frozen=True):
    """Tell the daemon of a node that the lease ends.

    The daemon refuses later grants of this attempt and of earlier ones, so a grant that is still
    under way comes too late. It may grant a later attempt.
    """

    id: str
    node: str
    attempt: int
    why: str = ""


class Resize(Struct, frozen=True):
    """Tell the daemon of a node how large a lease is now. It never goes below what programs use.

    number: later than that of every earlier change of this lease.
    """

    id: str
    card: CardId
    attempt: int
    number: int
    share_ppm: int
    memory_bytes: int


class Announced(Struct, frozen=True):
    """Note that a lease ends soon, because a tenant is owed what it borrowed; and when it ended.

    seconds: until then. owner: whose request gets the room. over: it ends now.
    """

    id: str
    node: str
    owner: str
    seconds: int
    over: bool = False


class Abandon(Struct, frozen=True):
    """Tell the daemon of a node that the client has gone: leases end for which no program has come.

    There is no answer. The node's next report tells what is left.
    """

    id: str
    node: str
    attempt: int


class Placed(Struct, frozen=True):
    """Tell the client where its cards are. All daemons have granted."""

    id: str
    decision: Decision


class Waiting(Struct, frozen=True):
    """Tell the client its place in line, from 1, and why it waits."""

    id: str
    place: int
    refusal: Refusal | None


class Denied(Struct, frozen=True):
    """Tell the client that its request cannot be met."""

    id: str
    why: str
    refusal: Refusal | None = None


class Lost(Struct, frozen=True):
    """Note that a placed request has lost a node. Its session ends by itself."""

    id: str
    node: str


class Ended(Struct, frozen=True):
    """Note that a placed request has ended: its daemon has its lease no more."""

    id: str
    node: str


class Refresh(Struct, frozen=True):
    """Ask the agent of a node for a full report: its daemon refused what the pool says it has, or
    the pool has forgotten the node.
    """

    node: str


Action = (
    Grant
    | Revoke
    | Resize
    | Announced
    | Abandon
    | Placed
    | Waiting
    | Denied
    | Lost
    | Ended
    | Refresh
)
