"""`a[index]` and `a[index] = value`."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from rgpu_client.cupy._call import MAKERS, NOTHING, RULES, call
from rgpu_client.cupy._form import node
from rgpu_client.cupy._handle import Handle, wrong_session
from rgpu_client.cupy._transfer import upload

if TYPE_CHECKING:
    from rgpu_client.cupy._meta import Meta
    from rgpu_client.cupy._session import Entry

_NAME = "rgpu.getitem"
_SET = "rgpu.setitem"


def getitem(array: Any, index: Any) -> Any:
    """Returns the selected elements: a view, or a copy if arrays select them.

    Raises:
        IndexError: there is no such element.
    """
    kind = type(index)
    session, known = array._session, array._meta
    if kind is int:
        if not known.ndim or not -known.shape[0] <= index < known.shape[0]:
            _refuse(known, index)
        key: Any = (_NAME, known, int)
        slots: Any = (array._id, index)
    else:
        quick = _quick(known, index)
        if quick is None:
            return _general(array, index)
        parts, values = quick
        key, slots = (_NAME, known, *parts), (array._id, *values)
    entry = session.entries.get(key) or _learn(array, key, index)
    made = session.new_id()
    session.run(entry.template, slots, (made,))
    view = MAKERS["a"](session, made, entry.result)
    view._base = array if array._base is None else array._base
    return view


def setitem(array: Any, index: Any, value: Any) -> None:
    """Sets the selected elements.

    Raises:
        IndexError: there is no such element.
        ValueError: the value has another shape.
    """
    session = array._session
    if not isinstance(value, Handle | int | float | complex | np.generic):
        value = upload(np.asarray(value), session)
    quick = _quick(array._meta, index)
    if quick is not None and type(value) in (type(array), float):
        parts, values = quick
        is_array = type(value) is type(array)
        if is_array and value._session is not session:
            raise wrong_session()
        key = (_SET, array._meta, *parts, value._meta if is_array else float)
        entry = session.entries.get(key)
        if entry is None:
            RULES[_SET](array, index, value)
            given = [["a"], node(index, True, False), ["a"] if is_array else ["v"]]
            entry = session.learn(key, (_SET, given, {}), NOTHING, 0)
        last = value._id if is_array else value
        session.run(entry.template, (array._id, *values, last), ())
        return
    call("rgpu.setitem", (array, _prepared(array, index), value), {})


def _quick(known: Meta, index: Any) -> tuple[list[Any], list[Any]] | None:
    """Returns the key and the values of an index of numbers in range, slices and new axes. It does
    for the usual ones what `_general` does for all, for which it returns None.
    """
    key: list[Any] = []
    values: list[Any] = []
    axis = 0
    for part in index if type(index) is tuple else (index,):
        kind = type(part)
        if kind is slice:
            bounds = (part.start, part.stop, part.step)
            key.append(slice)
            for bound in bounds:
                if bound is None:
                    key.append(None)
                elif type(bound) is int:
                    key.append(bound)
                    values.append(bound)
                else:
                    return None
            axis += 1
        elif part is None:
            key.append(part)
        elif kind is int and axis < known.ndim:
            size = known.shape[axis]
            if not -size <= part < size:
                return None
            key.append(kind)
            values.append(part)
            axis += 1
        else:
            return None
    return key, values


def _learn(array: Any, key: Any, index: Any) -> Entry:
    result = RULES[_NAME](array, index)
    given = [["a"], node(index, True, False)]
    learned: Entry = array._session.learn(key, (_NAME, given, {}), result, 1)
    return learned


def _refuse(known: Meta, index: int) -> None:
    if not known.ndim:
        raise IndexError("too many indices for array: array is 0-dimensional, but 1 were indexed")
    raise IndexError(f"Index {index} is out of bounds for axis 0 with size {known.shape[0]}")


def _general(array: Any, index: Any) -> Any:
    prepared = _prepared(array, index)
    made = call(_NAME, (array, prepared), {})
    parts = prepared if isinstance(prepared, tuple) else (prepared,)
    if not any(isinstance(part, Handle | bool) for part in parts):
        made._base = array if array._base is None else array._base
    return made


def _prepared(array: Any, index: Any) -> Any:
    """Returns an index whose lists and NumPy arrays are on the node. Its numbers are in range."""
    if isinstance(index, tuple):
        parts = tuple([_part(array, part) for part in index])
        _check_numbers(array._meta, parts)
        return parts
    part = _part(array, index)
    _check_numbers(array._meta, (part,))
    return part


def _part(array: Any, part: Any) -> Any:
    if part is None or part is Ellipsis or isinstance(part, Handle | bool | int | slice):
        return part
    if isinstance(part, np.bool_):
        return bool(part)
    if isinstance(part, np.integer):
        return int(part)
    if isinstance(part, list | tuple | np.ndarray):
        found = np.asarray(part)
        if found.size == 0 and not isinstance(part, np.ndarray):
            found = found.astype(np.intp)
        return upload(found, array._session)
    try:
        return operator.index(part)
    except TypeError:
        raise IndexError(
            "only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer or "
            "boolean arrays are valid indices"
        ) from None


def _check_numbers(known: Meta, parts: tuple[Any, ...]) -> None:
    """Checks whole numbers, which a signature does not contain."""
    if not any(type(part) is int for part in parts):
        return
    axis = 0
    for at, part in enumerate(parts):
        if part is Ellipsis:
            axis = known.ndim - sum(map(_axes, parts[at + 1 :]))
            continue
        if type(part) is int and axis < known.ndim:
            size = known.shape[axis]
            if not -size <= part < size:
                raise IndexError(f"Index {part} is out of bounds for axis {axis} with size {size}")
        axis += _axes(part)


def _axes(part: Any) -> int:
    if part is None or part is Ellipsis or isinstance(part, bool):
        return 0
    if isinstance(part, Handle):
        return part._meta.ndim if part._meta.dtype.kind == "b" else 1
    return 1
