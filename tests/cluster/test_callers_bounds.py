"""What the manager counts for a caller: turns by network, lines of the log by steady time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, cast

import grpc
import pytest

from rgpu_cluster.core.limits import SECOND
from rgpu_cluster.core.manager import Manager
from rgpu_cluster.manager import early
from rgpu_cluster.manager.door import Door
from rgpu_cluster.manager.shell import Shell
from rgpu_server.core.identity import Identity, Proof
from rgpu_server.identity.pacing import Kind

ANYBODY = Identity(None, False, Proof.ACCESS_TOKEN)
NETWORK = "2001:db8:1:2::/64"


def test_a_clock_that_is_set_back_does_not_silence_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    steady, wall = [0.0], [1e9]
    shell = Shell(Manager(), lambda: round(steady[0] * SECOND), lambda: wall[0])
    with caplog.at_level(logging.INFO, "rgpu.manager"):
        for _ in range(500):
            shell.note("denied", "no such card")
        wall[0] -= 3600.0
        steady[0] += 60.0
        caplog.clear()
        shell.note("denied", "no such card")
    assert len(caplog.records) == 1


class _Admits:
    async def admit(self, context: Any) -> Identity:
        return ANYBODY


class _Context:
    def __init__(self, address: str) -> None:
        self._address = address

    def peer(self) -> str:
        return f"ipv6:%5B{self._address}%5D:4711"

    async def read(self) -> bytes:
        return b""


class _Turns:
    """Notes who takes turns."""

    def __init__(self) -> None:
        self.origins: list[str] = []

    async def answer(
        self, kind: Kind, identity: Identity, origin: str, work: Coroutine[Any, Any, Any]
    ) -> Any:
        self.origins.append(origin)
        return await work


def test_a_network_of_ipv6_has_one_turn_at_a_manager(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = _Turns()
    monkeypatch.setattr(early, "Pacing", lambda: turns)

    async def method(message: bytes, context: Any) -> bytes:
        return message

    async def asks(address: str) -> None:
        handler = grpc.unary_unary_rpc_method_handler(method)
        details = cast("Any", type("Details", (), {"method": "/rgpu.v1.ManagerService/GetPool"}))

        async def found(_: Any) -> Any:
            return handler

        wrapped = await early.Early(cast("Door", _Admits())).intercept_service(found, details)
        await wrapped.stream_unary(None, _Context(address))

    for address in ("2001:db8:1:2::1", "2001:db8:1:2:ffff::2"):
        asyncio.run(asks(address))
    assert turns.origins == [NETWORK, NETWORK]
