"""The names of CuPy's functions that a node executes, and their parameters."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Listed:
    """A function that is executed on the node.

    parameters: those with a position. keywords: those without. rest: more positions may follow.
    inputs, outputs: of a ufunc, else 0.
    """

    name: str
    parameters: tuple[str, ...]
    keywords: tuple[str, ...]
    rest: bool
    inputs: int
    outputs: int

    def names(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> list[str]:
        """Returns the names of the positional arguments' parameters.

        Raises:
            TypeError: the function takes no such arguments; the text is Python's own.
        """
        short = self.name.rpartition(".")[2]
        if len(arguments) > len(self.parameters) and not (self.rest or self.inputs):
            raise TypeError(
                f"{short}() takes {len(self.parameters)} positional arguments but "
                f"{len(arguments)} were given"
            )
        names = [*self.parameters[: len(arguments)]]
        names += ["*"] * (len(arguments) - len(names))
        for name in keywords:
            if name not in self.keywords and name not in self.parameters:
                raise TypeError(f"{short}() got an unexpected keyword argument {name!r}")
            if name in names:
                raise TypeError(f"{short}() got multiple values for argument {name!r}")
        return names


@functools.cache
def listed() -> Mapping[str, Listed]:
    """Returns all functions by name."""
    folder = resources.files("rgpu_common.arrays")
    read = json.loads(folder.joinpath("cupy_operations.json").read_text("utf-8"))
    return {
        name: Listed(
            name,
            tuple(row["parameters"].split()),
            tuple(row.get("keywords", "").split()),
            bool(row.get("rest")),
            int(row.get("inputs", 0)),
            int(row.get("outputs", 0)),
        )
        for name, row in read["operations"].items()
    }


def within(prefix: str) -> dict[str, Listed]:
    """Returns a module's functions by their names in it; `prefix` ends with a dot or is empty."""
    found = {}
    for name, row in listed().items():
        if not name.startswith(prefix):
            continue
        short = name[len(prefix) :]
        if "." not in short:
            found[short] = row
    return found
