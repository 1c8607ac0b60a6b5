"""Prints tables for terminals, and messages as JSON."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rgpu_common.texts import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns lines with aligned columns. A title ending in ">" aligns its column to the right.

    Cells may be what others wrote: characters that are not printable become "?".
    """
    right = [title.endswith(">") for title in titles]
    cells = [
        [title.removesuffix(">") for title in titles],
        *[list(map(one_line, row)) for row in rows],
    ]
    widths = [max(len(row[i]) for row in cells) for i in range(len(titles))]
    lines = []
    for row in cells:
        padded = (
            text.rjust(width) if to_right else text.ljust(width)
            for text, width, to_right in zip(row, widths, right, strict=True)
        )
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def fitting(
    titles: Sequence[str], rows: Sequence[Sequence[str]], dropped: Sequence[str], width: int | None
) -> str:
    """Returns a table without as many columns as make its lines at most `width` characters long.

    dropped: the titles of columns that may be missing, the first to go first; the last title that
    is not in `dropped` stays however long its cells are. width: None: every column is shown.
    """
    shown = [title.removesuffix(">") for title in titles]
    gone: set[str] = set()
    for name in (None, *dropped):
        gone |= {name} if name is not None else set()
        kept = [i for i, title in enumerate(shown) if title not in gone]
        text = table([titles[i] for i in kept], [[row[i] for i in kept] for row in rows])
        if width is None or max(map(len, text.splitlines()), default=0) <= width:
            break
    return text


def terminal_width() -> int | None:
    """Returns the width of the terminal that stdout is; None if it is not one."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def format_time(seconds: float, form: str, *, utc: bool = False) -> str:
    """Returns a time since 1970 as strftime writes it here; "?": no clock can show it."""
    try:
        return time.strftime(form, time.gmtime(seconds) if utc else time.localtime(seconds))
    except (OverflowError, ValueError, OSError):
        return "?"


def as_json(groups: Mapping[str, Iterable[Any]], **numbers: int) -> str:
    """Returns groups of messages, and numbers, as one JSON object."""
    return json.dumps(plain_groups(groups, **numbers), indent=2)


def plain_groups(groups: Mapping[str, Iterable[Any]], **numbers: int) -> dict[str, Any]:
    """Returns groups of messages, and numbers, as an object for JSON."""
    plain: dict[str, Any] = {
        name: [plain_message(message) for message in group] for name, group in groups.items()
    }
    return plain | numbers


def message_json(message: Any) -> str:
    """Returns a message as a JSON object."""
    return json.dumps(plain_message(message), indent=2)


def plain_message(message: Any) -> dict[str, Any]:
    """Returns a message for JSON.

    Every field has its name, also a field that is 0. Numbers stay numbers; absent is null.
    """
    plain: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.has_presence and not message.HasField(field.name):
            plain[field.name] = None
        elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
            plain[field.name] = [
                v if field.message_type is None else plain_message(v) for v in value
            ]
        elif field.message_type is not None:
            plain[field.name] = plain_message(value)
        elif field.enum_type is not None:
            named = field.enum_type.values_by_number.get(value)
            plain[field.name] = value if named is None else named.name
        else:
            plain[field.name] = value
    return plain
