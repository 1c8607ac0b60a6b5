"""The form in which a generator knows a kind of field: one row for each kind and language."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FieldForm:
    """Code for a field whose kind is neither a number nor a record.

    type: the field's type. start: its value before anyone sets it. put: the statement that writes
    it. get: the expression that reads it; in C++ false if the field is malformed. In `put` and
    `get`, `{value}` stands for the field, `{what}` for its name in words and `{most}` for its
    limit. "": the generator has no fixed code for this.
    """

    type: str
    start: str = ""
    put: str = ""
    get: str = ""
