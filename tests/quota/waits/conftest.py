"""A server with the default limit of a minute for a kernel, so that this limit does not end the
sessions that must be handled otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.server import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    config: Path = tmp_path_factory.mktemp("quota") / "rgpu.toml"
    config.write_text("[leases]\ngrace_seconds = 0.2\n[sessions]\nhandshake_seconds = 60\n")
    with Server("--config", str(config)) as running:
        yield running
