"""docker-compose.manager.yml unchanged, under podman: programs are placed, one node is drained,
another one dies, and nothing is left afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from helpers.composed import Composed
from helpers.engine import MANAGER_FILE, Engine
from helpers.placed import CLIENTS, check_picture

pytestmark = pytest.mark.timeout(1800)
# In this order each finds what its depends_on names, also where podman does not wait for health.
ORDER = (("manager",), ("gpu-1", "gpu-2", "gpu-3"), ("far",))


@pytest.fixture(scope="module")
def cluster(images: Engine) -> Iterator[Composed]:
    """The manager and its nodes run and are healthy."""
    one = Composed(images, MANAGER_FILE)
    try:
        for services in ORDER:
            one.up(*services)
        yield one
    finally:
        one.down()


def test_programs_leave_a_node_that_drains_or_dies(cluster: Composed) -> None:
    cluster.up(*sorted(CLIENTS))
    cluster.start("report")  # it ends by itself
    status, said = cluster.ended("report")
    assert status == "0", said
    check_picture(said)
    for program in sorted(CLIENTS):
        status, said = cluster.ended(program)
        assert status == "0", said


def test_nothing_is_left(cluster: Composed) -> None:
    cluster.down()
    cluster.assert_nothing_is_left()
