"""Ufuncs, and the operators of arrays: what a program issues most."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rgpu_client.cupy import _catalogue
from rgpu_client.cupy._call import MAKERS, NOTHING, RULES, call
from rgpu_client.cupy._form import LEAST_INT, MOST_INT
from rgpu_client.cupy._handle import Handle, wrong_session

if TYPE_CHECKING:
    from collections.abc import Callable

    from rgpu_client.cupy._session import Entry, Session

_NUMBERS = (int, float)
# Makes an array of session, id and Meta. A global name, because each operation needs it.
MAKE: Callable[[Any, int, Any], Any]
# The class of arrays, and what an operator takes on its quick way.
_ARRAY: list[type] = [type(None)]
_QUICK: set[type] = {int, float}


class ufunc:
    """A function that works on each element, as NumPy's."""

    def __init__(self, name: str) -> None:
        row = _catalogue.listed()[name]
        self.__name__ = name.rpartition(".")[2]
        self.__qualname__ = self.__name__
        self.__doc__ = f"{self.__name__}({', '.join(row.parameters)}): on the GPU node."
        self._name = name
        self.nin, self.nout = row.inputs, row.outputs
        self.nargs = self.nin + self.nout
        numpy = getattr(np, name, None)
        self.types = list(getattr(numpy, "types", []))
        self.identity = getattr(numpy, "identity", None)
        plain = name in RULES and self.nout == 1
        self._one = unary(name) if plain and self.nin == 1 else None
        self._two = binary(name) if plain and self.nin == 2 else None

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        if not keywords and len(arguments) == self.nin and type(arguments[0]) is _ARRAY[0]:
            if self._one is not None:
                return self._one(arguments[0])
            if self._two is not None and type(arguments[1]) in _QUICK:
                return self._two(*arguments)
        return self._any(arguments, keywords)

    def _any(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        keywords = {
            word: value
            for word, value in keywords.items()
            if not (value is None or (word == "where" and value is True))
        }
        outs = arguments[self.nin :]
        if outs:
            arguments = arguments[: self.nin]
            keywords["out"] = outs if self.nout > 1 else outs[0]
        out = keywords.get("out")
        if isinstance(out, tuple) and len(out) == 1:
            keywords["out"] = out[0]
        return call(self._name, arguments, keywords)

    def reduce(
        self, array: Any, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: bool = False
    ) -> Any:
        """Applies the function along axes, as NumPy's `ufunc.reduce`."""
        keywords = {} if out is None else {"out": out}
        given = (self.__name__, array, axis, _named(dtype), keepdims)
        return call("rgpu.ufunc_reduce", given, keywords)

    def accumulate(self, array: Any, axis: int = 0, dtype: Any = None, out: Any = None) -> Any:
        """Applies the function along an axis and keeps what is between, as NumPy's."""
        keywords = {} if out is None else {"out": out}
        given = (self.__name__, array, axis, _named(dtype))
        return call("rgpu.ufunc_accumulate", given, keywords)

    def outer(self, a: Any, b: Any) -> Any:
        """Applies the function to all pairs, as NumPy's `ufunc.outer`."""
        return call("rgpu.ufunc_outer", (self.__name__, a, b), {})

    def at(self, a: Any, indices: Any, b: Any = None) -> None:
        """Applies the function at places of `a`, in place and unbuffered, as NumPy's."""
        call("rgpu.ufunc_at", (self.__name__, a, indices) + (() if b is None else (b,)), {})

    def __repr__(self) -> str:
        return f"<ufunc '{self.__name__}'>"


def _named(dtype: Any) -> Any:
    return None if dtype is None else np.dtype(dtype)


_made: dict[str, ufunc] = {}


def get(name: str) -> ufunc:
    """Returns the ufunc of a name of the list."""
    found = _made.get(name)
    if found is None:
        found = _made[name] = ufunc(name)
    return found


def binary(name: str, swapped: bool = False) -> Callable[[Any, Any], Any]:
    """Returns the method of an operator of two operands."""

    def operate(self: Any, other: Any) -> Any:
        session = self._session
        kind = type(other)
        if kind is type(self):
            if other._session is not session:
                raise wrong_session()
            key = (name, self._meta, other._meta)
            slots = (self._id, other._id)
        elif kind in _NUMBERS:
            if kind is int and not LEAST_INT <= other <= MOST_INT:
                raise OverflowError("Python int too large to convert to C long")
            if swapped:
                key, slots = (name, kind, self._meta), (other, self._id)
            else:
                key, slots = (name, self._meta, kind), (self._id, other)
        else:
            return _other(name, self, other, swapped)
        entry = session.entries.get(key)
        if entry is None:
            entry = _learn(session, key, (other, self) if swapped else (self, other))
        made = session.new_id()
        session.run(entry.template, slots, (made,))
        return MAKE(session, made, entry.result)

    return operate


def in_place(name: str) -> Callable[[Any, Any], Any]:
    """Returns the method of an operator that changes its left operand."""
    place = f"i{name}"

    def operate(self: Any, other: Any) -> Any:
        session = self._session
        kind = type(other)
        if kind is type(self):
            if other._session is not session:
                raise wrong_session()
            key = (place, self._meta, other._meta)
        elif kind in _NUMBERS:
            if kind is int and not LEAST_INT <= other <= MOST_INT:
                raise OverflowError("Python int too large to convert to C long")
            key = (place, self._meta, kind)
        else:
            if not _taken(other):
                return NotImplemented
            return get(name)(self, other, out=self)
        entry = session.entries.get(key)
        if entry is None:
            RULES[name](self, other, out=self)
            other_node = ["a"] if kind is type(self) else ["v"]
            entry = session.learn(key, (name, [["a"], other_node], {"out": ["a"]}), NOTHING, 0)
        session.run(
            entry.template,
            (self._id, other._id if kind is type(self) else other, self._id),
            (),
        )
        return self

    return operate


def unary(name: str) -> Callable[[Any], Any]:
    """Returns the method of an operator of one operand."""

    def operate(self: Any) -> Any:
        session = self._session
        key = (name, self._meta)
        entry = session.entries.get(key)
        if entry is None:
            entry = _learn(session, key, (self,))
        made = session.new_id()
        session.run(entry.template, (self._id,), (made,))
        return MAKE(session, made, entry.result)

    return operate


def _learn(session: Session, key: Any, operands: tuple[Any, ...]) -> Entry:
    name: str = key[0]
    result = RULES[name](*operands)
    given = [["a"] if isinstance(one, Handle) else ["v"] for one in operands]
    return session.learn(key, (name, given, {}), result, 1)


def _taken(other: Any) -> bool:
    return isinstance(other, Handle | np.generic | int | float | complex)


def _other(name: str, self: Any, other: Any, swapped: bool) -> Any:
    if not _taken(other):
        if isinstance(other, np.ndarray | list | tuple):
            raise TypeError(f"Unsupported type {type(other)}")
        return NotImplemented
    return call(name, (other, self) if swapped else (self, other), {})


def set_maker(maker: Callable[[Any, int, Any], Any], array: type) -> None:
    """Says what makes an array, and of which class."""
    global MAKE
    _ARRAY[0] = array
    _QUICK.add(array)
    MAKE = maker
    MAKERS["a"] = maker
