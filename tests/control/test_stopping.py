"""A server stops, whatever its clients are at."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from control.conftest import DEADLINE_SECONDS

from rgpu_server.config import Limits
from rgpu_server.gateway.process import GatewayProcess, Program
from rgpu_server.isolation import Isolation

pytestmark = pytest.mark.asyncio
Serve = Callable[..., Any]


@pytest.mark.parametrize("turns", range(8))
async def test_the_door_closes_in_any_turn_of_a_greeting(
    serve: Serve, turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before Python 3.12 a task that waits with a limit misses a cancellation that comes together
    with what it waits for: here the first bytes of a client of the API, which may stay for ever.
    """
    monkeypatch.setattr("rgpu_server.service.api._HANDSHAKE_MS", 600_000)
    async with serve(limits=Limits(handshake_seconds=600)) as server:
        lane = await server.lane(b"PRI ")
        for _ in range(turns):
            await asyncio.sleep(0)
        await asyncio.wait_for(server.daemon.door.stop(), DEADLINE_SECONDS)
        await lane.close()


async def test_a_gateway_is_left_although_its_keeper_misses_a_cancellation() -> None:
    """As one does that has just started the gateway again."""
    missed = asyncio.Event()

    async def keep() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            missed.set()
        await asyncio.Event().wait()

    program = Program("grpc", [], lambda name: False, Isolation(), lambda connection: None)
    gateway = GatewayProcess(program, lambda words: None)
    gateway._keeper = asyncio.ensure_future(keep())
    await asyncio.sleep(0)
    await asyncio.wait_for(gateway.close(), DEADLINE_SECONDS)
    assert missed.is_set()
