"""What is recorded for tests without a control plane is what the real API server says now."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from helpers.kubernetes import ControlPlane
from transcripts.record import recorded
from transcripts.stories import STORIES
from transcripts.tape import Entry, read

pytestmark = pytest.mark.full


def calls(tape: list[Entry]) -> list[tuple[str, int]]:
    """Returns what was asked, and how it was answered. Calls at the same time have no order."""
    return sorted((one["ask"], one["code"]) for one in tape if "ask" in one)


# A story with `forgotten` restarts the API server, which other tests' clients would lose: only
# `make k8s-record` tells it.
@pytest.mark.parametrize("name", [name for name in STORIES if not STORIES[name].forgotten])
def test_the_real_server_answers_as_it_did(plane: ControlPlane, name: str, tmp_path: Path) -> None:
    story = STORIES[name]
    tape = asyncio.run(recorded(plane, story, tmp_path))
    assert calls(tape) == calls(read(name)), "the API server or our code changed: `make k8s-record`"
