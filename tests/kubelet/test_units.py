"""The units of other projects: what they mean, their ids, and which ids belong together."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rgpu_cluster.kubelet.errors import PrepareError
from rgpu_cluster.kubelet.units.inventory import cards_of, ids_of, preferred
from rgpu_cluster.kubelet.units.vocabulary import VOCABULARIES, Asked, asked
from rgpu_common.v1 import agent_pb2

GIB = 1 << 30
CORE, MEMORY = VOCABULARIES["gpumanager"].resources
GPU_MEM, PERCENTAGE = VOCABULARIES["gpushare"].resources
CARDS = [agent_pb2.CardReport(ordinal=n, memory_bytes=2 * GIB) for n in (1, 0)]


@pytest.mark.parametrize(
    ("words", "units", "wanted"),
    [
        ("gpumanager", {CORE.name: 40, MEMORY.name: 8}, Asked(1, False, 400_000, 400_000, 2 * GIB)),
        ("gpumanager", {CORE.name: 100}, Asked(1, True)),
        ("gpumanager", {CORE.name: 200, MEMORY.name: 8}, Asked(2, True)),
        ("gpushare", {GPU_MEM.name: 3}, Asked(1, False, 0, 1_000_000, 3 * GIB)),
        ("gpushare", {GPU_MEM.name: 3, PERCENTAGE.name: 25}, Asked(1, False, 250_000, 250_000, 3 * GIB)),
        ("qgpu", {"tke.cloud.tencent.com/qgpu-core": 30, "tke.cloud.tencent.com/qgpu-memory": 4},
         Asked(1, False, 300_000, 1_000_000, 4 * GIB)),
    ],
)  # fmt: skip
def test_units_become_one_request(words: str, units: dict[str, int], wanted: Asked) -> None:
    assert asked(VOCABULARIES[words], units) == wanted


@pytest.mark.parametrize(
    ("units", "says"),
    [
        ({CORE.name: 150}, "or for a multiple of 100"),
        ({CORE.name: 40}, "name tencent.com/vcuda-memory too"),
    ],
)
def test_what_no_lease_can_be_is_refused(units: dict[str, int], says: str) -> None:
    with pytest.raises(PrepareError, match=says):
        asked(VOCABULARIES["gpumanager"], units)


def test_a_card_has_a_hundred_hundredths_and_its_memory() -> None:
    assert Counter(one.partition(".")[0] for one in ids_of(CARDS, CORE)) == {
        "gpu-0": 100,
        "gpu-1": 100,
    }
    assert len(ids_of(CARDS, MEMORY)) == 2 * 8
    assert ids_of(CARDS, GPU_MEM) == ["gpu-0.0", "gpu-0.1", "gpu-1.0", "gpu-1.1"]
    assert ids_of([agent_pb2.CardReport(memory_bytes=GIB, mig="1g.10gb")], CORE) == []


def test_units_come_from_the_card_with_the_least_room_that_has_enough() -> None:
    free = [f"gpu-0.{n}" for n in range(100)] + [f"gpu-1.{n}" for n in range(40)]
    assert cards_of(preferred(CORE, free, [], 30)) == [1]
    assert cards_of(preferred(CORE, free, [], 50)) == [0]
    assert cards_of(preferred(CORE, free, ["gpu-0.5"], 30)) == [0]
    assert cards_of(preferred(CORE, free, [], 100)) == [0]
    assert cards_of(preferred(CORE, free, [], 120)) == [0, 1]


def test_an_id_that_is_none_of_ours() -> None:
    with pytest.raises(PrepareError, match="restart the kubelet"):
        cards_of(["gpu-0.1", "../x"])


@given(
    st.lists(st.integers(0, 100), min_size=1, max_size=4),
    st.integers(0, 5),
    st.integers(1, 100),
)
def test_a_preference_is_some_of_what_is_free(rooms: list[int], needed: int, size: int) -> None:
    free = [f"gpu-{card}.{n}" for card, room in enumerate(rooms) for n in range(room)]
    size = min(size, len(free))
    must = free[:: max(len(free) // max(needed, 1), 1)][: min(needed, size)]
    chosen = preferred(CORE, free, must, size)
    assert len(chosen) == len(set(chosen)) == size
    assert set(must) <= set(chosen) <= set(free)
    if not must and any(room >= size for room in rooms) and size:
        assert len(cards_of(chosen)) == 1
