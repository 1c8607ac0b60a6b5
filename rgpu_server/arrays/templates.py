"""Templates: an operation with its arguments, of which a run fills in the slots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from rgpu_common.arrays.messages import MOST_DEPTH, MOST_ITEMS, Tag
from rgpu_server.arrays.library import NotOfferedError, Slot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rgpu_server.arrays.library import Library, Operation

    Fill = Callable[[Iterator[Any]], Any]


# So many characters of text are one part more.
_TEXT_OF_A_PART = 16


class MalformedError(ValueError):
    """The client sent what no correct client sends. The session ends."""


class Template(Struct, frozen=True):
    """An operation that is ready to run.

    slots: in the order in which a run gives their values. outputs: how many results it has; -1: not
    known, they are kept as one. changed: which slots the operation changes in place. parts: how
    many its arguments have; long text counts as several.
    """

    name: str
    operation: Operation
    slots: tuple[Slot, ...]
    arguments: tuple[Fill, ...]
    keywords: tuple[tuple[str, Fill], ...]
    outputs: int
    changed: tuple[int, ...]
    parts: int

    @property
    def changes(self) -> bool:
        """True if a run leaves something else than it found: what it is given, or a generator."""
        return bool(self.changed) or self.operation.draws

    @property
    def takes_objects(self) -> bool:
        """True if a run names objects of the session."""
        return any(slot.kind == Tag.SLOT_OBJECT for slot in self.slots)

    def call(self, values: Sequence[Any]) -> Any:
        """Executes the operation with a value for each slot."""
        given = iter(values)
        arguments = [fill(given) for fill in self.arguments]
        keywords = {name: fill(given) for name, fill in self.keywords}
        return self.operation.call(*arguments, **keywords)


class Builder:
    """Reads the form of a template's arguments.

    library: makes dtypes and constants. most: the parts that the arguments may have.
    """

    def __init__(self, library: Library, most: int = MOST_ITEMS) -> None:
        self._library = library
        self._most = min(most, MOST_ITEMS)
        self._slots: list[Slot] = []
        self._items = 0

    def build(self, name: Any, arguments: Any, keywords: Any, outputs: Any) -> Template:
        """Returns a checked template.

        Raises:
            MalformedError: it has not the form of a template.
            NotOfferedError: the library does not offer the operation in this form.
        """
        _check(isinstance(name, str) and isinstance(arguments, list), "a template without a name")
        _check(isinstance(keywords, dict), "keywords that are no map")
        _check(type(outputs) is int and -1 <= outputs <= MOST_ITEMS, "a wrong number of results")
        shown, fills, owners = [], [], []
        for at, one in enumerate(arguments):
            before = len(self._slots)
            value, fill = self._node(one, 0)
            shown.append(value)
            fills.append(fill)
            owners += [at] * (len(self._slots) - before)
        shown_keywords, filled = {}, []
        for key, one in keywords.items():
            _check(isinstance(key, str), "a keyword that is no text")
            before = len(self._slots)
            shown_keywords[key], fill = self._node(one, 0)
            filled.append((key, fill))
            owners += [key] * (len(self._slots) - before)
        operation = self._library.define(name, shown, shown_keywords)
        changed = tuple(at for at, owner in enumerate(owners) if owner in operation.changes)
        slots = tuple(self._slots)
        return Template(
            name, operation, slots, tuple(fills), tuple(filled), outputs, changed, self._items
        )

    def _node(self, node: Any, depth: int) -> tuple[Any, Fill]:
        """Returns what the library is shown of a node, and what fills it in."""
        self._count(1)
        _check(depth <= MOST_DEPTH, "arguments of too many parts")
        if not isinstance(node, list):
            _check(node is None or isinstance(node, bool | int | float | str), "a wrong argument")
            self._count(len(node) // _TEXT_OF_A_PART if isinstance(node, str) else 0)
            return node, lambda given: node
        _check(bool(node) and isinstance(node[0], str), "a part of an argument without a tag")
        tag, *rest = node
        if tag in (Tag.SLOT_OBJECT, Tag.SLOT_VALUE, Tag.SLOT_COMPLEX, Tag.SLOT_SCALAR):
            return self._slot(tag, rest)
        if tag in (Tag.LIST, Tag.TUPLE, Tag.SLICE, Tag.MAP):
            return self._several(tag, rest, depth)
        value = self._constant(tag, rest)
        return value, lambda given: value

    def _count(self, parts: int) -> None:
        self._items += parts
        _check(self._items <= self._most, "arguments of too many parts")

    def _slot(self, tag: str, rest: list[Any]) -> tuple[Any, Fill]:
        dtype = ""
        if tag == Tag.SLOT_SCALAR:
            _check(len(rest) == 1 and isinstance(rest[0], str), "a scalar without a dtype")
            dtype = rest[0]
            self._library.dtype(dtype)
        slot = Slot(tag, dtype)
        self._slots.append(slot)
        return slot, next

    def _several(self, tag: str, rest: list[Any], depth: int) -> tuple[Any, Fill]:
        if tag == Tag.MAP:
            return self._map(rest, depth)
        _check(tag != Tag.SLICE or len(rest) == 3, "a slice without three parts")
        nodes = [self._node(one, depth + 1) for one in rest]
        shown = [value for value, _ in nodes]
        fills = [fill for _, fill in nodes]
        if tag == Tag.SLICE:
            start, stop, step = fills
            return slice(*shown), lambda given: slice(start(given), stop(given), step(given))
        if tag == Tag.TUPLE:
            return tuple(shown), lambda given: tuple([fill(given) for fill in fills])
        return shown, lambda given: [fill(given) for fill in fills]

    def _map(self, rest: list[Any], depth: int) -> tuple[Any, Fill]:
        _check(len(rest) == 1 and isinstance(rest[0], dict), "a map of the wrong form")
        shown, fills = {}, []
        for key, one in rest[0].items():
            _check(isinstance(key, str), "a key that is no text")
            shown[key], fill = self._node(one, depth + 1)
            fills.append((key, fill))
        return shown, lambda given: {key: fill(given) for key, fill in fills}

    def _constant(self, tag: str, rest: list[Any]) -> Any:
        if tag == Tag.ELLIPSIS and not rest:
            return Ellipsis
        if tag == Tag.DTYPE and len(rest) == 1 and isinstance(rest[0], str):
            return self._library.dtype(rest[0])
        if tag == Tag.COMPLEX and len(rest) == 2 and all(isinstance(x, int | float) for x in rest):
            return complex(*rest)
        if tag == Tag.LIBRARY and len(rest) == 2 and all(isinstance(x, str) for x in rest):
            self._count(len(rest[1]) // _TEXT_OF_A_PART)
            return self._library.constant(*rest)
        raise MalformedError(f"a part of an argument with the tag {tag[:20]!r}")


def _check(holds: bool, what: str) -> None:
    if not holds:
        raise MalformedError(what)


__all__ = ["Builder", "MalformedError", "NotOfferedError", "Template"]
