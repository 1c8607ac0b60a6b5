"""The cost model, the ranking and the inertia: pure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netprobe.choice import Chooser, Inertia, choose, rank
from netprobe.cost import BULK_BOUND, CALL_BOUND, MIXED, Workload, cost, profile
from netprobe.prober import Measurement
from netprobe.schemes import scheme_of
from probe.paths import broken, path

LAN = path("tcp:lan:7700", trip=0.0001, rate=125e6)
WIDE = path("tcp:wide:7700", trip=0.002, rate=1.25e9)


def test_a_step_costs_its_waits_calls_and_bytes() -> None:
    spent = cost(path("tcp:a:1", trip=0.001, rate=1e8, messages=1e6), MIXED)
    assert spent.waits == pytest.approx(MIXED.syncs * 0.001)
    assert spent.calls == pytest.approx(MIXED.calls / 1e6)
    assert spent.up == pytest.approx(MIXED.up_bytes / 1e8)
    assert spent.down == pytest.approx(MIXED.down_bytes / 1e8)
    assert spent.total == pytest.approx(spent.waits + spent.calls + spent.up + spent.down)


def test_what_costs_most_is_named() -> None:
    assert cost(LAN, BULK_BOUND).most.startswith("copying")
    assert cost(path("tcp:a:1", trip=0.02), CALL_BOUND).most == "waiting for answers"


def test_the_workload_decides() -> None:
    paths = [LAN, WIDE]
    calls, bulk = choose(paths, CALL_BOUND), choose(paths, BULK_BOUND)
    assert calls is not None
    assert bulk is not None
    assert calls.uri == LAN.uri
    assert bulk.uri == WIDE.uri
    assert bulk.others == (LAN.uri,)
    assert "bulk-bound" in bulk.reason
    assert "times as long" in bulk.reason


def test_what_is_close_is_decided_by_preference() -> None:
    best = choose([path("grpc:a:1", trip=0.00050), path("tcp:a:1", trip=0.00052)], CALL_BOUND)
    assert best is not None
    assert best.uri == "tcp:a:1"
    assert "tcp is preferred" in best.reason


def test_what_does_not_work_is_not_chosen() -> None:
    one = choose([broken("tcp:a:1"), path("grpc:a:1")])
    assert one is not None
    assert (one.uri, one.reason) == ("grpc:a:1", "it is the only one of 2 paths that works")
    assert choose([broken("tcp:a:1")]) is None
    assert choose([]) is None
    with pytest.raises(ValueError, match="does not work"):
        cost(broken("tcp:a:1"), MIXED)


def test_workloads_are_named_after_what_they_do() -> None:
    assert profile(100_000, 10, 0, 0).name == "call-bound"
    assert profile(100, 10, 1 << 30, 0).name == "bulk-bound"
    assert profile(1000, 10, 1 << 20, 1 << 20).name == "mixed"
    assert profile(0, 0, 0, 0).empty


@pytest.mark.parametrize(
    ("uri", "scheme"),
    [("host:1", "tcp"), ("[::1]:1", "tcp"), ("unix:/s", "unix"), ("grpcs:h:1", "grpcs")],
)
def test_schemes(uri: str, scheme: str) -> None:
    assert scheme_of(uri) == scheme


def test_a_session_moves_when_another_path_has_been_better_for_long() -> None:
    chooser = Chooser(LAN.uri, Inertia(margin=0.25, times=3))
    seen = [chooser.observe([LAN, WIDE], BULK_BOUND) for _ in range(3)]
    assert [move.uri for move in seen] == [None, None, WIDE.uri]
    assert "1 of 3 times" in seen[0].reason
    assert "3 times in a row" in seen[2].reason
    chooser.moved(WIDE.uri)
    assert chooser.observe([LAN, WIDE], BULK_BOUND).uri is None


def test_noise_moves_nobody() -> None:
    chooser = Chooser(LAN.uri)
    for _ in range(10):
        assert chooser.observe([LAN, WIDE], BULK_BOUND).uri is None
        assert chooser.observe([LAN, WIDE], BULK_BOUND).uri is None
        assert chooser.observe([LAN, WIDE], CALL_BOUND).uri is None


def test_paths_that_are_better_in_turn_move_nobody() -> None:
    """Each other path begins to count anew."""
    chooser, other = Chooser(LAN.uri), path("tcp:other:7700", trip=0.002, rate=1.25e9)
    for one in (WIDE, other) * 3:
        assert chooser.observe([LAN, one], BULK_BOUND).uri is None


def test_a_little_better_is_not_enough() -> None:
    a, b = path("tcp:a:1", trip=0.0010), path("tcp:b:1", trip=0.0009)
    chooser = Chooser(a.uri, Inertia(margin=0.25, times=1))
    assert chooser.observe([a, b], CALL_BOUND).uri is None


def test_a_broken_path_is_left_at_once() -> None:
    chooser = Chooser(LAN.uri)
    move = chooser.observe([broken(LAN.uri, "no route"), WIDE], CALL_BOUND)
    assert move.uri == WIDE.uri
    assert "no route" in move.reason
    assert chooser.observe([broken(LAN.uri), broken(WIDE.uri)], CALL_BOUND).uri is None


uris = st.sampled_from(["shm:/s", "unix:/s", "tcp:a:1", "tcp:b:1", "tls:a:2", "grpc:a:3"])
measured = st.builds(path, uris, st.floats(1e-6, 1), st.floats(1e5, 1e11), st.floats(1e3, 1e8))
rounds = st.lists(
    st.lists(st.one_of(measured, st.builds(broken, uris)), max_size=6, unique_by=lambda p: p.uri)
)


@given(rounds, st.sampled_from([CALL_BOUND, BULK_BOUND, MIXED]))
def test_a_chooser_never_goes_where_nothing_works(
    rounds: list[list[Measurement]], workload: Workload
) -> None:
    chooser = Chooser("tcp:a:1")
    for paths in rounds:
        move = chooser.observe(paths, workload)
        assert move.reason
        if move.uri is not None:
            assert move.uri != chooser.current
            assert next(p for p in paths if p.uri == move.uri).works
            chooser.moved(move.uri)


@given(st.lists(measured, min_size=1, max_size=6, unique_by=lambda p: p.uri))
def test_the_first_is_never_clearly_worse(paths: list[Measurement]) -> None:
    ranked = rank(paths)
    assert {one.uri for one in ranked} == {one.uri for one in paths}
    assert ranked[0].seconds <= 1.1 * min(one.seconds for one in ranked) * (1 + 1e-9)
