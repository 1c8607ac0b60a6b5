"""Claims in line are tried again only when something has changed: none is forgotten by that."""

from __future__ import annotations

import copy
import random

import pytest
from core.claim_desk import GIB, claim, node, session

from rgpu_server.core import actions as do
from rgpu_server.core import events as on
from rgpu_server.core.model import Amount, Wish
from rgpu_server.core.node import Node
from rgpu_server.core.policy import Policy, TenantPolicy
from rgpu_server.core.shares import Change

TENANTS = {
    "alice": TenantPolicy(quota={"model": Amount(1_000_000, 4 * GIB)}, sessions=4),
    "bob": TenantPolicy(memory_bytes=6 * GIB),
    "dave": TenantPolicy(quota={"model": Amount()}, borrow=True),
}
POLICY = Policy(
    warm_workers=0, max_sessions=6, claim_seconds=5, reclaim_seconds=3, keep_place_seconds=7
)
KEYS = ("", "", "", "one", "two")


class Crowd:
    """Runs that come, wait and end as chance has it, and a node that serves them."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.node = node(POLICY, 2, **TENANTS)
        self.now = 0.0
        self.number = 0
        self.runs: list[int] = []
        self.sessions: list[int] = []
        self.served = 0

    def feed(self, event: on.Event) -> None:
        actions = self.node.handle(event, self.now)
        gone = {a.claim for a in actions if isinstance(a, do.RefuseClaim)}
        self.runs = [run for run in self.runs if run not in gone]
        self.served += sum(isinstance(a, do.GrantClaim) for a in actions)

    def step(self) -> None:
        self.number += 1
        tenant = self.chance.choice(("alice", "bob", "carol", "dave"))
        name = self.chance.choice([lease.id for lease in self.node.leases] or ["none"])
        kind = self.chance.randrange(12)
        if kind < 6:
            self.runs.append(self.number)
            key, wait = self.chance.choice(KEYS), self.chance.choice((0.0, 2.0, 60.0, 60.0, 60.0))
            gib = self.chance.choice((2, 4, 6, 8))
            self.feed(claim(self.number, gib, tenant, key, wait, f"from {tenant}"))
        elif kind < 8 and self.runs:
            run = self.chance.choice(self.runs)
            self.runs.remove(run)
            self.feed(on.ClaimLeft(run))
        elif kind == 8:
            self.sessions.append(self.number)
            self.feed(session(self.number, "one", 1, tenant))
        elif kind == 9 and self.sessions:
            self.feed(on.ClientLeft(self.sessions.pop(0)))
        elif kind == 10:
            self.feed(on.ResizeRequested(self.number, name, Change(memory_bytes=GIB)))
        elif kind == 11:
            wish = Wish(memory_bytes=GIB)
            if self.chance.random() < 0.5:
                self.feed(on.LeaseRequested(self.number, tenant, "two", wish, 4.0))
            else:
                self.feed(on.RevokeRequested(self.number, name))
        if self.chance.random() < 0.3:
            self.now += 1.0
            self.feed(on.TimePassed())


def line(n: Node) -> list[int]:
    return [waiter.event.claim for waiter in n.line]


@pytest.mark.parametrize("seed", range(4))
def test_nobody_in_line_could_be_served_after_an_event(seed: int) -> None:
    crowd = Crowd(seed)
    waited = 0
    for _ in range(200):
        crowd.step()
        n = crowd.node
        # Amounts that go back to borrowers after an event are used by the next event.
        n.handle(on.KeepAliveRequested(0, "none"), crowd.now)
        waited += bool(len(n.line))
        other = copy.deepcopy(n)
        other._claiming._serve(crowd.now)
        assert line(other) == line(n)
    assert waited > 30
    assert crowd.served > 10
