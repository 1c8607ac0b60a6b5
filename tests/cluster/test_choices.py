"""Requests with alternatives: the first that fits is taken, and else the request waits for any."""

from __future__ import annotations

from msgspec.structs import replace

from cluster.samples import GIB, PERCENT, node, request
from rgpu_cluster.core import events as ev
from rgpu_cluster.core.actions import Action, Announced, Denied, Grant, Placed, Revoke
from rgpu_cluster.core.card import CardId, Elastic, Holding
from rgpu_cluster.core.limits import SECOND, Limits
from rgpu_cluster.core.manager import Manager
from rgpu_cluster.core.quotas import Quotas, TenantQuota
from rgpu_cluster.core.request import Request, holding_of
from rgpu_cluster.manager.telling import explanation, in_short
from rgpu_common.units import PPM

NAMES = ("whole", "half", "third")


def adaptive(number: int = 1, **more: object) -> tuple[Request, ...]:
    """A whole card, else half of one, else a third."""
    return (
        request(number, whole=True, memory_bytes=0, memory_ppm=PPM, **more),
        request(number, share_ppm=50 * PERCENT, **more),
        request(number, share_ppm=33 * PERCENT, **more),
    )


class Desk:
    """A manager with one node, whose daemon grants all. granted: what each request has."""

    def __init__(self, cards: int = 1, **quotas: TenantQuota) -> None:
        self.manager = Manager(quotas=Quotas(quotas), limits=Limits(grace_ns=5 * SECOND))
        self.granted: dict[str, Grant] = {}
        self.denied: dict[str, Denied] = {}
        self.announced: list[str] = []
        self.now_ns = SECOND
        self.tell(ev.NodeReported(node("n1", cards, 80 * GIB), {}))

    def tell(self, event: ev.Event) -> list[Action]:
        said = self.manager.handle(event, self.now_ns)
        for action in said:
            if isinstance(action, Grant):
                self.granted[action.request.id] = action
                self.tell(ev.Granted(action.request.id, action.node, action.attempt, 1))
            elif isinstance(action, Revoke):
                self.granted.pop(action.id, None)
                self.tell(ev.Revoked(action.id, action.node, action.attempt))
            elif isinstance(action, Denied):
                self.denied[action.id] = action
            elif isinstance(action, Announced):
                self.announced.append(action.id)
        return said

    def ask(self, *choices: Request, gang: str = "", size: int = 1) -> str:
        first, *others = choices
        self.tell(ev.Asked(first, True, 0, gang, size, tuple(others)))
        return first.id

    def end(self, name: str) -> None:
        self.tell(ev.Withdrawn(name))

    def has(self, name: str) -> int | None:
        """The share that a request has, in percent; None while it waits."""
        grant = self.granted.get(name)
        return None if grant is None else grant.request.share_ppm // PERCENT

    def waits(self, name: str) -> str:
        entry = self.manager.line.get(name)
        assert entry is not None
        return in_short(entry.refusal, NAMES)


def test_the_first_that_fits_is_taken() -> None:
    for taken, gets in ((0, 100), (30, 50), (60, 33)):
        desk = Desk()
        if taken:
            desk.ask(request(9, share_ppm=taken * PERCENT))
        assert desk.has(desk.ask(*adaptive())) == gets


def test_one_that_waits_takes_whatever_fits_first() -> None:
    for left, gets in ((0, 100), (30, 50), (60, 33)):
        desk = Desk()
        first = desk.ask(request(8, share_ppm=(100 - left) * PERCENT))
        if left:
            desk.ask(request(9, share_ppm=left * PERCENT))
        mine = desk.ask(*adaptive())
        assert desk.has(mine) is None
        desk.end(first)
        assert desk.has(mine) == gets


def test_it_says_why_each_does_not_fit() -> None:
    desk = Desk()
    desk.ask(request(9, whole=True))
    said = desk.waits(desk.ask(*adaptive()))
    assert said.count("cannot be used") == 3
    assert said.startswith("whole: 1 card")
    assert "; third: 1 card" in said
    entry = desk.manager.line.get("run-1")
    assert entry is not None
    assert in_short(entry.refusal).startswith("alternative 1: ")
    assert entry.refusal is not None
    assert explanation(entry.refusal).sentence == in_short(entry.refusal)


def test_what_no_card_can_be_does_not_end_the_others() -> None:
    desk = Desk()
    desk.ask(request(9, whole=True))
    never = request(1, model="H900")
    assert "no H900" in desk.waits(desk.ask(never, request(1)))
    assert not desk.denied
    desk.ask(request(2, model="H900"), request(2, memory_bytes=90 * GIB))
    refusal = desk.denied["run-2"].refusal
    assert refusal is not None
    assert "no H900" in in_short(refusal)
    assert "the largest card has" in in_short(refusal)


def test_the_line_goes_by_its_own_order() -> None:
    """Who takes less does not go before who came first; and who wants more delays nobody."""
    desk = Desk(2)
    full = [desk.ask(request(number, whole=True)) for number in (8, 9)]
    first = desk.ask(*adaptive(1, tenant="b"))
    second = desk.ask(request(2, tenant="c", share_ppm=40 * PERCENT))
    desk.end(full[0])
    assert (desk.has(first), desk.has(second)) == (100, None)
    desk.end(full[1])
    assert desk.has(second) == 40
    # A third fits beside it, so it waits for nothing better.
    assert desk.has(desk.ask(*adaptive(3, tenant="b"))) == 50


def test_what_goes_beyond_the_quota_is_passed_over() -> None:
    desk = Desk(2, a=TenantQuota(share_ppm=60 * PERCENT))
    assert desk.has(desk.ask(*adaptive())) == 50
    assert "may have shares of 0.6 cards" in desk.waits(desk.ask(*adaptive(2)))


def test_one_of_its_own_is_in_line_before_those_who_borrow() -> None:
    own = TenantQuota(share_ppm=60 * PERCENT, borrow=True)
    desk = Desk(1, a=own, b=TenantQuota(share_ppm=0, borrow=True))
    full = desk.ask(request(9, whole=True, tenant="c"))
    borrower = desk.ask(request(2, tenant="b", share_ppm=60 * PERCENT))
    mine = desk.ask(*adaptive(1)[:2])
    desk.end(full)
    # The whole card would go beyond its quota, and nobody waits who is owed it.
    assert (desk.has(mine), desk.has(borrower)) == (100, None)


def test_it_does_not_borrow_what_a_later_one_is_owed() -> None:
    own = TenantQuota(share_ppm=60 * PERCENT, borrow=True)
    desk = Desk(1, a=own, b=own)
    full = desk.ask(request(9, whole=True, tenant="c"))
    mine = desk.ask(*adaptive(1))
    other = desk.ask(request(2, tenant="b", share_ppm=50 * PERCENT))
    desk.end(full)
    assert (desk.has(mine), desk.has(other)) == (50, 50)


def test_it_may_borrow_while_those_wait_who_own_nothing() -> None:
    desk = Desk(1, a=TenantQuota(share_ppm=60 * PERCENT, borrow=True))
    full = desk.ask(request(9, whole=True, tenant="c"))
    mine = desk.ask(*adaptive(1))
    desk.ask(request(2, tenant="b", share_ppm=50 * PERCENT))
    desk.end(full)
    assert desk.has(mine) == 100


def test_nobody_gives_way_while_an_alternative_is_free() -> None:
    desk = Desk(1)
    elastic = request(9, share_ppm=60 * PERCENT, least_ppm=10 * PERCENT)
    desk.ask(elastic)
    half, third = adaptive()[1:]
    assert desk.has(desk.ask(half, third)) == 33
    assert desk.manager.pool.holding(CardId("n1", 0), "run-9").share_ppm == 60 * PERCENT  # type: ignore[union-attr]


def test_an_end_that_was_announced_for_one_alternative_is_not_called_off() -> None:
    own = TenantQuota(share_ppm=50 * PERCENT)
    desk = Desk(1, a=own, b=TenantQuota(share_ppm=0, borrow=True))
    desk.ask(request(9, tenant="b", share_ppm=90 * PERCENT))
    desk.ask(request(8, tenant="c", share_ppm=10 * PERCENT, memory_bytes=40 * GIB))
    # There is no room for the first even if the lease of b ends.
    large = request(1, share_ppm=50 * PERCENT, memory_bytes=60 * GIB)
    mine = desk.ask(large, request(1, share_ppm=50 * PERCENT))
    for _ in range(8):
        desk.now_ns += SECOND
        desk.tell(ev.Tick())
    assert desk.announced.count("run-9") == 2, "announced once, and over once"
    assert desk.has(mine) == 50


def test_a_gang_takes_the_same_alternative() -> None:
    desk = Desk(2)
    desk.ask(request(9))
    first = desk.ask(*adaptive(1), gang="g", size=2)
    assert desk.has(first) is None
    second = desk.ask(*adaptive(2), gang="g", size=2)
    assert (desk.has(first), desk.has(second)) == (50, 50)


def test_a_server_that_does_not_allow_one_may_allow_the_next() -> None:
    manager = Manager()
    manager.handle(ev.NodeReported(node("n1"), {}), SECOND)
    first, *others = adaptive()
    (grant,) = manager.handle(ev.Asked(first, True, others=tuple(others)), SECOND)
    assert isinstance(grant, Grant)
    no = ev.GrantFailed("run-1", "n1", 1, "too much", certain=True, ground=ev.Ground.FORBIDDEN)
    (again,) = manager.handle(no, SECOND)
    assert isinstance(again, Grant)
    assert again.request.share_ppm == 50 * PERCENT


def held(asked: Request) -> dict[CardId, tuple[Holding, ...]]:
    return {CardId("n1", 0): (holding_of(asked, 80 * GIB, 1),)}


def test_a_manager_that_was_started_again_knows_which_it_was() -> None:
    choices = adaptive()
    for number, mine in enumerate(choices):
        manager = Manager()
        manager.handle(ev.NodeReported(node("n1"), held(mine)), SECOND)
        said = manager.handle(ev.Asked(choices[0], True, others=choices[1:]), SECOND)
        (placed,) = [one for one in said if isinstance(one, Placed)]
        assert placed.decision.request == mine
        booking = manager.book.get("run-1")
        assert booking is not None
        assert booking.entry.chosen == number


def test_a_lease_that_has_shrunk_is_known_by_what_it_wants() -> None:
    wide = request(1, share_ppm=50 * PERCENT, least_ppm=10 * PERCENT)
    one = replace(
        holding_of(wide, 80 * GIB, 1),
        share_ppm=20 * PERCENT,
        elastic=Elastic(10 * PERCENT, 8 * GIB, 50 * PERCENT, 8 * GIB),
    )
    manager = Manager()
    manager.handle(ev.NodeReported(node("n1"), {CardId("n1", 0): (one,)}), SECOND)
    first = request(1, whole=True)
    said = manager.handle(ev.Asked(first, True, others=(wide,)), SECOND)
    assert [type(action) for action in said] == [Placed]


def test_a_lease_that_is_none_of_them_is_given_back() -> None:
    manager = Manager()
    manager.handle(ev.NodeReported(node("n1"), held(request(1, share_ppm=7 * PERCENT))), SECOND)
    first, *others = adaptive()
    said = manager.handle(ev.Asked(first, True, others=tuple(others)), SECOND)
    assert isinstance(said[0], Revoke)
    said = manager.handle(ev.NodeReported(node("n1", generation=2), {}), SECOND)
    (grant,) = [one for one in said if isinstance(one, Grant)]
    assert grant.request == first
