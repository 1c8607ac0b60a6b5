"""The list of CuPy's functions that a node executes, and the check of their arguments.

The list is data, `rgpu_common/arrays/cupy_operations.json`. A client's text is only looked up in
it: nothing that a client names is searched for in a module.
"""

from __future__ import annotations

import functools
import json
import re
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from rgpu_common.arrays.messages import Tag
from rgpu_server.arrays.library import NotOfferedError, Slot

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Parameters that say how many Python objects are made: memory that no allocator charges.
_COUNTS: Final = frozenset({"indices_or_sections", "ndim", "window_length"})
MOST_COUNT: Final = 65536
_MOST_NUMBER: Final = 1 << 64
_MOST_SEARCHED: Final = 8
# They make a source of random numbers.
_SOURCES: Final = frozenset({"random.default_rng", "random.RandomState"})
# They take random numbers, from a source that they are given or from CuPy's own.
_DRAWS: Final = frozenset({
    "cupyx.scipy.sparse.rand", "cupyx.scipy.sparse.random", "cupyx.scipy.sparse.random_array",
    "cupyx.scipy.sparse.linalg.eigsh", "cupyx.scipy.sparse.linalg.svds",
})  # fmt: skip
_SUBSCRIPTS: Final = re.compile(r"[A-Za-z., >\-]{0,256}")
# Source of kernels and their names: whatever text they are, NVRTC reads it.
_FREE_TEXT: Final = {"kernel.compile": frozenset({"source", "name", "options"})}


class Row(Struct, frozen=True):
    """A function that is offered.

    module, name: where it is in CuPy; the module `rgpu` is this package. parameters: the names of
    its positional parameters. keywords: those that have no position. rest: more positions may
    follow. changes: the parameters that it changes in place. ufunc: the number of a ufunc's inputs.
    """

    public: str
    module: str
    name: str
    parameters: tuple[str, ...]
    keywords: tuple[str, ...]
    rest: bool
    changes: tuple[str, ...]
    ufunc: int

    @property
    def draws(self) -> bool:
        """True if the function takes random numbers, or seeds their source."""
        random = self.public.startswith("random.") and self.public not in _SOURCES
        return random or self.public in _DRAWS

    def named(self, at: int) -> str:
        """Returns the name of a positional argument's parameter.

        Raises:
            NotOfferedError: the function takes fewer.
        """
        if at < len(self.parameters):
            return self.parameters[at]
        # A ufunc's outputs may follow its inputs.
        if self.ufunc and at == self.ufunc:
            return "out"
        if self.rest:
            return "subscripts" if self.public == "einsum" and at == 0 else "*"
        raise NotOfferedError(
            f"{self.public}() takes {len(self.parameters)} positional arguments but more were given"
        )


@functools.cache
def rows() -> Mapping[str, Row]:
    """Returns the list, by public name."""
    listed = _loaded()["operations"]
    return {
        public: Row(
            public,
            row["module"],
            row.get("name", public),
            tuple(row["parameters"].split()),
            tuple(row.get("keywords", "").split()),
            bool(row.get("rest")),
            tuple(row.get("changes", "").split()),
            int(row.get("inputs", 0)),
        )
        for public, row in listed.items()
    }


@functools.cache
def _texts() -> Mapping[str, frozenset[str]]:
    return {name: frozenset(texts.split()) for name, texts in _loaded()["texts"].items()}


@functools.cache
def _loaded() -> Any:
    folder = resources.files("rgpu_common.arrays")
    return json.loads(folder.joinpath("cupy_operations.json").read_text("utf-8"))


def find(public: str) -> Row:
    """Returns a row.

    Raises:
        NotOfferedError: there is no such function on the list.
    """
    row = rows().get(public)
    if row is None:
        raise NotOfferedError(
            f"{public[:100]} is not executed on a GPU node; docs/how-to/arrays.md says what is"
        )
    return row


def check(row: Row, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> list[str]:
    """Checks the form of a call, and returns the names of the positional arguments' parameters.

    Raises:
        NotOfferedError: the function takes no such argument, or not this text.
    """
    names = [row.named(at) for at in range(len(arguments))]
    for name, value in zip(names, arguments, strict=True):
        check_value(row.public, name, value)
    for name, value in keywords.items():
        if name not in row.keywords and name not in row.parameters:
            raise NotOfferedError(
                f"{row.public}() got an unexpected keyword argument {name[:50]!r}"
            )
        if name in names:
            raise NotOfferedError(f"{row.public}() got multiple values for argument {name!r}")
        check_value(row.public, name, value)
    if row.public == "einsum":
        _check_search(arguments, keywords.get("optimize"))
    return names


def _check_search(arguments: Sequence[Any], optimize: Any) -> None:
    """Each further array makes the search for the best order ten times as long."""
    arrays = sum(isinstance(one, Slot) for one in arguments)
    if arrays > _MOST_SEARCHED and optimize not in (None, True, False, "greedy"):
        raise NotOfferedError(
            f"einsum() searches the order of at most {_MOST_SEARCHED} arrays: "
            "use optimize='greedy' for more"
        )


def check_value(public: str, name: str, value: Any) -> None:
    """Checks an argument, or a part of it: text must be expected, and counts be small.

    Raises:
        NotOfferedError: it is not allowed there.
    """
    if isinstance(value, str):
        _check_text(public, name, value)
    elif isinstance(value, bool) or value is None:
        return
    elif isinstance(value, int):
        if abs(value) > _MOST_NUMBER or (name in _COUNTS and abs(value) > MOST_COUNT):
            raise NotOfferedError(f"{public}(): {name} is out of range")
    elif isinstance(value, tuple | list):
        for one in value:
            check_value(public, name, one)
    elif isinstance(value, dict):
        raise NotOfferedError(f"{public}() takes no map as {name}")


def _check_text(public: str, name: str, text: str) -> None:
    if name in _FREE_TEXT.get(public, ()):
        return
    if name == "name" and public.startswith("rgpu.ufunc_"):
        row = rows().get(text)
        if row is not None and row.ufunc and row.module == "cupy":
            return
    if name == "subscripts" and _SUBSCRIPTS.fullmatch(text):
        return
    if text not in _texts().get(name, ()):
        raise NotOfferedError(f"{public}(): {name}={text[:50]!r} is not offered")


def takes_values(shown: Any) -> bool:
    """Returns whether a run gives numbers or text to this part of a template."""
    if isinstance(shown, Slot):
        return shown.kind == Tag.SLOT_VALUE
    if isinstance(shown, slice):
        return any(map(takes_values, (shown.start, shown.stop, shown.step)))
    if isinstance(shown, tuple | list):
        return any(map(takes_values, shown))
    return False
