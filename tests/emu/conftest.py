"""The processes of the scenarios, for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from emu.children import Scenarios


@pytest.fixture(scope="session")
def scenarios() -> Iterator[Scenarios]:
    with Scenarios() as running:
        yield running
