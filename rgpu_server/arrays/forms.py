"""The form of what a client sends."""

from __future__ import annotations

from typing import Any

import msgpack

from rgpu_common.arrays.messages import MOST_ID, UNKNOWN_OUTPUTS
from rgpu_server.arrays.templates import MalformedError


def unpacked(head: bytes) -> list[Any]:
    """Returns the operations of a message. Raises MalformedError."""
    try:
        operations = msgpack.unpackb(head, strict_map_key=True)
    except Exception as error:
        raise MalformedError(f"a head that is not msgpack ({type(error).__name__})") from None
    check(isinstance(operations, list), "a head that is no list")
    return list(operations)


def flat(results: Any, outputs: int) -> list[Any]:
    """Returns the results as a list; those of a list among them too."""
    if outputs == UNKNOWN_OUTPUTS:
        return [results]
    if not isinstance(results, tuple | list):
        return [] if results is None and outputs == 0 else [results]
    several: list[Any] = []
    for one in results:
        if isinstance(one, tuple | list):
            several.extend(one)
        else:
            several.append(one)
    return several


def check_id(one: Any) -> None:
    """Checks an id. Raises MalformedError."""
    check(type(one) is int and 0 < one <= MOST_ID, "a wrong id")


def check(holds: bool, what: str) -> None:
    """Raises MalformedError if it does not hold."""
    if not holds:
        raise MalformedError(what)
