"""A keeper of an agent, with a server that does what it is told."""

from __future__ import annotations

from typing import Any

from cluster.agent_world import UID, card, held, report, result, view
from rgpu_cluster.kubernetes.agent.actions import Action, Grant, Revoke, Say
from rgpu_cluster.kubernetes.agent.keeper import Keeper
from rgpu_cluster.kubernetes.agent.views import ClaimView
from rgpu_common.v1 import agent_pb2


class World:
    """A keeper, a server that does what it is told, and the time."""

    def __init__(self, *leases: agent_pb2.HeldLease) -> None:
        self.keeper = Keeper()
        self.keeper.synced = True
        self.now = 100.0
        self.wall = 1010.0
        self.leases = list(leases)
        self.report(first=True)

    def report(self, first: bool = False) -> None:
        self.keeper.report(report(card(0), card(1), leases=self.leases), first, self.now)

    def claim(self, view: ClaimView | None) -> None:
        self.keeper.claim(UID, view)

    def actions(self) -> list[Action]:
        return self.keeper.actions(self.now, self.wall)

    def one(self, kind: type[Any]) -> Any:
        (action,) = self.actions()
        assert isinstance(action, kind), action
        return action

    def grant(self) -> Grant:
        """Does what a server does with the grant that is due."""
        action: Grant = self.one(Grant)
        self.leases = [held(ordinal=o, attempt=action.order.attempt, lease=f"lease-{action.order.attempt}")
                       for o in action.order.ordinals]  # fmt: skip
        self.keeper.granted(action, agent_pb2.GrantAnswer(granted=True), self.now)
        self.report()
        return action

    def refuse(self, sentence: str = "no room", ground: Any = agent_pb2.GROUND_UNSPECIFIED) -> None:
        answer = agent_pb2.GrantAnswer(sentence=sentence, ground=ground)
        self.keeper.granted(self.one(Grant), answer, self.now)

    def revoke(self) -> Revoke:
        action: Revoke = self.one(Revoke)
        assert self.keeper.confirmed(action, self.wall)
        self.keeper.revoked(action)
        self.leases = []
        return action

    def lose(self, share: dict[str, Any] | None = None) -> None:
        """Has the claim say that it has lost its lease, which is due."""
        said: Say = self.one(Say)
        assert said.condition == "rgpu.dev/lost"
        assert "its programs get no GPU" in said.sentence
        self.claim(view(share or result(), told="rgpu.dev/lost"))
        self.keeper.said(said)

    def kept(self) -> list[str]:
        request = self.keeper.keeps(self.now)
        return [one.request_id for one in request.requests] if request is not None else []
