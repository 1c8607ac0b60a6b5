"""Reads the rows of `messages/` and checks them.

rows = cudaspec.load_messages.load()
rows.handshake[0].parts
channels()["worker"].own.messages
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

from cudaspec.load import modules
from cudaspec.message import Enumeration, Messages, Module
from cudaspec.rows import SpecError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from types import ModuleType

    from cudaspec.message import Channel, Message, Part, Record

SCALAR_BYTES = {"u8": 1, "u16": 2, "u32": 4, "i32": 4, "u64": 8, "i64": 8}
# Kinds whose length the row must bound, because a stranger may send them.
SIZED = frozenset({"text", "string", "line", "strings", "bytes"})
ITEMS = frozenset({"bytes#", "string#", "u32#"})
BOUNDED = SIZED | ITEMS | {"bands", "wishes", "u16[]", "count"}
# Fields whose value follows from the others, so that the message's class does not have them.
IMPLIED = frozenset({"magic", "zero", "count"})
KINDS = (
    frozenset(SCALAR_BYTES)
    | BOUNDED
    | IMPLIED
    | {"bool", "printable", "secret", "digest", "uuid", "band"}
)
# Constants that the frame itself has (frame.py, frame.h).
FRAME_CONSTANTS = frozenset({"WIRE_MAJOR", "WIRE_MINOR"})


@functools.lru_cache(maxsize=1)
def load() -> Messages:
    """Returns the rows of the wire: all but those of channels.

    Raises:
        SpecError: a row breaks a rule.
    """
    return checked(module for module in _read() if module.channel is None)


@functools.lru_cache(maxsize=1)
def channels() -> Mapping[str, Messages]:
    """Returns the rows of each channel by its name, behind those of the wire.

    Raises:
        SpecError: a row breaks a rule.
    """
    return {
        module.channel.name: checked((*load().modules, module))
        for module in _read()
        if module.channel is not None
    }


@functools.lru_cache(maxsize=1)
def _read() -> tuple[Module, ...]:
    return tuple(
        Module(
            found.__name__.rpartition(".")[2],
            found.__doc__ or "",
            tuple(getattr(found, "NUMBERS", ())),
            _enumerations(found),
            tuple(getattr(found, "RECORDS", ())),
            tuple(getattr(found, "MESSAGES", ())),
            tuple(getattr(found, "NOTICES", ())),
            tuple(getattr(found, "CONTROLS", ())),
            getattr(found, "CHANNEL", None),
        )
        for found in modules("messages")
    )


def _enumerations(found: ModuleType) -> tuple[Enumeration, ...]:
    """Returns the module's enumerations, of a channel also the one of its messages."""
    own = tuple(getattr(found, "ENUMERATIONS", ()))
    if not hasattr(found, "CHANNEL"):
        return own
    types = {message.name: message.opcode for message in found.MESSAGES}
    about = f"The messages on {found.CHANNEL.about}."
    return (Enumeration("MessageType", "u32", types, about), *own)


def checked(modules: Iterable[Module]) -> Messages:
    """Returns the rows of these modules; SpecError if one breaks a rule."""
    rows = Messages(tuple(modules))
    for messages in (rows.handshake, rows.notices, rows.controls):
        _check_opcodes(messages)
    for message in (*rows.handshake, *rows.notices, *rows.controls):
        _check_parts(rows, message.name, message.parts)
        _check_stop(message)
    if rows.modules and rows.own.channel is not None:
        _check_channel(rows, rows.own.channel)
    for record in rows.records.values():
        _check_parts(rows, record.name, record.parts)
        for part in filter(silent, record.parts):
            raise SpecError(f"{record.name}: a record has no field '{part.text}'.")
    return rows


def silent(part: Part) -> bool:
    """Returns whether the class of the message does not have this field."""
    return part.kind in IMPLIED


def is_fixed(parts: Sequence[Part]) -> bool:
    """Returns whether a record always has the same size, so that it can be a row."""
    return all(part.kind in SCALAR_BYTES for part in parts)


def head_bytes(rows: Messages) -> int:
    """Returns the size of what stands in front of every body of the channel."""
    channel = rows.own.channel
    kinds = [part.kind for part in channel.head] if channel is not None else []
    enums = rows.enumerations
    scalars = [enums[kind].kind if kind in enums else kind for kind in kinds]
    return sum(SCALAR_BYTES["u32" if kind == "zero" else kind] for kind in scalars)


def _check_opcodes(messages: Sequence[Message]) -> None:
    opcodes = [message.opcode for message in messages]
    if sorted(opcodes) != [*range(1, len(opcodes) + 1)]:
        raise SpecError(f"the opcodes {opcodes} are not 1 to {len(opcodes)}, each once.")


def _check_channel(rows: Messages, channel: Channel) -> None:
    types = [message.opcode for message in rows.own.messages]
    if len(set(types)) != len(types):
        raise SpecError(f"{channel.name}: two messages have one type.")
    _check_parts(rows, f"{channel.name}: head", channel.head)
    for message in rows.own.messages:
        _check_parts(rows, message.name, message.parts)
        optional = [fd.optional for fd in message.fds]
        if sorted(optional) != optional:
            raise SpecError(f"{message.name}: only the last descriptors can be optional.")


def _check_parts(rows: Messages, owner: str, parts: Sequence[Part]) -> None:
    names = [part.name for part in parts if part.kind != "count"]
    if len(set(names)) != len(names):
        raise SpecError(f"{owner}: two fields have one name.")
    _check_counts(owner, parts)
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


def _check_counts(owner: str, parts: Sequence[Part]) -> None:
    counts: set[str] = set()
    for part in parts:
        if part.kind == "count":
            counts.add(part.name)
        elif part.counted != (part.name in counts) or (part.counted and part.kind[-1] != "#"):
            raise SpecError(f"{owner}: the list '{part.name}' and its `count` do not fit.")
    if counts - {part.name for part in parts if part.counted}:
        raise SpecError(f"{owner}: a `count` has no list: {sorted(counts)}.")


def _check_kind(rows: Messages, owner: str, part: Part) -> None:
    name = part.kind.rstrip("[]#")
    record = rows.records.get(name) if part.kind[-1] in "]#" else None
    if part.kind not in {*KINDS, *rows.enumerations} and record is None:
        raise SpecError(f"{owner}: the field '{part.text}' has the unknown kind '{part.kind}'.")
    if part.kind in rows.enumerations:
        _check_values(rows.enumerations[part.kind])
    if record is not None and part.kind.endswith("[]"):
        _check_rows(owner, name, record)
    fixed = {"bands": "MAX_BANDS", "wishes": "MAX_WISHES"}.get(part.kind)
    if fixed is not None and part.most != fixed:
        raise SpecError(f"{owner}: the bound of '{part.name}' is {fixed} in every message.")
    if (part.kind in BOUNDED or record is not None) and not (part.most or part.counted):
        raise SpecError(f"{owner}: the field '{part.name}' has no bound: set `most`.")


def _check_rows(owner: str, name: str, record: Record) -> None:
    if not is_fixed(record.parts):
        raise SpecError(f"{owner}: rows of '{name}' have no fixed size; write '{name}#'.")
    bounded = [one.name for one in record.parts if one.least or one.most]
    if bounded:
        raise SpecError(f"{owner}: readers of rows check no bounds: {name} {bounded}.")


def _check_values(one: Enumeration) -> None:
    values = [*one.values.values()]
    if one.flags or values != [*range(values[0], values[0] + len(values))]:
        raise SpecError(f"{one.name}: the values of an enumeration in a field count without gaps.")


def _check_stop(message: Message) -> None:
    if message.stops is None:
        return
    names = [part.name for part in message.parts]
    after, other, _ = message.stops
    if other not in names or after not in names or names.index(other) > names.index(after):
        raise SpecError(f"{message.name}: it stops after a field that is not there.")
