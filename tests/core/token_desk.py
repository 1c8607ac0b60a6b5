"""A token scheduler with leases and a clock, as an interface for tests."""

from __future__ import annotations

from rgpu_server.core.model import PPM
from rgpu_server.core.tokens import actions as do
from rgpu_server.core.tokens import events as on
from rgpu_server.core.tokens.params import TokenParams
from rgpu_server.core.tokens.scheduler import TokenScheduler
from rgpu_server.core.tokens.share import Share

MS = 1_000_000
SECOND = 1000 * MS


class Desk:
    """A scheduler with leases on it, and the time."""

    def __init__(self, params: TokenParams | None = None, **requests: float | Share) -> None:
        self.tokens = TokenScheduler(params)
        self.now = 0
        for lease, request in requests.items():
            what = request if isinstance(request, Share) else Share(round(request * PPM))
            assert self.say(on.Joined(lease, what)) == []

    def say(self, event: on.Event, at: float | None = None) -> list[do.Action]:
        """Hands an event in at a time in ms; timers are left out of the answer."""
        if at is not None:
            self.now = round(at * MS)
        actions = self.tokens.handle(event, self.now)
        return [action for action in actions if not isinstance(action, do.TimerAt)]

    def wake(self, lease: str, at: float) -> list[do.Action]:
        return self.say(on.Woke(lease), at)

    def back(
        self, lease: str, gen: int, held: float, at: float, empty: bool = False, kernel: float = 0
    ) -> list[do.Action]:
        ns = round(held * MS)
        return self.say(on.Returned(lease, gen, ns, ns, empty, round(kernel * MS)), at)

    def debt(self, lease: str) -> float:
        """Device time in ms that a lease has had too much."""
        usage = self.tokens.usage(lease)
        assert usage is not None
        return -usage.owed_ns / MS


def granted(actions: list[do.Action]) -> str:
    (action,) = (a for a in actions if isinstance(a, do.Grant | do.Extend))
    return action.lease
