"""What a session's worker is sent when it gets the session."""

from __future__ import annotations

import asyncio
import logging

import pytest
from control.conftest import DEADLINE_SECONDS, Serve

from rgpu_common.wire.frame import WireError
from rgpu_common.wire.handshake import Handshake
from rgpu_server import assigner
from rgpu_server.workers.pages import LeasePage

pytestmark = pytest.mark.asyncio


def too_long(assign: object) -> bytes:
    raise WireError("ASSIGN is too long")


def no_descriptor(page: LeasePage) -> int:
    raise OSError(24, "Too many open files")


def _assigned(caplog: pytest.LogCaptureFixture) -> int:
    return sum('"event":"session_assigned"' in record.message for record in caplog.records)


@pytest.mark.parametrize("broken", ["message", "descriptor"])
async def test_a_session_that_cannot_be_assigned_is_refused(
    broken: str,
    serve: Serve,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The client is refused, the audit log does not call the session assigned, and the server serves
    the next session. `serve` looks for descriptors that stay open.
    """
    caplog.set_level(logging.INFO, "rgpu.audit")
    async with serve() as server:
        with monkeypatch.context() as patched:
            if broken == "message":
                patched.setattr(assigner, "encode_assign", too_long)
            else:
                patched.setattr(LeasePage, "opened_to_read", no_descriptor)
            lane = await server.hello()
            header, _ = await asyncio.wait_for(lane.frame(), DEADLINE_SECONDS)
            assert header.opcode == Handshake.REFUSED
            await lane.close()
        assert _assigned(caplog) == 0
        lane = await server.hello()
        header, _ = await asyncio.wait_for(lane.frame(), DEADLINE_SECONDS)
        assert header.opcode == Handshake.WELCOME
        assert _assigned(caplog) == 1
        await lane.close()
