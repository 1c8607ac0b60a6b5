"""No test leaves anything at a server that outlives it."""

from __future__ import annotations

import pytest
from helpers import telling
from helpers.leaving import Standing


class Stood:
    """Stands in for a server. Each look at it takes the next of these answers; the last one stays."""

    def __init__(self, *answers: set[str]) -> None:
        self.answers = list(answers)
        self.looks = 0

    def passing(self) -> set[str]:
        self.looks += 1
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def test_what_ends_late_is_waited_for() -> None:
    standing, server = Standing(), Stood(set(), {"session 1"}, {"session 1"}, set())
    standing.begin(server.passing)
    with standing.nothing_left():
        assert server.looks == 1
    assert server.looks == 4


def test_what_a_fixture_of_the_file_holds_may_stay() -> None:
    standing, server = Standing(0), Stood({"session 1"})
    standing.begin(server.passing)
    for looks in (2, 3):  # once only it is asked what it has before a test
        with standing.nothing_left():
            pass
        assert server.looks == looks
    server.answers = [{"session 1", "session 2"}]
    standing.changed()
    with standing.nothing_left():
        assert server.looks == 4


def test_what_stays_is_named() -> None:
    standing, server = Standing(0), Stood(set(), {"session 1", "lease run-2"})
    standing.begin(server.passing)
    with (
        pytest.raises(AssertionError, match="after the test: lease run-2, session 1"),
        standing.nothing_left(),
    ):
        pass


def test_who_has_ended_is_not_asked() -> None:
    standing, server, other = Standing(0), Stood({"session 1"}), Stood(set())
    with standing.nothing_left():
        standing.begin(server.passing)
        standing.begin(other.passing)
        standing.end(server.passing)
        standing.end(server.passing)
    assert (server.looks, other.looks) == (0, 1)


def test_a_test_that_has_failed_is_not_failed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    standing, server = Standing(0), Stood(set(), {"session 1"})
    standing.begin(server.passing)
    with standing.nothing_left():
        monkeypatch.setattr(telling, "test_failed", True)
    monkeypatch.undo()
    with standing.nothing_left():  # it found it so
        pass
