"""A server with an emulated device, shared by the tests of a module: it must outlive all attacks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from helpers import clients
from helpers.server import Server


@pytest.fixture(scope="module")
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A server that frees everything of a client at once when the client disconnects. Resumption is
    tested in tests/transport. A module's `CONFIG` is more of its configuration.
    """
    config = tmp_path_factory.mktemp("server") / "rgpu.toml"
    more = getattr(request.module, "CONFIG", "")
    config.write_text(f"[sessions]\nresume_grace_seconds = 0\n{more}")
    with Server("--config", str(config)) as running:
        yield running
        assert running.process is not None
        assert running.process.poll() is None, "the daemon ended"
        code, output, errors = clients.run(running.tcp, "cuda.open()\nprint('served')")
        assert (code, output) == (0, "served\n"), errors
