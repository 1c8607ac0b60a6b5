"""Our real code before what the real API server said, without one.  `make k8s-record` records it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from transcripts.record import replayed
from transcripts.stories import STORIES
from transcripts.tape import FOLDER, Entry, plain, read


@pytest.mark.parametrize("name", STORIES)
def test_our_code_asks_what_is_recorded(name: str, tmp_path: Path) -> None:
    asyncio.run(replayed(read(name), STORIES[name], tmp_path))


def test_each_tape_has_its_story() -> None:
    assert sorted(file.stem for file in FOLDER.iterdir()) == sorted(STORIES)


def test_a_tape_is_plain_already() -> None:
    for name in STORIES:
        assert plain(read(name)) == read(name)


def election(change: str, tmp_path: Path) -> None:
    """Plays the election before a tape with a change."""
    tape = read("replicas_choose_a_leader")
    writes = [number for number, one in enumerate(tape) if "sent" in one]
    first: Entry = tape[writes[0]]
    if change == "content":
        first["sent"]["spec"]["leaseDurationSeconds"] = 16
    elif change == "path":
        first["ask"] += "?dryRun=All"
    elif change == "type":
        first["type"] = "application/merge-patch+json"
    elif change == "more":
        tape.append({"ask": "GET /version", "code": 200, "content": {}})
    elif change == "less":
        del tape[-1]
    elif change == "early":
        tape.insert(writes[0], {"user": "makes the Lease"})

    asyncio.run(replayed(tape, STORIES["replicas_choose_a_leader"], tmp_path))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("content", 'leaseDurationSeconds": 15.* is not in the tape but .*Seconds": 16'),
        ("path", "leases with .* is not in the tape"),
        ("type", "with application/json .* is not in the tape but application/merge-patch"),
        ("more", "never asked: .*GET /version"),
        ("less", "is not in the tape"),
        ("early", "is not in the tape before somebody makes the Lease"),
    ],
)
def test_code_that_asks_something_else_fails(change: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=says):
        election(change, tmp_path)
