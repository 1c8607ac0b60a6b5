"""Generates the tables of messages in docs/reference/wire-format.md, and in the DESIGN.md of those
who use a channel.

Each table stands between two comments: `<!-- NAME: written by make gen -->` and `<!-- end -->`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cudaspec.load_messages import SIZED, channels, is_fixed, load
from cudaspec.rows import SpecError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cudaspec.message import Message, Messages, Part


_MARK = "<!-- {}: written by make gen -->"
_BETWEEN = re.compile(r"<!-- ([a-z ]+): written by make gen -->\n.*?<!-- end -->", re.DOTALL)
_FIXED = {
    "magic": "u32 0x55504752",
    "zero": "u32 0",
    "count": "u32 count",
    "bool": "u8",
    "line": "log string",
    "strings": "bytes: strings, each with a NUL behind it",
    "digest": "bytes (32)",
    "secret": "bytes (32)",
    "uuid": "bytes (16)",
    "band": "u64 base, u64 size",
    "printable": "string",
}
_ABOUTS = {"magic": "the bytes `RGPU`", "count": "number of the {}"}
_ITEMS = {"u32": "u32", "bytes": "byte strings", "string": "strings"}
_ROWS = {"bands": "{u64 base, u64 size}", "wishes": "{u16 key, u64 value}"}


def replaced(path: str, page: str) -> str:
    """Returns the page with every table written anew. path: one of PAGES."""
    tables = PAGES[path]
    missing = {name for name in tables if _MARK.format(name) not in page}
    if missing:
        raise SpecError(f"the page {path} has no place for the tables {sorted(missing)}.")

    def table(match: re.Match[str]) -> str:
        name = match[1]
        return "\n".join([_MARK.format(name), "", *tables[name](), "", "<!-- end -->"])

    return _BETWEEN.sub(table, page)


def _heads(rows: Messages, messages: Sequence[Message]) -> list[str]:
    lines = ["| opcode | name | head | meaning |", "| -- | -- | -- | -- |"]
    for message in messages:
        head = ", ".join(f"{_kind(rows, part)} {part.name}" for part in message.parts) or "none"
        bulk = ", then bulk" if message.bulk else ""
        lines.append(f"| {message.opcode} | {message.name} | {head}{bulk} | {message.about} |")
    return lines


def _notices() -> list[str]:
    return _heads(load(), load().notices)


def _controls() -> list[str]:
    return _heads(load(), load().controls)


def _overview() -> list[str]:
    return [
        "| opcode | name | from | meaning |",
        "| -- | -- | -- | -- |",
        *(f"| {m.opcode} | {m.name} | {m.sender} | {m.about} |" for m in load().handshake),
    ]


def _fields() -> list[str]:
    return _sections(load(), load().handshake, "###")


def _sections(rows: Messages, messages: Sequence[Message], level: str) -> list[str]:
    """Returns a heading and a table of fields for each message that has some."""
    lines: list[str] = []
    for message in messages:
        if message.parts:
            lines += ["", f"{level} {message.name}", "", *_table(rows, message.parts)]
        for part in message.parts:
            if part.kind.endswith("#") and part.kind.rstrip("#") in rows.records:
                record = rows.records[part.kind.rstrip("#")]
                lines += ["", f"One of the {part.name}:", "", *_table(rows, record.parts)]
    return lines[1:]


def _channel(name: str) -> list[str]:
    """Returns the table of a channel's messages, and the tables of their fields."""
    rows = channels()[name]
    messages = rows.own.messages
    fds = any(message.fds for message in messages)
    lines = ["| type | name | from | meaning |" + " descriptors |" * fds, "| -- " * (4 + fds) + "|"]
    for m in messages:
        given = "; ".join(fd.about + " (optional)" * fd.optional for fd in m.fds)
        row = f"| {m.opcode} | {m.name} | {m.sender} | {m.about} |"
        lines.append(row + f" {given or 'none'} |" * fds)
    return [*lines, "", *_sections(rows, messages, "###")]


def _table(rows: Messages, parts: Sequence[Part]) -> list[str]:
    lines = ["| field | type | meaning |", "| -- | -- | -- |"]
    for part in parts:
        bounds = "; ".join(_bounds(rows, part))
        kind = _kind(rows, part) + (f"; {bounds}" if bounds else "")
        about = part.about or _ABOUTS.get(part.kind, "").format(part.name)
        lines.append(f"| `{part.name}` | {kind} | {about} |")
    return lines


def _kind(rows: Messages, part: Part) -> str:
    name = part.kind.rstrip("[]#")
    if part.kind.endswith("#"):
        items = _ITEMS.get(name, "records")
        return f"so many {items}" if part.counted else f"u32 count, and so many {items}"
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
    if part.kind in SIZED:
        least = "1 to " if part.least else "at most "
        bounds.append(f"{least}{most} bytes")
    elif part.kind.endswith("#") or part.kind == "count":
        bounds += [f"at most {most}"] if most else []
    elif part.kind[-1] in "]s":
        bounds.append(f"n at most {most}")
    elif most:
        bounds.append(f"{part.least} to {most}")
    elif part.least:
        bounds.append(f"at least {part.least}")
    if part.kind == "bool":
        bounds.append("0 or 1")
    if part.kind in rows.enumerations:
        values = [*rows.enumerations[part.kind].values.values()]
        bounds.append(f"below {len(values)}" if values[0] == 0 else f"{values[0]} to {values[-1]}")
    if part.needs:
        bounds.append(f"empty unless `{part.needs}` is 1")
    if part.minor:
        bounds.append(f"only from minor {rows.numbers[part.minor].value} on")
    if part.optional:
        bounds.append("no bytes at all where n would be 0")
    return bounds


def _worker() -> list[str]:
    return _channel("worker")


def _compiler() -> list[str]:
    return _channel("compiler")


# Page -> the tables that it has.
PAGES: Mapping[str, Mapping[str, Callable[[], list[str]]]] = {
    "docs/reference/wire-format.md": {
        "notices": _notices,
        "control messages": _controls,
        "handshake messages": _overview,
        "handshake fields": _fields,
    },
    "rgpu_server/workers/DESIGN.md": {"worker messages": _worker},
    "rgpu_emu/DESIGN.md": {"compiler messages": _compiler},
}
