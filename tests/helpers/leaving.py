"""No test leaves anything at a server or a manager that outlives it.

A session ends a moment after its program, its lease after that, and the manager hears of it last. A
test that counts what a server has would count also what an earlier test of its file has left: now
and then, on a busy machine. So each test ends when all that still run have nothing but what they
had before it, which is what fixtures of the file hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from helpers import telling
from helpers.waiting import wait_until

# Longer than a server keeps the session of a client that was cut off, and its lease after that.
SECONDS = 90
Passing = Callable[[], set[str]]


class Standing:
    """The servers and managers that run now, and what each has while no test uses it. It is told of
    each by a function that returns a word for each thing that is soon gone if nobody uses it.
    """

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._held: dict[Passing, set[str] | None] = {}

    def begin(self, passing: Passing) -> None:
        """It runs from now on."""
        self._held[passing] = None

    def end(self, passing: Passing) -> None:
        """It stops, if it ran."""
        self._held.pop(passing, None)

    def changed(self) -> None:
        """What fixtures hold is looked at anew: there is one more that outlives a test."""
        self._held = dict.fromkeys(self._held)

    @contextmanager
    def nothing_left(self) -> Iterator[None]:
        """A test runs in the block. What runs on after it has nothing more then than before it."""
        for passing, held in list(self._held.items()):
            if held is None:
                self._held[passing] = passing()
        yield
        if telling.test_failed:
            self.changed()  # whatever it has left is not for the next test to explain
            return
        for passing, held in list(self._held.items()):
            before = held or set()
            self._wait(passing, before)
            self._held[passing] = before

    def _wait(self, passing: Passing, before: set[str]) -> None:
        more: set[str] = set()

        def none_left() -> bool:
            nonlocal more
            more = passing() - before
            return not more

        try:
            wait_until(none_left, self._seconds)
        except AssertionError:
            left = ", ".join(sorted(more))
            raise AssertionError(f"this is still here after the test: {left}") from None


standing = Standing()
