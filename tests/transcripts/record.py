"""`make k8s-record`: plays the stories before the real API server, and keeps what it said.

python -m transcripts.record [STORY]...
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from helpers import controlplane
from helpers.go_programs import NotBuiltError
from helpers.kube_deploy import apply
from helpers.kube_objects import Space, device_class
from helpers.kubernetes import ControlPlane
from lightkube import ApiError
from lightkube.resources.coordination_v1 import Lease

from rgpu_cluster.kubernetes.names import MANAGER_LEASE
from transcripts.recording import Recording
from transcripts.replaying import Replay
from transcripts.stage import Stage
from transcripts.stories import STORIES, SYSTEM, Story
from transcripts.tape import Entry, plain, write

# A tape that cannot be replayed is not kept.
_TRIES = 3


async def recorded(plane: ControlPlane, story: Story, folder: Path) -> list[Entry]:
    """Plays a story before the real API server; returns its tape."""
    admin = plane.client()
    apply(admin, *story.files)
    space = Space(admin, Stage.namespace)
    with suppress(ApiError):
        admin.delete(Lease, MANAGER_LEASE, namespace=SYSTEM)
    await asyncio.to_thread(space.open)
    if story.forgotten:
        # Its process ends with the thread that starts it.
        plane.restart_apiserver()
    try:
        async with Recording(plane, story.user, folder) as stage:
            await stage.play(story.play)
    finally:
        await asyncio.to_thread(space.close)
        await asyncio.to_thread(space.vanished)
    return plain(stage.tape)


async def replayed(tape: list[Entry], story: Story, folder: Path) -> None:
    """Plays a story before its tape.

    Raises:
        AssertionError: our code asks something else.
    """
    async with Replay(tape, folder) as stage:
        await stage.play(story.play)


def main(names: list[str]) -> None:
    try:
        file = controlplane.find()
    except NotBuiltError as error:
        sys.exit(str(error))
    with ControlPlane(file) as plane, tempfile.TemporaryDirectory() as folder:
        device_class(plane.client())
        for name in names or STORIES:
            tape = asyncio.run(recorded(plane, STORIES[name], Path(folder)))
            for _ in range(_TRIES):
                asyncio.run(replayed(tape, STORIES[name], Path(folder)))
            write(name, controlplane.PROGRAM.version(), tape)
            print(f"{name}: {len(tape)} entries")


if __name__ == "__main__":
    main(sys.argv[1:])
