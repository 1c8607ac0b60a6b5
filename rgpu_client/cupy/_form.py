"""The form of an operation's arguments: key of its signature, template, and values of its slots.

`scan` is on the way of every call, and gives the key and the values. `node` is asked once for each
signature, and gives the template. Both walk through the arguments in the same order.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rgpu_client.cupy._handle import Handle, wrong_session
from rgpu_client.cupy._meta import checked_dtype, dtype_name
from rgpu_common.arrays.messages import Tag

if TYPE_CHECKING:
    from collections.abc import Callable

    from rgpu_client.cupy._session import Session

LEAST_INT: Final = -(1 << 63)
MOST_INT: Final = (1 << 64) - 1
# Makes an array of an object that no slot can carry. Set by the module of arrays.
_uploads: list[Callable[[Any, Session], Handle]] = []
_SLOT_OBJECT: Final = [Tag.SLOT_OBJECT]
_SLOT_VALUE: Final = [Tag.SLOT_VALUE]
_SLOT_COMPLEX: Final = [Tag.SLOT_COMPLEX]


class Scan:
    """The key and the values of a call.

    values: whole numbers are values, which no shape depends on; else they are part of the key.
    constants: floating-point numbers are part of the key too. kept: arrays that were uploaded.
    """

    __slots__ = ("constants", "kept", "key", "session", "slots", "values")

    def __init__(self, name: str, session: Session | None, values: bool, constants: bool) -> None:
        self.key: list[Any] = [name]
        self.slots: list[Any] = []
        self.session = session
        self.values = values
        self.constants = constants
        self.kept: list[Handle] = []

    def add(self, value: Any) -> None:
        """Adds an argument, or a part of one.

        Raises:
            TypeError: it is of a type that CuPy does not take.
        """
        kind = type(value)
        add = _ADDS.get(kind)
        if add is not None:
            add(self, value, kind)
        elif isinstance(value, Handle):
            self.handle(value)
        elif isinstance(value, np.generic):
            self._scalar(value)
        elif isinstance(value, np.dtype):
            self.key.append(value)
        elif isinstance(value, type):
            self.key.append(checked_dtype(value))
        elif isinstance(value, tuple):
            self._several(value, tuple)
        else:
            raise TypeError(f"Unsupported type {kind}")

    def handle(self, value: Handle) -> None:
        """Adds an object on the node."""
        if value._session is not self.session:
            if self.session is not None:
                raise wrong_session()
            self.session = value._session
        self.key.append(value._meta)
        self.slots.append(value._id)

    def number(self, value: Any, kind: type) -> None:
        """Adds a Python number that is a value."""
        self.key.append(kind)
        if kind is complex:
            self.slots.append([value.real, value.imag])
            return
        if kind is int and not LEAST_INT <= value <= MOST_INT:
            raise OverflowError("Python int too large to convert to C long")
        self.slots.append(value)

    def _int(self, value: Any, kind: type) -> None:
        if self.values:
            self.number(value, kind)
        else:
            self.key += (int, value)

    def _float(self, value: Any, kind: type) -> None:
        if self.constants:
            self.key += (kind, value)
        else:
            self.number(value, kind)

    def _constant(self, value: Any, kind: type) -> None:
        self.key += (kind, value)

    def _several(self, value: Any, kind: type) -> None:
        self.key += (kind, len(value))
        for one in value:
            self.add(one)

    def _slice(self, value: slice, kind: type) -> None:
        self.key.append(slice)
        for part in (value.start, value.stop, value.step):
            if part is None:
                self.key.append(None)
            else:
                self.key.append(whole := operator.index(part))
                self.slots.append(whole)

    def _scalar(self, value: np.generic) -> None:
        dtype = checked_dtype(value.dtype)
        if self.constants or (dtype.kind in "iu" and not self.values):
            self.add(value.item())
        else:
            self.key.append((np.generic, dtype))
            if dtype.kind == "c":
                self.kept.append(made := _uploads[0](value, self._session()))
                self.slots.append(made._id)
            else:
                self.slots.append(value.item())

    def _session(self) -> Session:
        if self.session is None:
            from rgpu_client.cupy._session import session

            self.session = session()
        return self.session


_ADDS: Final[dict[type, Callable[[Scan, Any, Any], None]]] = {
    int: Scan._int,
    float: Scan._float,
    complex: Scan._float,
    bool: Scan._constant,
    str: Scan._constant,
    type(None): Scan._constant,
    type(Ellipsis): Scan._constant,
    tuple: Scan._several,
    list: Scan._several,
    slice: Scan._slice,
}


def node(value: Any, values: bool, constants: bool, name: str = "") -> Any:
    """Returns the part of a template for an argument. `name` is that of its parameter."""
    if isinstance(value, Handle):
        return _SLOT_OBJECT
    if name in ("dtype", "output") and (isinstance(value, str) or callable(value)):
        return [Tag.DTYPE, dtype_name(value)]
    if value is Ellipsis:
        return [Tag.ELLIPSIS]
    if isinstance(value, np.generic):
        return _scalar(value, values, constants)
    if isinstance(value, bool | str) or value is None:
        return value
    if isinstance(value, int):
        return _SLOT_VALUE if values else value
    if isinstance(value, float):
        return value if constants else _SLOT_VALUE
    if isinstance(value, complex):
        return [Tag.COMPLEX, value.real, value.imag] if constants else _SLOT_COMPLEX
    if isinstance(value, tuple | list):
        tag = Tag.TUPLE if isinstance(value, tuple) else Tag.LIST
        return [tag, *(node(one, values, constants, name) for one in value)]
    if isinstance(value, slice):
        parts = (value.start, value.stop, value.step)
        return [Tag.SLICE, *(None if part is None else _SLOT_VALUE for part in parts)]
    return [Tag.DTYPE, dtype_name(value)]


def _scalar(value: np.generic, values: bool, constants: bool) -> Any:
    kind = value.dtype.kind
    if constants or (kind in "iu" and not values):
        return node(value.item(), values, constants)
    return _SLOT_OBJECT if kind == "c" else [Tag.SLOT_SCALAR, dtype_name(value.dtype)]


def set_upload(upload: Callable[[Any, Session], Handle]) -> None:
    """Says how an array is made of something that no slot can carry."""
    _uploads[:] = [upload]
