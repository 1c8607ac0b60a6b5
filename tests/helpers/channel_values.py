"""Hypothesis strategies for the messages of channels, made from their rows."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from cudaspec.load_messages import channels, silent
from rgpu_common.wire.fields import Band

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from cudaspec.message import Message, Messages, Part

_BITS = {"u8": 8, "u16": 16, "u32": 32, "u64": 64}
_SIGNED = {"i32": 32, "i64": 64}
_CLEAN = st.text(st.characters(exclude_categories=["C", "Z"]), max_size=12)
_ANY = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "text": _CLEAN,
    "line": _CLEAN,
    "string": _ANY,
    "string#": st.lists(_ANY, max_size=3).map(tuple),
    "strings": st.lists(_ANY.map(lambda s: s.replace("\0", "")), max_size=3).map(tuple),
    "bytes": st.binary(max_size=12),
    "bytes#": st.lists(st.binary(max_size=12), max_size=3).map(tuple),
    "secret": st.binary(min_size=32, max_size=32),
    "digest": st.binary(min_size=32, max_size=32),
    "u32#": st.lists(st.integers(0, (1 << 32) - 1), max_size=3).map(tuple),
    "band": st.builds(Band, st.integers(0, 1 << 47), st.integers(0, 1 << 47)),
}


def module_of(channel: str) -> ModuleType:
    return importlib.import_module(f"rgpu_common.wire.{channel}")


def rows_of(channel: str) -> Messages:
    return channels()[channel]


def values(channel: str, message: Message) -> st.SearchStrategy[Any]:
    """Returns the strategy for objects of the message's class."""
    return _built(channel, message.class_name, message.parts)


def _built(channel: str, name: str, parts: Sequence[Part]) -> st.SearchStrategy[Any]:
    fields = {part.name: _field(channel, part) for part in parts if not silent(part)}
    return st.builds(getattr(module_of(channel), name), **fields)


def _field(channel: str, part: Part) -> st.SearchStrategy[Any]:
    rows, name = rows_of(channel), part.kind.rstrip("[]#")
    if part.kind in _FIELDS:
        return _FIELDS[part.kind]
    if name in rows.records:
        record = rows.records[name]
        return st.lists(_built(channel, name, record.parts), max_size=2).map(tuple)
    if name in rows.enumerations:
        return st.sampled_from(getattr(module_of(channel), name))
    if name in _SIGNED:
        half = 1 << (_SIGNED[name] - 1)
        return st.integers(-half, half - 1)
    most = rows.numbers[part.most].value if isinstance(part.most, str) else part.most
    return st.integers(part.least, most or (1 << _BITS[name]) - 1)
