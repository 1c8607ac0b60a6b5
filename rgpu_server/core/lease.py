"""One lease, and what can be said about it without the others."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum

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


class Joined(Enum):
    """How a session came to its lease: a new one, an empty one of other sizes, one as it was."""

    NEW = "new"
    RESHAPED = "reshaped"
    AS_IT_WAS = "as it was"


@dataclass(slots=True)
class Lease:
    """A time-limited right to a placement.

    number: in the order of grants.  address: where the session came from that made it.
    asked_share_ppm: its request; quota has less while what it borrowed is needed by its owner.
    held_bytes: what its sessions still held when its memory was made less than that.
    ends_at: when it expires if nothing happens; None while sessions hold an implicit lease.
    reclaim_at: when its borrowed memory goes back.  slots: page slot -> session.
    stopped: an operator paused it.
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
    paused: bool = False
    stopped: bool = False
    state: LeaseState = LeaseState.ACTIVE
    slots: dict[int, int] = field(default_factory=dict)

    @property
    def idle(self) -> bool:
        """True if nobody granted it and nobody is in it."""
        return not self.explicit and not self.slots and self.state is LeaseState.ACTIVE

    @property
    def asked(self) -> Quota:
        """Its ceilings as they were asked for."""
        return replace(self.quota, share_request_ppm=self.asked_share_ppm)

    @property
    def amount(self) -> Amount:
        """What it takes of its device."""
        memory = max(self.quota.memory_bytes, self.held_bytes)
        return Amount(self.quota.share_request_ppm, memory)


def check_drained(held: Lease | None) -> None:
    """Refuses a key whose lease has ended and still has sessions."""
    if held is not None:
        raise RefusedError(
            Code.LEASE_ENDED,
            f"lease {held.key} {held.state.value} and its sessions are still ending; try again "
            "in a second",
        )


def check_within(held: Lease, wish: Wish, device: Device) -> None:
    """Refuses a session that asks for more than its lease has."""
    if wish.device not in (None, held.device):
        raise RefusedError(
            Code.LEASE_TOO_SMALL,
            f"lease {held.key} is on device {held.device}, the session asks for device "
            f"{wish.device}; "
            "leave the device out or use another lease key",
        )
    quota = held.asked
    if wish.policy not in (None, quota.policy):
        raise RefusedError(
            Code.LEASE_TOO_SMALL,
            f"lease {held.key} has the policy {quota.policy.word} and the session asks for another "
            "one; leave it out or use another lease key",
        )
    for name, asked, there, form in (
        ("memory", wish.memory_on(device), quota.memory_bytes, format_bytes),
        ("share", wish.share_request_ppm, quota.share_request_ppm, format_share),
        ("share limit", wish.share_limit_ppm, quota.share_limit_ppm, format_share),
        ("priority", wish.priority or 0, quota.priority, str),
        ("weight", wish.weight or 0, quota.weight, str),
    ):
        if asked > there:
            raise RefusedError(
                Code.LEASE_TOO_SMALL,
                f"lease {held.key} has a {name} of {form(there)} and the session asks for "
                f"{form(asked)}, "
                f"{form(asked - there)} more; ask for at most {form(there)} or use another lease "
                "key",
            )


def sizes(quota: Quota) -> str:
    """Returns the ceilings in words."""
    text = (
        f"{format_bytes(quota.memory_bytes)}, share {format_share(quota.share_request_ppm)}, "
        f"limit {format_share(quota.share_limit_ppm)}"
    )
    if (quota.priority, quota.weight) != (0, 1):
        text += f", priority {quota.priority}, weight {quota.weight}"
    return text
