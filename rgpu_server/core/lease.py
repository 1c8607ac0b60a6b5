"""One lease, and the checks that need no other lease."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from rgpu_common.units import format_bytes, format_share
from rgpu_server.core.model import (
    Amount,
    Code,
    Device,
    LeaseKey,
    LeaseState,
    Quota,
    RefusedError,
    Wish,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from rgpu_common.sharing import SharePolicy
    from rgpu_server.core.booked import Booked
    from rgpu_server.core.policy import Policy


class Joined(Enum):
    """How a session got its lease: the lease is new, was empty and has new sizes, or is
    unchanged.
    """

    NEW = "new"
    RESHAPED = "reshaped"
    AS_IT_WAS = "as it was"


class Lease(Struct):
    """A time-limited right to a device, with a memory limit and a share.

    number: its place in the order of grants. name: what people call it, which need not be unique:
    the name of its run, else its program. address: the network of the client for whose session
    it was made. asked_share_ppm: its share request as asked for; `quota` has less while the owner
    needs the share that this lease borrowed. held_bytes: the memory that its sessions still held
    when its limit was made smaller than that. ends_at: when it expires if nothing happens; None
    while sessions hold an implicit lease. reclaim_at: when its borrowed memory goes back to the
    owner. announced_at: when it ends, as the cluster's manager has announced. slots: page slot ->
    session. stopped: an operator paused it. holders: the claims of runs that have not ended; a
    lease with holders stays without a session. own: it belongs to one run and ends with it. first:
    its ceilings before the first resize; None if it was never resized. booked: a cluster's manager
    asked for it. seams: the words of `seam_word` for all sessions that it has had in this process.
    """

    id: str
    key: LeaseKey
    device: int
    quota: Quota
    explicit: bool
    ttl_seconds: float
    ends_at: float | None
    number: int = 0
    address: str = ""
    asked_share_ppm: int = 0
    held_bytes: int = 0
    reclaim_at: float | None = None
    announced_at: float | None = None
    paused: bool = False
    stopped: bool = False
    state: LeaseState = LeaseState.ACTIVE
    slots: dict[int, int] = field(default_factory=dict)
    holders: set[int] = field(default_factory=set)
    own: bool = False
    first: Quota | None = None
    booked: Booked | None = None
    seams: set[str] = field(default_factory=set)
    name: str = ""

    @property
    def used(self) -> bool:
        """True if it has a session or a run holds it."""
        return bool(self.slots or self.holders)

    @property
    def idle(self) -> bool:
        """True if it is implicit, active and not used."""
        return not self.explicit and not self.used and self.state is LeaseState.ACTIVE

    def begin(self) -> None:
        """Notes that a session or a run uses it. A booked lease ends with its first run, unless it
        is a reservation or kept.
        """
        if self.booked is not None and self.explicit and not (self.reserved or self.kept):
            self.explicit, self.own = False, True
        if not self.explicit or self.kept:
            self.ends_at = None

    def keep(self, ttl_seconds: float, now: float) -> None:
        """Gives an explicit lease its time again. One that is kept has no end while it is used."""
        self.ttl_seconds = ttl_seconds
        self.ends_at = None if self.kept and self.used else now + ttl_seconds

    @property
    def reserved(self) -> bool:
        """True if its end is fixed, because it is a reservation."""
        return self.booked is not None and self.booked.reserved

    @property
    def kept(self) -> bool:
        """True if programs come and go in it, and its end waits for the last of them."""
        return self.booked is not None and self.booked.kept

    @property
    def awaited(self) -> bool:
        """True if it was booked for a run that has not come yet."""
        if self.booked is None or self.reserved or self.kept:
            return False
        return self.explicit and not self.used

    @property
    def asked(self) -> Quota:
        """Its ceilings as they were asked for."""
        return replace(self.quota, share_request_ppm=self.asked_share_ppm)

    @property
    def amount(self) -> Amount:
        """The share and memory that it takes of its device."""
        memory = max(self.quota.memory_bytes, self.held_bytes)
        return Amount(self.quota.share_request_ppm, memory)


def why_ended(lease: Lease) -> str:
    """Returns why the sessions of a lease end with it."""
    if not lease.reserved or lease.state not in (LeaseState.EXPIRED, LeaseState.REVOKED):
        late = ": it was not kept alive in time" if lease.state is LeaseState.EXPIRED else ""
        return f"lease {lease.key} {lease.state.value}{late}"
    if lease.state is LeaseState.EXPIRED:
        return (
            f"the time of reservation {lease.key.name} is over; reserve for longer with `rgpu "
            "reserve --for`"
        )
    return f"reservation {lease.key.name} was released; make another one with `rgpu reserve`"


def life(seconds: float, policy: Policy) -> float:
    """Returns the lifetime of a granted lease without keep-alive.

    seconds: the lifetime that was asked for; 0 for the policy's.

    Raises:
        RefusedError: a lease cannot have such a lifetime.
    """
    ttl = seconds or policy.ttl_seconds
    if not 0 < ttl <= policy.max_ttl_seconds:
        raise RefusedError(
            Code.BAD_REQUEST,
            f"a lease cannot live {seconds:g} s: ask for more than 0 and at most "
            f"{policy.max_ttl_seconds:g} s, and keep it alive",
        )
    return ttl


def check_extends(held: Lease) -> None:
    """Refuses to move the end of a reservation."""
    if held.reserved:
        raise RefusedError(
            Code.NOT_ALLOWED,
            f"lease {held.key} is a reservation, and its end is fixed; make another one with "
            "`rgpu reserve`",
        )


def check_same(held: Lease, device: int | None, asked: Quota) -> None:
    """Refuses a second grant of a key with other ceilings, or on another device (None: any)."""
    if asked != held.asked or device not in (None, held.device):
        raise RefusedError(
            Code.LEASE_EXISTS,
            f"lease {held.key} exists on device {held.device} with {sizes(held.asked)}, asked "
            f"for are {sizes(asked)}; resize it or use another lease key",
        )


def check_not_larger(held: Lease, asked: Quota) -> None:
    """Refuses to change a lease to more than it has of what the cluster's manager counts."""
    has = held.asked
    if (
        asked.share_request_ppm > has.share_request_ppm
        or asked.memory_bytes > has.memory_bytes
        or asked.priority > has.priority
    ):
        raise RefusedError(
            Code.NOT_ALLOWED,
            f"lease {held.key} has {sizes(has)}, and asked for are {sizes(asked)}. This server is "
            "a node of a cluster, where a lease grows only for the manager or an operator: end the "
            "run, and ask the manager for more with `rgpu run --manager`",
        )


def check_drained(held: Lease | None) -> None:
    """Refuses a key whose lease has ended and still has sessions."""
    if held is not None:
        raise RefusedError(
            Code.LEASE_ENDED,
            f"lease {held.key} {held.state.value} and its sessions are still ending; try again "
            "in a second",
        )


def check_as_asked(held: Lease, wish: Wish, device: Device) -> None:
    """Refuses a wish for other sizes than the lease has. Sizes are never silently ignored."""
    if wish.device not in (None, held.device):
        raise RefusedError(
            Code.LEASE_TOO_SMALL,
            f"lease {held.key} is on device {held.device} and device {wish.device} was asked for; "
            "leave the device out or use another lease key",
        )
    other = _differences(held, wish, device)
    if not other:
        return
    name, asked, has = other[0]
    why = "was granted with that" if held.explicit else "is in use with that"
    raise RefusedError(
        Code.LEASE_TOO_SMALL,
        f"lease {held.key} has a {name} of {has} and {asked} was asked for: it {why}; leave the "
        f"{name} out, change the lease with `rgpu lease resize {held.id} "
        f"--{name.removeprefix('share ')} {asked.replace(' ', '')}`, or use another lease key",
    )


def differs(held: Lease, wish: Wish, device: Device) -> bool:
    """True if the wish names another device or other sizes than the lease has."""
    return wish.device not in (None, held.device) or bool(_differences(held, wish, device))


def _differences(held: Lease, wish: Wish, device: Device) -> list[tuple[str, str, str]]:
    """Returns (name, size asked for, size of the lease) for each size that differs.

    The sizes before a resize count as well: a later process of the same program asks for those.
    """
    quota, first = held.asked, held.first or held.asked

    rows: tuple[tuple[str, Any, Any, Any, Callable[[Any], str]], ...] = (
        ("policy", wish.policy, quota.policy, first.policy, _word),
        (
            "memory",
            wish.memory_on(device) or None,
            quota.memory_bytes,
            first.memory_bytes,
            format_bytes,
        ),
        (
            "share",
            wish.share_request_ppm or None,
            quota.share_request_ppm,
            first.share_request_ppm,
            format_share,
        ),
        (
            "share limit",
            wish.share_limit_ppm or None,
            quota.share_limit_ppm,
            first.share_limit_ppm,
            format_share,
        ),
        ("priority", wish.priority, quota.priority, first.priority, str),
        ("weight", wish.weight, quota.weight, first.weight, str),
    )
    return [
        (name, form(asked), form(there))
        for name, asked, there, before, form in rows
        if asked not in (None, there, before)
    ]


def _word(policy: SharePolicy) -> str:
    return policy.word


def sizes(quota: Quota) -> str:
    """Returns the ceilings as text for a sentence."""
    text = (
        f"{format_bytes(quota.memory_bytes)}, share {format_share(quota.share_request_ppm)}, "
        f"limit {format_share(quota.share_limit_ppm)}"
    )
    if (quota.priority, quota.weight) != (0, 1):
        text += f", priority {quota.priority}, weight {quota.weight}"
    return text
