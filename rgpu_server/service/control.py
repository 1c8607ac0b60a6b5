"""What the control-plane API may change on the server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_server.core import events as on

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rgpu_server.conductor import Conductor
    from rgpu_server.core.actions import Answer
    from rgpu_server.core.booked import Booked
    from rgpu_server.core.model import Refusal, Wish
    from rgpu_server.core.shares import Change


class Control:
    """Each method hands the node one event and returns the node's answer.

    Whether the caller may ask for the change is checked before (`LeaseService`, `NodeService`).
    """

    def __init__(self, conductor: Conductor) -> None:
        self._conductor = conductor

    def grant(
        self,
        tenant: str,
        key: str,
        wish: Wish,
        ttl_seconds: float,
        *,
        passes_line: bool = False,
        booked: Booked | None = None,
        by_operator: bool = False,
        name: str = "",
    ) -> Answer | Refusal:
        """Grants a lease, or gives the one that `key` names a new end. name: of a new one."""
        number = self._conductor.next_request()
        event = on.LeaseRequested(
            number, tenant, key, wish, ttl_seconds, passes_line, booked, by_operator, name
        )
        return self._conductor.ask(number, event)

    def keep_alive(self, lease: str, ttl_seconds: float = 0.0) -> Answer | Refusal:
        """Begins the time of a lease again. ttl_seconds: as `KeepAliveRequested` has it."""
        number = self._conductor.next_request()
        return self._conductor.ask(number, on.KeepAliveRequested(number, lease, ttl_seconds))

    def resize(
        self,
        lease: str,
        change: Change,
        used: Mapping[int, int],
        *,
        kill: bool,
        by_operator: bool,
    ) -> Answer | Refusal:
        """Changes the quota of a lease.

        used: session -> bytes that it holds.  kill: end the largest sessions that no longer fit.
        by_operator: an operator or the cluster's manager asks.
        """
        number = self._conductor.next_request()
        event = on.ResizeRequested(number, lease, change, used, kill, by_operator)
        return self._conductor.ask(number, event)

    def pause(self, lease: str, paused: bool, *, by_operator: bool) -> Answer | Refusal:
        """Pauses a lease, or lets it go on."""
        number = self._conductor.next_request()
        return self._conductor.ask(number, on.PauseRequested(number, lease, paused, by_operator))

    def look(self) -> None:
        """Notes what programs have freed of leases that are smaller than what they held."""
        self._conductor.feed(on.TimePassed())

    def revoke(self, lease: str, why: str = "") -> Answer | Refusal:
        """Ends a lease and its sessions. why: for their programs."""
        number = self._conductor.next_request()
        return self._conductor.ask(number, on.RevokeRequested(number, lease, why))

    def cancel(self, claim: int, why: str) -> Answer | Refusal:
        """Takes a claim out of the line. why: a sentence for its run."""
        number = self._conductor.next_request()
        return self._conductor.ask(number, on.ClaimCancelled(number, claim, why))

    def warn(self, lease: str, sentence: str) -> None:
        """Tells the programs of a lease something; they go on."""
        self._conductor.warn(lease, sentence)

    def drain(self, end_after_seconds: float | None) -> Answer | Refusal:
        """Takes no new lease from now on.  end_after_seconds: then end all leases; None: never."""
        number = self._conductor.next_request()
        return self._conductor.ask(number, on.DrainRequested(number, end_after_seconds))

    def undrain(self) -> Answer | Refusal:
        """Takes new leases again."""
        number = self._conductor.next_request()
        return self._conductor.ask(number, on.UndrainRequested(number))
