"""Daemons, clients and a network that loses and delays messages, around one manager.

Everything is deterministic: whoever drives the world chooses which message arrives next.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from msgspec.structs import replace

from cluster.daemon import Daemon, attempt_of
from cluster.samples import GIB, node
from rgpu_cluster.core import events as ev
from rgpu_cluster.core.actions import (
    Abandon,
    Action,
    Announced,
    Denied,
    Ended,
    Grant,
    Lost,
    Placed,
    Refresh,
    Resize,
    Revoke,
    Waiting,
)
from rgpu_cluster.core.book import Stage
from rgpu_cluster.core.card import CardId
from rgpu_cluster.core.decision import Decision
from rgpu_cluster.core.limits import SECOND, Limits
from rgpu_cluster.core.manager import Manager
from rgpu_cluster.core.quotas import Quotas
from rgpu_cluster.core.request import Request
from rgpu_common.units import PPM

# Short, so that a world comes to rest.
LIMITS = Limits(grace_ns=5 * SECOND)


@dataclass
class World:
    """A manager, its daemons and clients. `post` has messages on their way to daemons."""

    manager: Manager = field(init=False)
    daemons: dict[str, Daemon] = field(default_factory=dict)
    alive: dict[str, Request] = field(default_factory=dict)
    told: dict[str, tuple[CardId, ...]] = field(default_factory=dict)
    gangs: dict[str, tuple[str, int]] = field(default_factory=dict)
    others: dict[str, tuple[Request, ...]] = field(default_factory=dict)
    quotas: Quotas = field(default_factory=lambda: Quotas({}))
    post: list[Grant | Revoke | Resize | Abandon] = field(default_factory=list)
    replies: list[ev.Event] = field(default_factory=list)
    now_ns: int = SECOND
    # The daemons' time; the manager's clock may jump.
    true_ns: int = SECOND

    def __post_init__(self) -> None:
        self.manager = Manager(limits=LIMITS, quotas=self.quotas)

    def add(self, name: str, cards: int, slices: int = 0) -> None:
        """A node with GPUs, and with MIG slices of another GPU."""
        rack, zone = f"r{len(self.daemons) % 2}", f"z{len(self.daemons) // 4}"
        plain = node(name, cards + slices, 16 * GIB, rack=rack, zone=zone)
        carved = [
            replace(card, mig="1g.10gb", part_ppm=PPM // 7, memory_bytes=10 * GIB)
            for card in plain.cards[cards:]
        ]
        self.daemons[name] = Daemon(replace(plain, cards=(*plain.cards[:cards], *carved)))
        self.tell(self.daemons[name].report())

    def tell(self, event: ev.Event) -> None:
        for action in self.manager.handle(event, self.now_ns):
            self._carry_out(action)
        if isinstance(event, ev.Granted) and event.id not in self.daemons[event.node].leases:
            # It has ended meanwhile. An agent's report is never older than its answers.
            self.daemons[event.node].touch()

    def _carry_out(self, action: Action) -> None:
        match action:
            case Grant() | Revoke() | Resize() | Abandon():
                self.post.append(action)
            case Announced(request, over=True):
                # The program hears that its lease ends.
                self.alive.pop(request, None)
                self.told.pop(request, None)
            case Placed(request, decision):
                check_bounds(self, decision)
                if request in self.alive:
                    self.told[request] = decision.chosen.cards
            case Ended(request):
                booking = self.manager.book.get(request)
                again = request in self.manager.line or (
                    booking is not None and (booking.again or booking.stage is not Stage.UNDOING)
                )
                if request in self.alive and self.alive[request].reserved and not again:
                    self.alive.pop(request)
                    self.told.pop(request, None)
            case Lost(request):
                # One that was over before its client was told, too.
                if self.alive.get(request, None) is not None and self._over(request):
                    del self.alive[request], self.told[request]
            case Denied(request):
                self.alive.pop(request, None)
                self.told.pop(request, None)
            case Refresh(name):
                if self.daemons[name].up:
                    self.daemons[name].touch()
                    self.replies.append(self.daemons[name].report())
            case Waiting(_, place):
                assert place >= 1

    def _over(self, request: str) -> bool:
        """True if a reservation of which its client was told is there no more."""
        there = any(request in daemon.leases for daemon in self.daemons.values())
        return request in self.told and self.alive[request].reserved and not there

    def ask(
        self, request: Request, gang: str = "", size: int = 1, others: tuple[Request, ...] = ()
    ) -> None:
        self.alive[request.id] = request
        self.gangs[request.id] = gang, size
        self.others[request.id] = others
        self.tell(ev.Asked(request, wait=True, gang=gang, gang_size=size, others=others))

    def come(self, request: str) -> None:
        """The program of a run that knows its place comes for its leases."""
        for daemon in self.daemons.values():
            if request in daemon.leases:
                daemon.begun.add(request)

    def die(self, request: str) -> None:
        """The client of a run that knows its place dies; the program too, if it has come."""
        booking = self.manager.book.get(request)
        if booking is None or booking.stage is not Stage.PLACED:
            self.end(request)  # its client asks again, and is noticed when it goes
            return
        self.alive.pop(request, None)
        self.told.pop(request, None)
        self.tell(ev.Left(request))
        for daemon in self.daemons.values():
            if request in daemon.begun:
                daemon.drop(request)  # its connection has ended

    def expire(self) -> None:
        """The daemons look at their clocks. Clocks of daemons do not jump."""
        for daemon in self.daemons.values():
            before = set(daemon.ends)
            daemon.expire(self.true_ns)
            # Whoever is alive has come, as far as the other tests are concerned.
            for run in daemon.unclaimed(self.true_ns):
                if run not in self.alive:
                    daemon.drop(run)
            for request in before - set(daemon.ends):
                # Without an answer its client still asks, and gets it anew.
                if self.told.pop(request, None) is not None:
                    self.alive.pop(request, None)

    def pass_time(self, ns: int) -> None:
        """Time passes for everybody."""
        self.now_ns += ns
        self.true_ns += ns

    def end(self, request: str) -> None:
        self.alive.pop(request, None)
        self.told.pop(request, None)
        self.tell(ev.Withdrawn(request))

    def deliver(self, which: int, *, lose_reply: bool = False) -> None:
        """Brings a message to its daemon; the reply may be lost on its way back."""
        message = self.post.pop(which % len(self.post))
        if isinstance(message, Resize):
            daemon = self.daemons[message.card.node]
            if daemon.up:
                answer = daemon.resize(message)
                if not lose_reply:
                    self.replies.append(answer)
            return
        daemon = self.daemons[message.node]
        request = message.request.id if isinstance(message, Grant) else message.id
        if not daemon.up:
            if isinstance(message, Grant):
                self.replies.append(
                    ev.GrantFailed(
                        request, message.node, message.attempt, "no answer", certain=False
                    )
                )
            return
        if isinstance(message, Abandon):
            daemon.abandon(message)
            return
        if isinstance(message, Grant):
            reply: ev.Event = daemon.grant(message, self.true_ns)
        else:
            reply = daemon.revoke(request, message.attempt)
        if not lose_reply:
            self.replies.append(reply)

    def settle(self) -> None:
        """Delivers all messages, lets time pass, and lets lost messages be sent again."""
        for _ in range(200):
            while self.post or self.replies:
                while self.post:
                    self.deliver(0)
                while self.replies:
                    self.tell(self.replies.pop(0))
            self._again()
            # Requests that were refused are tried again after a while.
            self.pass_time(2 * SECOND)
            self.tell(ev.Tick())
            idle = not any(entry.not_before_ns for entry in self.manager.line)
            idle = idle and self.manager.relief.rests
            # A grant whose answer was lost and whose lease is over is placed again in time.
            idle = idle and all(one.stage is Stage.PLACED for one in self.manager.book)
            if not self.post and not self.replies and idle:
                return
        raise AssertionError("the world does not come to rest")

    def _again(self) -> None:
        """What agents and the manager's shell do on their own after a while."""
        for daemon in self.daemons.values():
            if daemon.up:
                # Its programs may use less memory than before.
                daemon.touch()
                self.tell(daemon.report())
                self.tell(ev.NodeBeat(daemon.node.name, daemon.node.generation))
        for booking in self.manager.book:
            if booking.stage.value == "undoing":
                for name in booking.waiting_for:
                    request = booking.entry.request.id
                    self.post.append(Revoke(request, name, booking.entry.attempt))
        for name, daemon in self.daemons.items():
            for request, there in list(daemon.leases.items()):
                known = request in self.manager.book
                ended = request not in self.alive and not known
                # Its program has been told other cards, so nobody comes for this lease.
                unused = not set(there) <= set(self.told.get(request, there))
                if daemon.up and (ended or unused):
                    # It has no sessions, so it expires.
                    self.post.append(Revoke(request, name, attempt_of(there)))

    def restart_manager(self) -> None:
        """The manager is killed and started: it knows nothing; agents and clients come back."""
        self.manager = Manager(limits=LIMITS, quotas=self.quotas)
        self.post.clear()
        self.replies.clear()
        for daemon in self.daemons.values():
            if daemon.up:
                self.tell(daemon.report())
        for request in list(self.alive.values()):
            # A client whose program runs asks no more; nor does who was told of a reservation.
            if request.id not in self.told:
                self.ask(request, *self.gangs[request.id], self.others[request.id])
            elif self._over(request.id):
                del self.alive[request.id], self.told[request.id]


def check_bounds(world: World, decision: Decision) -> None:
    """Asserts that a request has the cards that it asked for, no more of one place than allowed."""
    asked, cards = decision.request, decision.chosen.cards
    assert len(set(cards)) == asked.cards
    if decision.chosen.transport == "" and decision.chosen.score.total == 0:
        return  # taken over after a restart
    places = [(card.node, _site(world, card.node)) for card in cards]
    for most, of in (
        (asked.max_per_node, [name for name, _ in places]),
        (asked.max_per_rack, [site for _, site in places]),
        (asked.max_per_zone, [zone for _, (_, zone) in places]),
    ):
        assert not most or max(Counter(of).values()) <= most, decision
    assert not asked.one_node or len({name for name, _ in places}) == 1


def _site(world: World, name: str) -> tuple[str, str]:
    return world.daemons[name].node.rack, world.daemons[name].node.zone
