"""Values of `RGPU_*` variables, with sentences that name the variable."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from rgpu_common.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")


def variable(environment: Mapping[str, str], name: str, parse: Callable[[str], T]) -> T | None:
    """Returns the value of a variable, None where it is not set; UsageError if it makes no
    sense.
    """
    text = environment.get(name)
    if not text:
        return None
    try:
        return parse(text)
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from None


def whole(text: str) -> int:
    """Returns a whole number; UsageError."""
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"{text!r} is not a whole number")
    return int(text)


def ordinal(text: str) -> int:
    """Returns the number of a device; UsageError."""
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"{text!r} is not a device: they are numbered from 0")
    return int(text)
