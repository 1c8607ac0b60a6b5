"""Nodes that make numbers up, lose cards, or answer nothing: the manager bears it."""

from __future__ import annotations

from msgspec.structs import replace

from cluster.samples import GIB, PERCENT, node, pool_of, put, request
from cluster.test_making_room import ask, elastic, full, obey, of
from rgpu_cluster.core import events as ev
from rgpu_cluster.core.actions import Action, Denied, Grant, Placed, Resize, Revoke
from rgpu_cluster.core.card import CardId, Holding
from rgpu_cluster.core.classes import kind_of
from rgpu_cluster.core.limits import MOST_COUNTED, SECOND, Limits
from rgpu_cluster.core.line import gang_key
from rgpu_cluster.core.manager import Manager
from rgpu_cluster.core.node import site_of
from rgpu_cluster.core.paths import MOST_MEASURED, MOST_WAITING_PPM, End, Figures, Paths
from rgpu_cluster.core.request import Profile
from rgpu_cluster.core.score import PRESETS, Scorer, free_of
from rgpu_common.units import PPM

CARD = CardId("n1", 0)


def held(asked_id: str, attempt: int, tenant: str = "a") -> Holding:
    return Holding(asked_id, tenant, 30 * PERCENT, 8 * GIB, attempt=attempt)


def wait_and_tell(manager: Manager, seconds: int, *alive: str) -> list[Action]:
    """Lets time pass, while these nodes say that they are there."""
    said = []
    start = manager.now_ns // SECOND
    for second in range(start + 1, start + seconds + 1):
        for name in alive:
            said += manager.handle(ev.NodeBeat(name, 1), second * SECOND)
        said += manager.handle(ev.Tick(), second * SECOND)
    return said


def test_the_manager_does_not_count_on_from_an_attempt_that_is_made_up() -> None:
    """A joined node says that it has the lease of a request, of an attempt that no message holds."""
    for lie in (MOST_COUNTED + 1, 2 * MOST_COUNTED, (1 << 32) - 1):
        manager = Manager()
        manager.handle(ev.NodeReported(node("n1"), {CARD: (held("run-1", lie),)}), 0)
        said = manager.handle(ev.Asked(request(1), wait=True), 0)
        assert [(one.node, one.attempt) for one in of(Revoke, said)] == [("n1", lie)]
        gone = replace(node("n1"), generation=2)
        said = manager.handle(ev.NodeReported(gone, {}), 0)
        assert [one.attempt for one in of(Grant, said)] == [2]


def test_the_manager_does_not_count_on_from_a_change_that_is_made_up() -> None:
    """One node's lie must not be in the orders for the leases of another."""
    manager = full(20, 20)
    lying = manager.pool.holding(CardId("n0", 0), "old-0")
    liar = replace(lying, order=(1 << 32) - 1)
    told = ev.NodeReported(replace(node("n0"), generation=2), {CardId("n0", 0): (liar,)})
    manager.handle(told, 0)
    said = ask(manager, [request(1, share_ppm=80 * PERCENT, memory_bytes=GIB)])
    said += ask(manager, [request(2, share_ppm=80 * PERCENT, memory_bytes=GIB)])
    numbers = [one.number for one in of(Resize, said)]
    assert len(numbers) == 2
    assert max(numbers) <= 2


def test_a_card_that_gained_room_and_went_is_looked_at_no_more() -> None:
    pool = pool_of(node("n1", 2))
    put(pool, ("n1", 1), 7, whole=True)
    before = pool.room
    pool.release("run-7")
    assert pool.gained(before) == {CardId("n1", 1)}
    pool.report(replace(node("n1", 1), generation=2), {})
    assert pool.gained(before) is None  # perhaps any card


def test_a_request_that_only_a_lost_card_could_take_is_denied() -> None:
    manager = Manager()
    small = replace(
        node("n1", 2), cards=(node("n1", 1, memory=GIB).cards[0], node("n1", 2).cards[1])
    )
    manager.handle(ev.NodeReported(small, {}), 0)
    assert of(Grant, ask(manager, [request(1, share_ppm=PPM)]))
    manager.handle(ev.Granted("run-1", "n1", 1, 2), 0)
    assert not of(Denied, ask(manager, [request(2)]))
    fewer = replace(small, cards=small.cards[:1], generation=3)
    said = manager.handle(ev.NodeReported(fewer, {}), 0)
    assert [one.id for one in of(Denied, said)] == ["run-2"]


def test_a_claim_on_a_card_that_goes_is_put_back() -> None:
    """Leases were making room on it."""
    manager = full(20)
    said = ask(manager, [request(1, share_ppm=80 * PERCENT, memory_bytes=GIB)])
    (order,) = of(Resize, said)
    spare = node("n9")
    manager.handle(ev.NodeReported(spare, {CardId("n9", 0): (elastic(9, 90),)}), 0)
    bare = replace(node("n0"), cards=(), generation=2)
    manager.handle(ev.NodeReported(bare, {}), 0)
    assert "run-1" in manager.line
    back = replace(node("n0"), generation=3)
    said = manager.handle(ev.NodeReported(back, {}), 0)
    assert [one.request.id for one in of(Grant, said)] == ["run-1"]
    assert obey(manager, order) == []  # the answer to the old order


def test_a_request_is_placed_without_a_server_that_answers_nothing() -> None:
    """Its agent says that it is there; neither the grant nor the revocation is answered."""
    limits = Limits()
    manager = Manager(limits=limits)
    manager.handle(ev.NodeReported(node("n1"), {}), 0)
    (grant,) = of(Grant, ask(manager, [request(1)]))
    assert grant.node == "n1"
    second = node("n2")
    manager.handle(ev.NodeReported(second, {}), 0)
    said = wait_and_tell(manager, 2 * limits.grant_ns // SECOND + 2, "n1", "n2")
    assert [(one.node, one.attempt) for one in of(Revoke, said)] == [("n1", 1)]
    assert [(one.node, one.attempt) for one in of(Grant, said)] == [("n2", 2)]
    said = manager.handle(ev.Granted("run-1", "n2", 2, 2), manager.now_ns)
    assert of(Placed, said)
    # It had granted after all: that lease ends.
    late = replace(node("n1"), generation=2)
    said = manager.handle(ev.NodeReported(late, {CARD: (held("run-1", 1),)}), manager.now_ns)
    assert [(one.node, one.attempt) for one in of(Revoke, said)] == [("n1", 1)]


def test_a_request_that_does_not_wait_hears_of_the_server_that_answers_nothing() -> None:
    limits = Limits()
    manager = Manager(limits=limits)
    manager.handle(ev.NodeReported(node("n1"), {}), 0)
    ask(manager, [request(1)], wait=False)
    said = wait_and_tell(manager, 2 * limits.grant_ns // SECOND + 2, "n1")
    (denied,) = of(Denied, said)
    assert "the server of node n1 does not answer; try again for another node" in denied.why


def test_runs_that_name_different_sizes_of_one_gang_are_told() -> None:
    manager = Manager()
    manager.handle(ev.NodeReported(node("n1", 4), {}), 0)
    manager.handle(ev.Asked(request(1), wait=True, gang=gang_key("a", "train"), gang_size=3), 0)
    said = manager.handle(
        ev.Asked(request(2), wait=True, gang=gang_key("a", "train"), gang_size=2), 0
    )
    (denied,) = of(Denied, said)
    assert denied.why == (
        "gang 'train' is in line with runs that say 3 runs in all, and this one says 2: give all "
        "of them the same number, or this one another word"
    )
    said = manager.handle(
        ev.Asked(request(3), wait=True, gang=gang_key("b", "train"), gang_size=2), 0
    )
    assert not of(Denied, said)  # another tenant's gang is another gang


def test_scores_and_predictions_fit_into_messages() -> None:
    tiny = kind_of(node("n1", memory=1).cards[0])
    assert free_of(tiny, 3 * PPM, 1 << 50) == (0, 0)
    worst = Figures(1 << 50, 1 << 50, 1, 1, 1)
    paths = Paths()
    for number in range(MOST_MEASURED + 10):
        paths.learn(End(f"r{number}", ""), End("", ""), worst)
    assert len(paths.measured()) == MOST_MEASURED
    profile = Profile(*[(1 << 32) - 1] * 2, *[1 << 50] * 2)
    scorer = Scorer(request(1, whole=True), PRESETS["latency"])
    assert scorer.network(2 * MOST_WAITING_PPM) < 1 << 62
    found = paths.predict(request(1).client, site_of(node("n9")), profile)
    assert found.slowdown_ppm <= 2 * MOST_WAITING_PPM
