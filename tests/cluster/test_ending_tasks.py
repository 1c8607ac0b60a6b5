"""Tasks of `rgpu agent-node` end, also if a cancellation gets lost."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from rgpu_common.tasks import end


@pytest.mark.asyncio
async def test_a_task_that_loses_a_cancellation_is_cancelled_again() -> None:
    lost = 0

    async def loses() -> None:
        nonlocal lost
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        lost += 1
        await asyncio.Event().wait()

    task = asyncio.ensure_future(loses())
    await asyncio.sleep(0)
    await asyncio.wait_for(end([task]), 20)
    assert task.cancelled()
    assert lost == 1
    await end([task])
    await end([])
