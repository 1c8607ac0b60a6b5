"""The audit log: one JSON object a line, for what a tenant was given, refused and charged with."""

from __future__ import annotations

import json
import logging
import time
from typing import TYPE_CHECKING, Protocol

from rgpu_server.observe.refusals import Refusals

if TYPE_CHECKING:
    from collections.abc import Mapping

_log = logging.getLogger("rgpu.audit")


class Listener(Protocol):
    """Hears each event, also if the log is off."""

    def happened(self, event: str, fields: Mapping[str, str | float | None]) -> None: ...


_listeners: list[Listener] = []
_refusals = Refusals()


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
