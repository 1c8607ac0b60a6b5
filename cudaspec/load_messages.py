"""Reads the rows of `messages/` and checks them.

rows = cudaspec.load_messages.load()
rows.handshake[0].parts
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

from cudaspec.load import modules
from cudaspec.message import Messages, Module
from cudaspec.rows import SpecError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cudaspec.message import Message, Part

SCALAR_BYTES = {"u8": 1, "u16": 2, "u32": 4, "i32": 4, "u64": 8}
# Kinds whose length the row must bound, because a stranger may send them.
BOUNDED = frozenset({"text", "bands", "wishes", "u16[]"})
KINDS = frozenset(SCALAR_BYTES) | BOUNDED | {"bool", "magic", "printable", "secret", "uuid", "band"}
# Constants that the frame itself has (frame.py, frame.h).
FRAME_CONSTANTS = frozenset({"WIRE_MAJOR", "WIRE_MINOR"})


@functools.lru_cache(maxsize=1)
def load() -> Messages:
    """Returns all rows.

    Raises:
        SpecError: a row breaks a rule.
    """
    return checked(
        Module(
            found.__name__.rpartition(".")[2],
            found.__doc__ or "",
            tuple(getattr(found, "NUMBERS", ())),
            tuple(getattr(found, "ENUMERATIONS", ())),
            tuple(getattr(found, "RECORDS", ())),
            tuple(getattr(found, "MESSAGES", ())),
            tuple(getattr(found, "NOTICES", ())),
            tuple(getattr(found, "CONTROLS", ())),
        )
        for found in modules("messages")
    )


def checked(modules: Iterable[Module]) -> Messages:
    """Returns the rows of these modules; SpecError if one breaks a rule."""
    rows = Messages(tuple(modules))
    for messages in (rows.handshake, rows.notices, rows.controls):
        _check_opcodes(messages)
        for message in messages:
            _check_parts(rows, message.name, message.parts)
            _check_stop(message)
    for record in rows.records.values():
        _check_parts(rows, record.name, record.parts)
    for one in rows.enumerations.values():
        if (
            not one.flags
            and one.kind == "u8"
            and [*one.values.values()] != [*range(len(one.values))]
        ):
            raise SpecError(f"{one.name}: the values of an enumeration in a field count from 0.")
    return rows


def is_fixed(parts: Sequence[Part]) -> bool:
    """Returns whether a record always has the same size, so that it can be a row."""
    return all(part.kind in SCALAR_BYTES for part in parts)


def _check_opcodes(messages: Sequence[Message]) -> None:
    opcodes = [message.opcode for message in messages]
    if sorted(opcodes) != [*range(1, len(opcodes) + 1)]:
        raise SpecError(f"the opcodes {opcodes} are not 1 to {len(opcodes)}, each once.")


def _check_parts(rows: Messages, owner: str, parts: Sequence[Part]) -> None:
    names = [part.name for part in parts]
    if len(set(names)) != len(names):
        raise SpecError(f"{owner}: two fields have one name.")
    for part in parts:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", part.name):
            raise SpecError(f"{owner}: the field '{part.text}' is not 'KIND NAME'.")
        _check_kind(rows, owner, part)
        for limit in (part.most, part.default, part.minor):
            if isinstance(limit, str) and limit and limit not in {*rows.numbers, *FRAME_CONSTANTS}:
                raise SpecError(f"{owner}: the field '{part.name}' names no constant {limit}.")
        if part.needs and f"bool {part.needs}" not in [other.text for other in parts]:
            raise SpecError(f"{owner}: the field '{part.name}' needs '{part.needs}', no bool here.")
        if part.optional and part is not parts[-1]:
            raise SpecError(f"{owner}: only the last field can be optional, not '{part.name}'.")


def _check_kind(rows: Messages, owner: str, part: Part) -> None:
    name = part.kind.rstrip("[]#")
    record = rows.records.get(name) if part.kind[-1] in "]#" else None
    if part.kind not in {*KINDS, *rows.enumerations} and record is None:
        raise SpecError(f"{owner}: the field '{part.text}' has the unknown kind '{part.kind}'.")
    if record is not None and part.kind.endswith("[]") and not is_fixed(record.parts):
        raise SpecError(f"{owner}: rows of '{name}' have no fixed size; write '{name}#'.")
    fixed = {"bands": "MAX_BANDS", "wishes": "MAX_WISHES"}.get(part.kind)
    if fixed is not None and part.most != fixed:
        raise SpecError(f"{owner}: the bound of '{part.name}' is {fixed} in every message.")
    if (part.kind in BOUNDED or record is not None) and not part.most:
        raise SpecError(f"{owner}: the field '{part.name}' has no bound: set `most`.")


def _check_stop(message: Message) -> None:
    if message.stops is None:
        return
    names = [part.name for part in message.parts]
    after, other, _ = message.stops
    if other not in names or after not in names or names.index(other) > names.index(after):
        raise SpecError(f"{message.name}: it stops after a field that is not there.")
