"""What the client keeps for a session: which signatures of operations it has seen."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Final

import msgpack

from rgpu_client.cupy._current import current
from rgpu_client.cupy._meta import Meta
from rgpu_common.arrays.messages import Tag

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rgpu_client.arrays.ahead import Template
    from rgpu_client.arrays.issuer import Issuer

# The issuer forgets its oldest templates at twice this number. Templates of this session that are
# in use are never among them, because all are defined anew after so many.
_MOST_TEMPLATES: Final = 4000
_MOST_ENTRIES: Final = 1 << 15
# Functions whose results are views, or may be: they are taken for arrays without memory.
_VIEWS: Final = frozenset((
    "rgpu.transpose", "permute_dims", "matrix_transpose", "linalg.matrix_transpose",
    "rgpu.swapaxes", "moveaxis", "rollaxis", "rgpu.reshape", "rgpu.ravel", "rgpu.squeeze",
    "expand_dims", "broadcast_to", "broadcast_arrays", "rgpu.diagonal", "diag", "rgpu.real",
    "rgpu.imag", "rgpu.view", "flip", "fliplr", "flipud", "rot90", "rgpu.part", "atleast_1d",
    "atleast_2d", "atleast_3d", "split", "array_split", "hsplit", "vsplit", "dsplit",
    "rgpu.as_strided", "rgpu.sliding_window_view",
))  # fmt: skip
_INDEX: Final = "rgpu.getitem"
_ARRAY: Final = [Tag.SLOT_OBJECT]


class Entry:
    """A signature that the client has seen.

    template: what is run. result: a Meta, a list or tuple of them, or None if the client must ask.
    """

    __slots__ = ("result", "template")

    def __init__(self, template: Template, result: Any) -> None:
        self.template = template
        self.result = result


class Session:
    """An issuer, and the entries of signatures."""

    def __init__(self, issuer: Issuer) -> None:
        self.issuer = issuer
        self.entries: dict[Any, Entry] = {}
        self.new_id: Callable[[], int] = issuer.new_id
        self.run: Callable[[Template, Sequence[Any], Sequence[int]], None] = issuer.run
        self.free: Callable[[int], None] = issuer.free
        self._generation = 0
        self._defined: set[bytes] = set()

    def learn(self, key: Any, operation: Any, result: Any, outputs: int) -> Entry:
        """Adds an entry. `operation` is name, arguments and keywords, in the form of a template."""
        name, arguments, keywords = operation
        packed: bytes = msgpack.packb([name, arguments, keywords, outputs])
        if packed not in self._defined:
            if len(self._defined) >= _MOST_TEMPLATES:
                self._defined.clear()
                self.entries.clear()
                self._generation += 1
            self._defined.add(packed)
        elif len(self.entries) >= _MOST_ENTRIES:
            self.entries.clear()
        template = self.issuer.template(
            (self._generation, packed), name, arguments, keywords, outputs
        )
        # Each signature has a template of its own, because sizes and times are those of its shapes.
        view = name in _VIEWS or (name == _INDEX and not _has_array(arguments[1]))
        sized = template.sized([] if view else _sizes(result))
        entry = self.entries[key] = Entry(sized, result)
        return entry

    def put(self, dtype: str, shape: Sequence[int], elements: memoryview) -> int:
        """Uploads an array and returns its id."""
        made = self.new_id()
        self.issuer.put(made, dtype, shape, elements)
        return made


def learned(entry: Entry, name: str, result: Any) -> None:
    """The node has told what the results of an entry of a function are."""
    entry.result = result
    entry.template = entry.template.sized([] if name in _VIEWS else _sizes(result))


def _has_array(node: Any) -> bool:
    """True if an array is part of an argument, in the form of a template."""
    return node == _ARRAY or (isinstance(node, list) and any(map(_has_array, node)))


def _sizes(result: Any) -> list[int]:
    """Returns the bytes of results that are arrays."""
    if isinstance(result, Meta):
        return [result.size * result.dtype.itemsize]
    if isinstance(result, tuple | list):
        return [size for one in result for size in _sizes(one)]
    return []


# The last session that was used is kept; others live as long as their arrays.
_last: list[Session] = []
_sessions: weakref.WeakValueDictionary[int, Session] = weakref.WeakValueDictionary()


def session() -> Session:
    """Returns the current session. Raises NoSessionError."""
    return session_of(current())


def session_of(issuer: Issuer) -> Session:
    """Returns the session of an issuer."""
    if _last and _last[0].issuer is issuer:
        return _last[0]
    found = _sessions.get(id(issuer))
    if found is None or found.issuer is not issuer:
        found = _sessions[id(issuer)] = Session(issuer)
    _last[:] = [found]
    return found
