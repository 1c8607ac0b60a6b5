"""The audit log: one JSON object a line, for what a tenant was given, refused and charged with."""

from __future__ import annotations

import json
import logging
import time
from typing import TYPE_CHECKING, Protocol

from rgpu_server.core.failures import Failures

if TYPE_CHECKING:
    from collections.abc import Mapping

_log = logging.getLogger("rgpu.audit")


class Listener(Protocol):
    """Hears each event, also if the log is off."""

    def happened(self, event: str, fields: Mapping[str, str | float | None]) -> None: ...


_listeners: list[Listener] = []


class _Refusals:
    """Bounds how many refusals are written: to be refused costs a caller nothing, so it could fill
    the disk. What is left out is counted, and the next line says how much it was.
    """

    def __init__(self) -> None:
        self._written = Failures(burst=100, per_minute=60.0)
        self._left_out = 0

    def left_out(self, whose: str, now: float) -> int | None:
        """Notes a refusal. Returns how many were left out before it; None: it is left out, too."""
        if not self._written.answered(whose, now):
            self._left_out += 1
            return None
        before, self._left_out = self._left_out, 0
        return before


_refusals = _Refusals()


def audit(event: str, **fields: str | float | None) -> None:
    """Writes one line; `event` is a past-tense name such as "session_opened"."""
    if _log.isEnabledFor(logging.INFO):
        more: dict[str, int] = {}
        if event.endswith("_refused"):
            whose = str(fields.get("tenant") or fields.get("peer") or "")
            left_out = _refusals.left_out(whose, time.monotonic())
            if left_out is None:
                tell(event, **fields)
                return
            more = {"left_out": left_out} if left_out else {}
        _log.info("%s", json.dumps({"event": event, **fields, **more}, separators=(",", ":")))
    tell(event, **fields)


def tell(event: str, **fields: str | float | None) -> None:
    """Tells the listeners of an event that is no line of the audit log."""
    for listener in tuple(_listeners):
        listener.happened(event, fields)


def listen(listener: Listener) -> None:
    """From now on tells `listener` of each event."""
    _listeners.append(listener)


def leave(listener: Listener) -> None:
    """Tells `listener` of no event any more."""
    _listeners.remove(listener)
