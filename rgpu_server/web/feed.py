"""Reads a view once a second for everybody who looks at it.

Callers with the same identity see the same, so the view is read once for all of them. With so many
leases or identities that reading takes long, it is read less often: the process has other work.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from typing import TYPE_CHECKING

from msgspec import Struct, field

from rgpu_server.web.changes import changes

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from rgpu_server.identity.guard import Known
    from rgpu_server.web.changes import State

log = logging.getLogger("rgpu.web")

# Just after whole seconds, when the rates of the last second are new.
_PERIOD_SECONDS, _AFTER_SECONDS = 1.0, 0.03
# Reading takes at most a quarter of the process's time.
_REST = 3


class _Sight(Struct):
    """What callers with one identity see. version: of the state; 0: it was not read yet.

    texts: the changes from an earlier version to this one, for all who had that one.
    """

    caller: Known
    viewers: int = 0
    version: int = 0
    state: State = field(default_factory=dict)
    texts: dict[int, bytes] = field(default_factory=dict)


class Feed:
    """read: returns the state that each of these callers sees."""

    def __init__(self, read: Callable[[Sequence[Known]], Awaitable[Sequence[State]]]) -> None:
        self._read = read
        self._sights: dict[object, _Sight] = {}
        self._changed = asyncio.Condition()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def poke(self) -> None:
        """Has the view read soon, because something was changed."""
        self._wake.set()

    async def close(self) -> None:
        """Ends the reading."""
        self._sights.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def watch(self, caller: Known) -> AsyncGenerator[bytes, None]:
        """Yields the whole state, then each second what has changed; b"" if nothing has."""
        sight = self._sights.setdefault(caller.identity, _Sight(caller))
        sight.viewers += 1
        try:
            if not sight.version:
                await self._renew([sight])
            self._start()
            state, version = sight.state, sight.version
            yield _text({"whole": True, "changes": changes({}, state)})
            while True:
                async with self._changed:
                    await self._changed.wait()
                yield self._since(sight, state, version)
                state, version = sight.state, sight.version
        finally:
            sight.viewers -= 1
            if not sight.viewers:
                self._sights.pop(caller.identity, None)

    def _since(self, sight: _Sight, state: State, version: int) -> bytes:
        if version == sight.version:
            return b""
        if version not in sight.texts:
            found = changes(state, sight.state)
            sight.texts[version] = _text({"changes": found}) if found else b""
        return sight.texts[version]

    def _start(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        """Reads as long as somebody looks."""
        took = 0.0
        while self._sights:
            # Not cut short by `poke`, so that many orders do not make the reading take more.
            await asyncio.sleep(_REST * took)
            left = _PERIOD_SECONDS - (time.time() - _AFTER_SECONDS) % _PERIOD_SECONDS
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._wake.wait(), left)
            self._wake.clear()
            # Time of the processor: that of a busy machine says nothing about the reading.
            began = time.thread_time()
            await self._renew(list(self._sights.values()))
            took = time.thread_time() - began
            async with self._changed:
                self._changed.notify_all()

    async def _renew(self, sights: Sequence[_Sight]) -> None:
        try:
            states = await self._read([sight.caller for sight in sights])
        except Exception:
            # The pages go on with what they had; the reason is for the operator.
            log.exception("the page's view cannot be read")
            return
        for sight, state in zip(sights, states, strict=True):
            sight.state = state
            sight.version += 1
            sight.texts = {}


def _text(message: object) -> bytes:
    return b"data: " + json.dumps(message, separators=(",", ":")).encode() + b"\n\n"
