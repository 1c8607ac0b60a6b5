"""Random nonsense from clients and nodes, as messages: it is refused, or the manager works on.

A message that a node or a client could send, and that the manager takes, never raises anything but
PlacementError, which is a sentence for its sender. `RGPU_CLUSTER_NONSENSE=1000` tries as many pools.
"""

from __future__ import annotations

import contextlib
import os
import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from rgpu_cluster.core import events as on
from rgpu_cluster.core.errors import PlacementError
from rgpu_cluster.core.limits import SECOND
from rgpu_cluster.core.manager import Manager
from rgpu_cluster.core.quotas import Quotas, TenantQuota
from rgpu_cluster.manager.links import NodeLink
from rgpu_cluster.manager.metrics import pool_sums
from rgpu_cluster.manager.reading import request_of
from rgpu_cluster.manager.shell import Shell
from rgpu_cluster.manager.telling import explanation, pool_nodes, pool_paths
from rgpu_common.units import PPM
from rgpu_common.v1 import agent_pb2, cluster_pb2, lease_pb2

POOLS = int(os.environ.get("RGPU_CLUSTER_NONSENSE", "12"))
STEPS = 300
GIB = 1 << 30
IDS = [f"run-{number:032x}" for number in range(30)]
NUMBERS = (0, 1, 2, 3, 1000, 1025, PPM // 2, PPM, PPM + 1, 1 << 30, 1 << 31, (1 << 32) - 1)
SIZES = (0, 1, GIB // 2, GIB, 1 << 40, 1 << 50, 1 << 62, (1 << 64) - 1)
TIMES = (0.0, 1.0, -1.0, 1e300, float("nan"), float("inf"), 3600.0)
WORDS = ("", "a", "x" * 64, "\n", "\x1b[2J", "a b")
QUOTAS = Quotas({"a": TenantQuota(share_ppm=PPM, borrow=True), "b": TenantQuota(memory_bytes=GIB)})


@dataclass
class Nonsense:
    """Messages of a seeded chance. Most of their values are sound, so that they get far."""

    chance: random.Random
    generations: dict[str, int] = field(default_factory=dict)

    def often(self, sound: tuple[Any, ...], wild: tuple[Any, ...], part: float = 0.15) -> Any:
        return self.chance.choice(wild if self.chance.random() < part else sound)

    def number(self) -> int:
        return int(self.often((0, 0, 1, 2), NUMBERS))

    def share(self) -> int:
        return int(self.often((0, PPM // 10, PPM // 4, PPM // 2, PPM), NUMBERS))

    def size(self) -> int:
        return int(self.often((0, 1, GIB // 4, GIB // 2, GIB), SIZES))

    def word(self) -> str:
        return str(self.often(("", "", ""), WORDS))

    def neighbours(self) -> agent_pb2.Neighbours:
        pick = self.chance.choice
        return agent_pb2.Neighbours(
            affinity=pick(("", "", "a", "b")),
            anti_affinity=pick(("", "", "", "a", self.word())),
            exclusion=pick(("", "", "", "x", self.word())),
        )

    def submit(self) -> cluster_pb2.SubmitRequest:
        pick, odds = self.chance.choice, self.chance.random
        asked = cluster_pb2.SubmitRequest(
            request_id=pick(IDS),
            cards=self.number(),
            quota=lease_pb2.Quota(
                memory_bytes=self.size(),
                share_request_ppm=self.share(),
                share_limit_ppm=pick((0, 0, self.share())),
                policy=pick((0, 0, 1, 2, 3, 4, 77)),  # type: ignore[arg-type]
                memory_ppm=pick((0, self.share())),
                priority=pick((0, 0, self.number())),
            ),
            whole=odds() < 0.2,
            model=self.word(),
            pool=self.word(),
            farthest=pick((0, 0, 0, 2, 3, 4, 9)),  # type: ignore[arg-type]
            bandwidth_bps=pick((0, self.size())),
            neighbours=self.neighbours(),
            max_per_node=pick((0, 0, self.number())),
            max_per_rack=pick((0, 0, self.number())),
            one_node=odds() < 0.2,
            wait=odds() < 0.5,
            gang=pick(("", "", "g", "h", self.word())),
            gang_size=pick((1, 2, 2, 3, self.number())),
            reserve_seconds=pick((0, 0, 60, self.size())),
        )
        if odds() < 0.3:
            asked.least_ppm, asked.least_bytes = self.share(), self.size()
        if odds() < 0.3:
            profile = asked.profile
            profile.calls, profile.syncs = self.number(), self.number()
            profile.up_bytes, profile.down_bytes = self.size(), self.size()
        return asked

    def report(self, name: str) -> agent_pb2.NodeReport:
        pick = self.chance.choice
        generation = self.generations.get(name, 0) + pick((1, 1, 1, 1, 0, 5))
        self.generations[name] = generation
        report = agent_pb2.NodeReport(
            name=name, server=bytes(16), generation=generation, address="127.0.0.1:9",
            rack=pick(("", "r1", "r2")), draining=self.chance.random() < 0.1,
        )  # fmt: skip
        count = pick((0, 1, 2, 3))
        for ordinal in range(count):
            report.cards.add(
                ordinal=ordinal, model=pick(("m", "n")), memory_bytes=pick((1, GIB, self.size())),
                pool=pick(("public", self.word())), mig=pick(("", "", "1g.10gb")),
                part_ppm=pick((0, 0, self.share())),
            )  # fmt: skip
        for number in range(pick((0, 0, 1, 3)) if count else 0):
            self.lease(report.leases.add(lease_id=f"l{number}", ordinal=number % count))
        if self.chance.random() < 0.3:
            report.devices.add(name="eth0", up=True, speed_mbps=self.number())
        return report

    def lease(self, lease: agent_pb2.HeldLease) -> None:
        pick, odds = self.chance.choice, self.chance.random
        lease.tenant, lease.whole = pick("abc"), odds() < 0.2
        lease.share_ppm, lease.memory_bytes = self.share(), self.size()
        lease.neighbours.CopyFrom(self.neighbours())
        lease.reserved, lease.left_seconds = odds() < 0.1, pick(TIMES)
        lease.priority, lease.since, lease.number = self.number(), self.size(), self.number()
        if odds() < 0.6:
            lease.request_id, lease.attempt = pick(IDS), self.number()
        if odds() < 0.4:
            elastic = lease.elastic
            elastic.least_ppm, elastic.wanted_ppm = self.share(), self.share()
            elastic.least_bytes, elastic.wanted_bytes = self.size(), self.size()

    def answer(self, order: agent_pb2.ManagerMessage) -> agent_pb2.AgentMessage | None:
        """The answer to an order, with some nonsense in it; None: none."""
        pick, odds = self.chance.choice, self.chance.random
        if odds() < 0.2:
            return None
        if order.HasField("grant"):
            grant = agent_pb2.GrantAnswer(
                request_id=order.grant.request_id, attempt=order.grant.attempt,
                granted=odds() < 0.7, sentence=self.word(), generation=self.size(),
                ground=pick((0, 1, 2, 9)),  # type: ignore[arg-type]
            )  # fmt: skip
            return agent_pb2.AgentMessage(granted=grant)
        if order.HasField("revoke"):
            asked = order.revoke
            gone = agent_pb2.RevokeAnswer(request_id=asked.request_id, attempt=asked.attempt)
            return agent_pb2.AgentMessage(revoked=gone)
        if order.HasField("resize"):
            size = order.resize
            resized = agent_pb2.ResizeAnswer(
                request_id=size.request_id, attempt=size.attempt, ordinal=size.ordinal,
                number=size.number, there=odds() < 0.8,
                share_ppm=pick((size.share_ppm, self.share())),
                memory_bytes=pick((size.memory_bytes, self.size())),
                least_bytes=self.size(), generation=self.size(),
            )  # fmt: skip
            return agent_pb2.AgentMessage(resized=resized)
        if order.HasField("measure"):
            path = agent_pb2.PathReport(
                node=order.measure.node, error=self.word(), round_trip_ns=self.size(),
                jitter_ns=self.size(), up_rate=self.size(), down_rate=self.size(),
                message_rate=self.size(), transport=self.word(),
            )  # fmt: skip
            return agent_pb2.AgentMessage(path=path)
        return None


class Hearing:
    """A manager without a network. `step` gives it one message, or lets time pass."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.says = Nonsense(self.chance)
        self.now_ns = 0
        quotas = QUOTAS if seed % 2 else Quotas({})
        self.shell = Shell(Manager(quotas=quotas), clock=lambda: self.now_ns)
        self.links: dict[str, NodeLink] = {}
        self.bases: dict[str, int] = {}

    def step(self) -> None:
        self.now_ns += self.chance.choice((0, SECOND // 10, SECOND, 4 * SECOND, -9 * SECOND))
        roll, name = self.chance.random(), self.chance.choice(("n0", "n1", "n2", "n3"))
        if roll < 0.3:
            self.ask()
        elif roll < 0.55:
            self.report(name)
        elif roll < 0.8 and name in self.links:
            self.answer(self.links[name])
        elif roll < 0.85:
            self.shell.withdraw(self.chance.choice(IDS), "its client took it back")
        elif roll < 0.88 and name in self.links:
            link = self.links.pop(name)
            del self.shell.links[name], self.says.generations[name]
            self.bases[name] = link.generation
            link.cut()
        else:
            self.shell.feed(on.Tick())
            self.shell._probe()
            self.show()

    def ask(self) -> None:
        asked, tenant = self.says.submit(), self.chance.choice("abc")
        if self.shell.owner(asked.request_id) not in (None, tenant):
            return
        nodes = ["", *(node.name for node in self.shell.core.pool.nodes())]
        request = request_of(asked, tenant, self.chance.choice(nodes), "r1")
        gang = f"{tenant}/{asked.gang}" if asked.gang else ""
        self.shell.feed(on.Asked(request, asked.wait, 0, gang, asked.gang_size or 1))

    def report(self, name: str) -> None:
        report = self.says.report(name)
        if name not in self.links:
            link = NodeLink(self.shell, report, self.bases.get(name, 0))
            self.links[name] = self.shell.links[name] = link
        self.links[name].reported(report)

    def answer(self, link: NodeLink) -> None:
        while link._outbox:
            answer = self.says.answer(link._outbox.popleft())
            if answer is not None:
                link.heard(answer)

    def show(self) -> None:
        """What clients and Prometheus ask for."""
        list(pool_nodes(self.shell.core.pool, lambda _: True, lambda _: True, lambda _: None))
        list(pool_paths(self.shell.core.paths))
        pool_sums(self.shell)
        for request in IDS:
            decided = self.shell.ledger.decided(request)
            if decided is not None:
                explanation(decided.decision)
            self.shell.gives(request, lambda _: True)


@pytest.mark.parametrize("seed", range(POOLS))
def test_nonsense_is_refused_or_borne(seed: int) -> None:
    manager = Hearing(seed)
    for _ in range(STEPS):
        with contextlib.suppress(PlacementError):
            manager.step()
    for event in manager.shell.ledger.events(0):
        assert event.sentence.isprintable(), event
