"""`fuse`: here a function whose operations stay what they are."""

from __future__ import annotations

import functools
from typing import Any


def fuse(*arguments: Any, **keywords: Any) -> Any:
    """Returns a function that gives the same results. Its operations are not joined into one
    kernel: they are issued one by one, without waiting.
    """
    if len(arguments) == 1 and not keywords and callable(arguments[0]):
        return _Fused(arguments[0])
    return _Fused


class _Fused:
    """A function that was given to `fuse`."""

    def __init__(self, function: Any) -> None:
        functools.update_wrapper(self, function)
        self._function = function

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._function(*arguments, **keywords)

    def clear_cache(self) -> None:
        """Has nothing to forget."""
