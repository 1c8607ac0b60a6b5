"""What the client keeps for a session: which signatures of operations it has seen."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Final

import msgpack

from rgpu_client.cupy._current import current

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rgpu_client.arrays.issuer import Issuer

# The issuer forgets its oldest templates at twice this number. Templates of this session that are
# in use are never among them, because all are defined anew after so many.
_MOST_TEMPLATES: Final = 4000
_MOST_ENTRIES: Final = 1 << 15


class Entry:
    """A signature that the client has seen.

    template: what is run. result: a Meta, a list or tuple of them, or None if the client must ask.
    """

    __slots__ = ("result", "template")

    def __init__(self, template: int, result: Any) -> None:
        self.template = template
        self.result = result


class Session:
    """An issuer, and the entries of signatures."""

    def __init__(self, issuer: Issuer) -> None:
        self.issuer = issuer
        self.entries: dict[Any, Entry] = {}
        self.new_id: Callable[[], int] = issuer.new_id
        self.run: Callable[[int, Sequence[Any], Sequence[int]], None] = issuer.run
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
        entry = self.entries[key] = Entry(template, result)
        return entry

    def put(self, dtype: str, shape: Sequence[int], elements: memoryview) -> int:
        """Uploads an array and returns its id."""
        made = self.new_id()
        self.issuer.put(made, dtype, shape, elements)
        return made


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
