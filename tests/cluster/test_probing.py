"""Which paths are measured: a few of each class, and each again when it is old."""

from __future__ import annotations

import pytest

from cluster.samples import node, request
from rgpu_cluster.core.node import site_of
from rgpu_cluster.core.paths import MOST_DOUBTS, End, Figures, Paths
from rgpu_cluster.core.probing import AT_ONCE, PAUSE, Probing
from rgpu_cluster.core.request import Client

FIGURES = Figures(1000, 10, 10**9, 10**9, 10**6)


def test_each_class_is_measured_once_and_not_each_pair() -> None:
    nodes = [node(f"n{i}", rack=f"r{i % 2}") for i in range(100)]
    probing, paths, pairs = Probing(), Paths(), []
    for _ in range(10):
        found = probing.look(nodes, paths)
        assert len(found) <= AT_ONCE
        assert len({client.name for client, _ in found}) == len(found)
        for client, server in found:
            assert client.name != server.name
            pairs.append((client, server))
            paths.learn(End(client.rack, ""), End(server.rack, ""), FIGURES)
    assert len(pairs) == 4
    assert len(paths.measured()) == 4


def test_a_path_that_cannot_be_measured_is_tried_by_another_pair_after_longer_and_longer() -> None:
    nodes = [node("a", rack="r1"), node("b", rack="r2"), node("c", rack="r2")]
    probing, paths, seen = Probing(), Paths(), []
    for look in range(3 * PAUSE):
        for client, server in probing.look(nodes, paths):
            if (client.rack, server.rack) == ("r1", "r2"):
                seen.append((look, server.name))
    assert [look for look, _ in seen] == [0, 5, 15, 35, 65]
    assert {name for _, name in seen} == {"b", "c"}


def test_old_figures_are_measured_again() -> None:
    nodes = [node("a"), node("b")]
    probing, paths = Probing(), Paths()
    assert probing.look(nodes, paths)
    paths.learn(End("", ""), End("", ""), FIGURES)
    paths.grow_older(599 * 10**9)
    assert not [pair for _ in range(PAUSE) for pair in probing.look(nodes, paths)]
    paths.grow_older(700 * 10**9)
    assert probing.look(nodes, paths)


@pytest.mark.parametrize(
    "starved",
    [
        Figures(250_000, 10, 400_000, 10**9, 10**6, "shm"),
        Figures(90_000_000, 10, 10**9, 10**9, 10**6),
    ],
)
def test_figures_of_a_starved_machine_are_measured_again_and_used_by_nobody(
    starved: Figures,
) -> None:
    nodes = [node("a"), node("b")]
    probing, paths, ends = Probing(), Paths(), (End("", ""), End("", ""))
    profile = request().profile
    guessed = paths.predict(Client(), site_of(nodes[0]), profile)
    looks = 0
    for doubts in range(1, MOST_DOUBTS + 1):
        while not probing.look(nodes, paths):
            looks += 1
        paths.learn(*ends, starved)
        assert paths.doubted(ends) is (doubts < MOST_DOUBTS)
        predicted = paths.predict(Client(), site_of(nodes[0]), profile)
        assert (predicted == guessed) is (doubts < MOST_DOUBTS), "a slow network says it again"
    assert looks < 2 * PAUSE
    paths.learn(*ends, FIGURES)
    paths.learn(*ends, starved)
    assert paths.doubted(ends), "in a row"


def test_a_lone_node_measures_nothing() -> None:
    assert Probing().look([node("a")], Paths()) == []
