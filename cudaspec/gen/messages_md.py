"""Generates the tables of messages in docs/reference/wire-format.md.

Each table stands between two comments: `<!-- NAME: written by make gen -->` and `<!-- end -->`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cudaspec.load_messages import is_fixed
from cudaspec.rows import SpecError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cudaspec.message import Message, Messages, Part


_MARK = "<!-- {}: written by make gen -->"
_BETWEEN = re.compile(r"<!-- ([a-z ]+): written by make gen -->\n.*?<!-- end -->", re.DOTALL)
_FIXED = {
    "magic": "u32 0x55504752",
    "bool": "u8",
    "secret": "bytes (32)",
    "uuid": "bytes (16)",
    "band": "u64 base, u64 size",
    "printable": "string",
}
_ROWS = {"bands": "{u64 base, u64 size}", "wishes": "{u16 key, u64 value}"}


def replaced(rows: Messages, page: str) -> str:
    """Returns the page with every table written anew."""
    missing = {name for name in TABLES if _MARK.format(name) not in page}
    if missing:
        raise SpecError(f"the page has no place for the tables {sorted(missing)}.")

    def table(match: re.Match[str]) -> str:
        name = match[1]
        return "\n".join([_MARK.format(name), "", *TABLES[name](rows), "", "<!-- end -->"])

    return _BETWEEN.sub(table, page)


def _notices(rows: Messages) -> list[str]:
    return _heads(rows, rows.notices)


def _controls(rows: Messages) -> list[str]:
    return _heads(rows, rows.controls)


def _heads(rows: Messages, messages: Sequence[Message]) -> list[str]:
    lines = ["| opcode | name | head | meaning |", "| -- | -- | -- | -- |"]
    for message in messages:
        head = ", ".join(f"{_kind(rows, part)} {part.name}" for part in message.parts) or "none"
        bulk = ", then bulk" if message.bulk else ""
        lines.append(f"| {message.opcode} | {message.name} | {head}{bulk} | {message.about} |")
    return lines


def _overview(rows: Messages) -> list[str]:
    return [
        "| opcode | name | from | meaning |",
        "| -- | -- | -- | -- |",
        *(f"| {m.opcode} | {m.name} | {m.sender} | {m.about} |" for m in rows.handshake),
    ]


def _fields(rows: Messages) -> list[str]:
    lines: list[str] = []
    for message in rows.handshake:
        if message.parts:
            lines += ["", f"### {message.name}", "", *_table(rows, message.parts)]
        for part in message.parts:
            if part.kind.endswith("#"):
                record = rows.records[part.kind.rstrip("#")]
                lines += ["", f"One of the {part.name}:", "", *_table(rows, record.parts)]
    return lines[1:]


def _table(rows: Messages, parts: Sequence[Part]) -> list[str]:
    lines = ["| field | type | meaning |", "| -- | -- | -- |"]
    for part in parts:
        bounds = "; ".join(_bounds(rows, part))
        kind = _kind(rows, part) + (f"; {bounds}" if bounds else "")
        about = part.about or ("the bytes `RGPU`" if part.kind == "magic" else "")
        lines.append(f"| `{part.name}` | {kind} | {about} |")
    return lines


def _kind(rows: Messages, part: Part) -> str:
    name = part.kind.rstrip("[]#")
    if part.kind.endswith("#"):
        return "u32 count, and so many records"
    if part.kind == "u16[]":
        return "bytes: n x u16"
    if name in rows.records:
        assert is_fixed(rows.records[name].parts)
        row = ", ".join(one.text for one in rows.records[name].parts)
        return f"bytes: n x {{{row}}}"
    if part.kind in _ROWS:
        return f"bytes: n x {_ROWS[part.kind]}"
    if part.kind in rows.enumerations:
        return rows.enumerations[part.kind].kind
    return "string" if part.kind == "text" else _FIXED.get(part.kind, part.kind)


def _bounds(rows: Messages, part: Part) -> list[str]:
    """Returns the conditions that a reader checks, in words."""
    bounds = []
    most = rows.numbers[part.most].value if isinstance(part.most, str) else part.most
    if part.kind == "text":
        least = "1 to " if part.least else "at most "
        bounds.append(f"{least}{most} bytes")
    elif part.kind.endswith("#"):
        bounds.append(f"at most {most}")
    elif part.kind[-1] in "]s":
        bounds.append(f"n at most {most}")
    elif most:
        bounds.append(f"{part.least} to {most}")
    elif part.least:
        bounds.append(f"at least {part.least}")
    if part.kind == "bool":
        bounds.append("0 or 1")
    if part.kind in rows.enumerations:
        bounds.append(f"below {len(rows.enumerations[part.kind].values)}")
    if part.needs:
        bounds.append(f"empty unless `{part.needs}` is 1")
    if part.minor:
        bounds.append(f"only from minor {rows.numbers[part.minor].value} on")
    if part.optional:
        bounds.append("no bytes at all where n would be 0")
    return bounds


TABLES: Mapping[str, Callable[[Messages], list[str]]] = {
    "notices": _notices,
    "control messages": _controls,
    "handshake messages": _overview,
    "handshake fields": _fields,
}
