"""How much the compiled parts and the choice of paths say on stderr: RGPU_LOG."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_common.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

LOG = "RGPU_LOG"
# As rgpu_common/native/base/log.cc reads it.
_LEVELS = ("off", "error", "info", "debug")


def log_level(environment: Mapping[str, str]) -> str:
    """Returns RGPU_LOG in lower case, by default error; UsageError if it is none of the levels."""
    text = environment.get(LOG) or "error"
    if text.lower() not in _LEVELS:
        raise UsageError(f"{LOG} is {', '.join(_LEVELS[:-1])} or {_LEVELS[-1]}, not {text!r}")
    return text.lower()
