"""The audit log: one JSON object a line, for what a tenant was given, refused and charged with."""

from __future__ import annotations

import json
import logging

_log = logging.getLogger("rgpu.audit")


def audit(event: str, **fields: str | float | None) -> None:
    """Writes one line; `event` is a past-tense name such as "session_opened"."""
    if _log.isEnabledFor(logging.INFO):
        _log.info("%s", json.dumps({"event": event, **fields}, separators=(",", ":")))
