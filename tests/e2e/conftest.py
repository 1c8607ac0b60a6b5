"""A server with an emulated device, shared by the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from helpers.server import Server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


@pytest.fixture(params=["unix", "tcp"])
def transport(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind
