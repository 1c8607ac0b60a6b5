"""The audit log: one JSON object a line, for what a tenant was given, refused and charged with."""

from __future__ import annotations

import json
import logging
import time
from typing import TYPE_CHECKING, Protocol

from rgpu_server.observe.refusals import Refusals, Repeats

if TYPE_CHECKING:
    from collections.abc import Mapping

_log = logging.getLogger("rgpu.audit")


class Listener(Protocol):
    """Hears each event, also if the log is off."""

    def happened(self, event: str, fields: Mapping[str, str | float | None]) -> None: ...


_listeners: list[Listener] = []
_refusals = Refusals()
_repeats = Repeats()
# What a caller can have in a loop. Other lines need a lease or a session each.
_REPEATABLE = frozenset(
    {
        "lease_paused",
        "lease_resized",
        "lease_resumed",
        "lease_revoked",
        "lease_updated",
        "node_drained",
        "node_undrained",
        "page_order_carried_out",
    }
)


def audit(event: str, **fields: str | float | None) -> None:
    """Writes one line; `event` is a past-tense name such as "session_opened"."""
    if _log.isEnabledFor(logging.INFO):
        left_out = _left_out(event, fields)
        if left_out is not None:
            more = {"left_out": left_out} if left_out else {}
            _log.info("%s", json.dumps({"event": event, **fields, **more}, separators=(",", ":")))
    tell(event, **fields)


def _left_out(event: str, fields: Mapping[str, str | float | None]) -> int | None:
    """Returns how many lines were left out before this one; None: it is left out, too."""
    now = time.monotonic()
    if event.endswith("_refused"):
        return _refusals.left_out(str(fields.get("tenant") or fields.get("peer") or ""), now)
    if event in _REPEATABLE:
        whose = str(fields.get("by") or fields.get("tenant") or "")
        what = (event, fields.get("lease"), fields.get("order"), fields.get("state"))
        return _repeats.left_out(whose, what, now)
    return 0


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
