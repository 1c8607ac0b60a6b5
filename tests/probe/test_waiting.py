"""Probes that come while the responder is being started."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from typing import Any

import pytest

from netprobe.identity import make_identity
from rgpu_server.config import ProbeOptions
from rgpu_server.service import probes as serving
from rgpu_server.service.probes import Probes

pytestmark = pytest.mark.asyncio


async def test_one_network_does_not_take_all_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first probes go, and not a neighbour's, whoever comes first."""
    probes = Probes(make_identity(), ProbeOptions(), None)  # type: ignore[arg-type]
    unused: Any = None
    with ExitStack() as stack:
        # A responder that has not said yet how it is isolated.
        ours, theirs = (stack.enter_context(one) for one in socket.socketpair())
        running = serving._Running(unused, theirs.fileno(), ours, unused)
        monkeypatch.setattr(probes, "_start", lambda: running)

        def comes(origin: str) -> socket.socket:
            ours, theirs = socket.socketpair()
            stack.enter_context(ours)
            stack.enter_context(theirs)
            assert probes.take(theirs, b"probe", origin) == ""
            return ours

        first = comes("10.0.0.1")
        many = [comes("10.6.6.6") for _ in range(100)]
        last = comes("10.0.0.2")
        for one in (first, last, many[-1]):
            one.setblocking(False)
            with pytest.raises(BlockingIOError):
                one.recv(1)
        assert many[0].recv(1) == b"", "it was closed"
        probes._let_go()
