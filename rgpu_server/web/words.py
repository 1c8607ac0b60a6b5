"""Reads the values of an order: JSON whose every field a browser may have made up. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rgpu_common.errors import UsageError
from rgpu_common.sharing import SharePolicy
from rgpu_common.units import parse_memory_bytes, parse_share
from rgpu_server.web.calls import CallRefusedError

if TYPE_CHECKING:
    from collections.abc import Mapping

_MOST_CHARACTERS = 256


def text_of(body: Mapping[str, Any], name: str) -> str:
    """Returns a text; "" if there is none."""
    value = body.get(name, "")
    if not isinstance(value, str) or len(value) > _MOST_CHARACTERS or not value.isprintable():
        raise _wrong(name, f"a text of at most {_MOST_CHARACTERS} printable characters")
    return value.strip()


def needed(body: Mapping[str, Any], name: str) -> str:
    """Returns a text that must be there."""
    text = text_of(body, name)
    if not text:
        raise _wrong(name, "named")
    return text


def flag_of(body: Mapping[str, Any], name: str) -> bool:
    """Returns true or false; false if there is none."""
    value = body.get(name, False)
    if not isinstance(value, bool):
        raise _wrong(name, "true or false")
    return value


def number_of(body: Mapping[str, Any], name: str, most: int) -> int | None:
    """Returns a whole number from 0 on; None if there is none."""
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise _wrong(name, f"a whole number from 0 to {most}")
    return value


def seconds_of(body: Mapping[str, Any], name: str, most: float) -> float | None:
    """Returns a duration; None if there is none."""
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= most:
        raise _wrong(name, f"from 0 to {most:g} seconds")
    return float(value)


def bytes_of(body: Mapping[str, Any], name: str) -> int | None:
    """Returns a size as `--memory` takes it; None if there is none."""
    text = text_of(body, name)
    try:
        return parse_memory_bytes(text) if text else None
    except UsageError as error:
        raise CallRefusedError(400, f"{name}: {error}") from None


def share_of(body: Mapping[str, Any], name: str) -> int | None:
    """Returns a share in millionths, as `--share` takes it; None if there is none."""
    text = text_of(body, name)
    try:
        return parse_share(text) if text else None
    except UsageError as error:
        raise CallRefusedError(400, f"{name}: {error}") from None


def policy_of(body: Mapping[str, Any], name: str) -> SharePolicy | None:
    """Returns a policy by its word; None if there is none."""
    text = text_of(body, name)
    if not text:
        return None
    found = next((policy for policy in SharePolicy if policy.word == text), None)
    if found is None:
        raise _wrong(name, f"one of {', '.join(policy.word for policy in SharePolicy)}")
    return found


def _wrong(name: str, accepted: str) -> CallRefusedError:
    return CallRefusedError(400, f"the order is wrong: {name} has to be {accepted}")
