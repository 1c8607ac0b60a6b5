"""Those who read the metrics in a loop do not keep the process from its work."""

from __future__ import annotations

from rgpu_server.observe.metrics import Rested

# How long the making of a page of a thousand leases takes.
COST = 0.25


class World:
    """A page that takes long to make. now: seconds, in which the thread works or idles."""

    def __init__(self, cost: float) -> None:
        self.now = self.worked = 0.0
        self._cost = cost
        self.made = 0
        self.page = Rested(self._make, lambda: self.now, lambda: self.worked)

    def _make(self) -> bytes:
        self.made += 1
        self.now += self._cost
        self.worked += self._cost
        return b"page %d" % self.made

    def idle(self, seconds: float) -> None:
        self.now += seconds


def test_two_scrapers_in_a_loop_take_a_small_part_of_the_time() -> None:
    world = World(COST)
    while world.now < 100:
        for _ in range(2):
            assert world.page.get() == b"page %d" % world.made
        world.idle(0.001)
    assert world.worked / world.now < 0.12
    assert world.made > 30  # and the page is new every few seconds


def test_who_reads_at_leisure_gets_a_new_page_each_time() -> None:
    world = World(COST)
    for number in range(1, 100):
        assert world.page.get() == b"page %d" % number
        world.idle(15)


def test_a_page_that_costs_little_is_new_each_time() -> None:
    world = World(0.002)
    for number in range(1, 200):
        assert world.page.get() == b"page %d" % number
