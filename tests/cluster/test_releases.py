"""`rgpu pool` says which nodes have another release of rgpu than the manager, as in an upgrade."""

from __future__ import annotations

from cluster.agent_world import report
from rgpu_client.cluster.show import release_lines
from rgpu_cluster.core.pool import Pool
from rgpu_cluster.manager.reading import node_of
from rgpu_cluster.manager.telling import pool_nodes
from rgpu_common.v1 import agent_pb2, cluster_pb2


def answer(**releases: str) -> cluster_pb2.GetPoolResponse:
    """What a manager of release 0.2 answers. releases: of its nodes, by name."""
    pool = Pool()
    for name, release in releases.items():
        said: agent_pb2.NodeReport = report(release=release)
        said.name = name
        pool.report(node_of(said, 1), {})
    nodes = pool_nodes(pool, lambda _: True, lambda _: True, lambda _: None)
    return cluster_pb2.GetPoolResponse(release="0.2", nodes=nodes)


def test_releases_are_told_as_long_as_they_differ() -> None:
    assert release_lines(answer(gpu1="0.1", gpu2="0.2", gpu3="0.1")) == [
        "",
        "the manager has rgpu 0.2",
        "rgpu 0.1: gpu1, gpu3",
        "rgpu 0.2: gpu2",
    ]
    assert release_lines(answer(gpu1="0.2", gpu2="0.2")) == []


def test_a_manager_that_tells_no_releases_is_no_mixture() -> None:
    assert release_lines(answer(gpu1="", gpu2="")) == []


def test_a_release_changes_no_terminal() -> None:
    lines = release_lines(answer(gpu1="0.1\x1b[2J\n" + "x" * 1000))
    assert lines[2] == f"rgpu 0.1?[2J?{'x' * 120}: gpu1"
