"""Networks of tests: programs that are compiled once, two namespaces, links between them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.links import NEEDED, Namespace, Network, build
from helpers.needs import fixture_needs


@pytest.fixture(scope="session")
@fixture_needs(*NEEDED)
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("links"))


@pytest.fixture(scope="module")
def network(programs: Path) -> Iterator[Network]:
    with Network(programs) as made:
        yield made


@pytest.fixture(scope="module")
def client(network: Network) -> Namespace:
    return network.namespace("client")


@pytest.fixture(scope="module")
def server(network: Network) -> Namespace:
    return network.namespace("server")
