"""The level of the log on stderr, RGPU_LOG: for the compiled parts and the choice of paths."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_common.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

LOG = "RGPU_LOG"
# rgpu_common/native/base/log.cc accepts the same levels.
_LEVELS = ("off", "error", "info", "debug")


def log_level(environment: Mapping[str, str]) -> str:
    """Returns RGPU_LOG in lower case, by default error. UsageError: it is not a level."""
    text = environment.get(LOG) or "error"
    if text.lower() not in _LEVELS:
        raise UsageError(f"{LOG} is {', '.join(_LEVELS[:-1])} or {_LEVELS[-1]}, not {text!r}")
    return text.lower()
