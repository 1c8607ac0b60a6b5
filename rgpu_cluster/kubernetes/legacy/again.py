"""Has objects looked at again after a failure, each time after a longer pause."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    Later = Callable[[float, Callable[[], None]], asyncio.TimerHandle]

Key = tuple[str, str]
FIRST_SECONDS, LONGEST_SECONDS = 1.0, 60.0


class Again:
    """look: called with an object when its pause is over. later: as `call_later` of the loop."""

    def __init__(self, look: Callable[[Key], None], later: Later | None = None) -> None:
        self._look = look
        self._later = later
        # Objects that have failed: their last pause.
        self._pauses: dict[Key, float] = {}
        self._timers: dict[Key, asyncio.TimerHandle] = {}

    def waits(self, key: Key) -> bool:
        """Returns whether an object has failed and its pause is not over."""
        return key in self._timers

    def failed(self, key: Key) -> None:
        """Notes a failure. The pause doubles with each one, up to a minute."""
        self._stop(key)
        pause = min(2 * self._pauses.get(key, FIRST_SECONDS / 2), LONGEST_SECONDS)
        self._pauses[key] = pause
        later = self._later or asyncio.get_running_loop().call_later
        self._timers[key] = later(pause, lambda: self._over(key))

    def begin_anew(self, key: Key) -> None:
        """Forgets the failures of an object, because it has changed or nothing is left to do."""
        self._stop(key)
        self._pauses.pop(key, None)

    def close(self) -> None:
        """Stops all timers."""
        for key in list(self._timers):
            self._stop(key)

    def _over(self, key: Key) -> None:
        self._timers.pop(key, None)
        self._look(key)

    def _stop(self, key: Key) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
