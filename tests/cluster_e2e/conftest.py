"""One manager with three servers for the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from helpers.manager import ManagerProcess
from helpers.nodes import Nodes

RACKS = {"gpu1": "r1", "gpu2": "r1", "gpu3": "r2"}


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    """Two servers are in one rack, the third is in another; each has a card of 1 GiB."""
    with ManagerProcess() as manager, Nodes(manager, RACKS, "emulated:1GiB") as started:
        yield started
