"""Orders of a manager that change the size of a lease, on the server's own terms."""

from __future__ import annotations

from collections.abc import Mapping

from core.test_booked import GIB, RUN, Desk, node, order

from rgpu_common.clock import Clock
from rgpu_common.v1 import agent_pb2
from rgpu_server.agent.orders import Orders
from rgpu_server.agent.yielding import SETTLE_SECONDS, Yielding
from rgpu_server.core import actions as do
from rgpu_server.core import events as on
from rgpu_server.core.model import Refusal
from rgpu_server.core.shares import Change

SHARE = 300_000


class Hands(Clock):
    """A clock that stands where it is put."""

    at = 0.0

    def now(self) -> float:
        return self.at


class ResizingDesk(Desk):
    """Also resizes, and looks at what programs use. used: bytes of the only lease."""

    used = 0

    def resize(
        self,
        lease: str,
        change: Change,
        used: Mapping[int, int],
        *,
        kill: bool,
        by_operator: bool,
    ) -> do.Answer | Refusal:
        return self._ask(on.ResizeRequested(1, lease, change, used, kill, by_operator))

    def look(self) -> None:
        for lease in self._node.leases:
            self._node.handle(on.MemoryObserved({lease.id: self.used}), 0.0)


class Served:
    """A server with one lease that a manager asked for."""

    def __init__(self, **more: object) -> None:
        self.node, self.clock = node(), Hands()
        self.desk = ResizingDesk(self.node)
        self.yielding = Yielding(lambda _: self.desk.used, self.clock)
        self.orders = Orders(self.desk, self.node, self.clock, self.yielding)  # type: ignore[arg-type]
        assert self.orders.grant(order(**more)) is None

    def resize(self, number: int, share: int, memory: int, attempt: int = 1) -> tuple[int, int]:
        """Returns the size afterwards."""
        answer = self.orders.resize(
            agent_pb2.ResizeOrder(
                request_id=RUN, attempt=attempt, ordinal=0, number=number, share_ppm=share,
                memory_bytes=memory,
            )
        )  # fmt: skip
        return (answer.share_ppm, answer.memory_bytes) if answer.there else (-1, -1)


def test_a_lease_shrinks_to_its_least_and_grows_to_what_was_asked_for() -> None:
    served = Served(least_ppm=100_000, least_bytes=GIB // 4)
    assert served.resize(1, 200_000, GIB // 2) == (200_000, GIB // 2)
    assert served.resize(2, 0, 0) == (100_000, GIB // 4)
    assert served.resize(3, 900_000, 7 * GIB) == (SHARE, GIB)


def test_an_order_that_comes_late_or_twice_changes_nothing() -> None:
    served = Served(least_ppm=0, least_bytes=0)
    assert served.resize(2, 200_000, GIB) == (200_000, GIB)
    assert served.resize(1, 100_000, GIB) == (200_000, GIB)
    assert served.resize(2, 100_000, GIB) == (200_000, GIB)


def test_another_attempt_has_no_such_lease() -> None:
    served = Served(least_ppm=0)
    assert served.resize(1, 0, 0, attempt=2) == (-1, -1)


def test_a_lease_whose_owner_said_nothing_keeps_its_size() -> None:
    assert Served().resize(1, 0, 0) == (SHARE, GIB)


def test_what_programs_use_stays() -> None:
    served = Served(least_bytes=0)
    served.desk.used = GIB // 2
    assert served.resize(1, SHARE, 0) == (SHARE, GIB // 2)


def test_memory_that_is_allocated_meanwhile_is_not_given_away() -> None:
    served = Served(least_bytes=0)
    served.desk.used = 0
    seen = iter([0, 0, 3 * GIB // 4, 3 * GIB // 4])
    served.yielding._charged = lambda _: next(seen, 3 * GIB // 4)
    served.desk.used = 3 * GIB // 4
    assert served.resize(1, SHARE, GIB // 4)[1] == 3 * GIB // 4


def test_best_effort_lets_go_of_unused_memory_once_its_program_has_settled() -> None:
    served = Served(yields_unused=True)
    assert served.resize(1, SHARE, GIB // 4) == (SHARE, GIB)
    for lease in served.node.leases:
        lease.slots[0] = 1
    served.desk.used = GIB // 8
    assert served.resize(2, SHARE, GIB // 4) == (SHARE, GIB)
    served.clock.at = SETTLE_SECONDS
    assert served.resize(3, SHARE, 0) == (SHARE, GIB // 8)
