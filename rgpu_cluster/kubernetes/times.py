"""Times as Kubernetes writes them. Pure."""

from __future__ import annotations

from datetime import datetime, timezone

_FORM = "%Y-%m-%dT%H:%M:%SZ"


def written(seconds: float) -> str:
    """Returns a time, in seconds since 1970, as Kubernetes writes it."""
    return datetime.fromtimestamp(seconds, timezone.utc).strftime(_FORM)


def seconds_of(text: object) -> float | None:
    """Returns a time of the API server in seconds since 1970; None if it is none."""
    if isinstance(text, datetime):
        return text.timestamp()
    try:
        return datetime.strptime(str(text), _FORM).replace(tzinfo=timezone.utc).timestamp()
    except ValueError:
        return None
