"""The methods of arrays, which are functions of the list."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rgpu_client.cupy._call import MAKERS, RULES, Unsure, call

if TYPE_CHECKING:
    from collections.abc import Callable

    from rgpu_client.cupy._session import Entry

_PLAIN: Final = (int, type(None))


def _typed(name: str, text: str) -> Callable[..., Any]:
    """Returns the method of a reduction whose dtype can be chosen."""

    def reduction(
        self: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False
    ) -> Any:
        return _reduce(name, self, axis, dtype, out, keepdims)

    return _named(reduction, name, text)


def _plain(name: str, text: str) -> Callable[..., Any]:
    """Returns the method of a reduction to the array's own dtype, or to bool."""

    def reduction(self: Any, axis: Any = None, out: Any = None, keepdims: Any = False) -> Any:
        return _reduce(name, self, axis, None, out, keepdims)

    return _named(reduction, name, text)


def _running(name: str, text: str) -> Callable[..., Any]:
    """Returns the method of a reduction that gives a result for each element."""

    def reduction(self: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        return _reduce(name, self, axis, dtype, out, False)

    return _named(reduction, name, text)


def _spread(name: str, text: str) -> Callable[..., Any]:
    """Returns the method of a reduction with delta degrees of freedom."""

    def reduction(
        self: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0,
        keepdims: Any = False,
    ) -> Any:  # fmt: skip
        return _reduce(name, self, axis, dtype, out, keepdims, ddof=ddof)

    return _named(reduction, name, text)


def _named(method: Callable[..., Any], name: str, text: str) -> Callable[..., Any]:
    method.__name__, method.__qualname__, method.__doc__ = name, f"Methods.{name}", text
    return method


class Methods:
    """Methods that issue a function. `_base` is set where the result is a view."""

    __slots__ = ()
    _base: Any
    _meta: Any

    # Shapes

    def reshape(self, *shape: Any, order: str = "C", copy: Any = None) -> Any:
        """Returns the elements in another shape: a view where that is possible."""
        wanted = shape[0] if len(shape) == 1 else shape
        given = (self, wanted) if order == "C" else (self, wanted, order)
        made = call("rgpu.reshape", given, {})
        return _view(made, self) if self._meta.contiguous and order == "C" else made

    def ravel(self, order: str = "C") -> Any:
        """Returns the elements in one dimension: a view where that is possible."""
        made = call("rgpu.ravel", (self, order), {})
        return _view(made, self) if self._meta.contiguous and order == "C" else made

    def flatten(self, order: str = "C") -> Any:
        """Returns a copy of one dimension."""
        return call("rgpu.ravel", (call("rgpu.copy", (self, order), {}), order), {})

    def transpose(self, *axes: Any) -> Any:
        """Returns a view with the axes in another order."""
        if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], tuple | list)):
            axes = () if axes[0] is None else tuple(axes[0])
        return _view(call("rgpu.transpose", (self, axes) if axes else (self,), {}), self)

    def swapaxes(self, axis1: int, axis2: int) -> Any:
        """Returns a view with two axes exchanged."""
        return _view(call("rgpu.swapaxes", (self, axis1, axis2), {}), self)

    def squeeze(self, axis: Any = None) -> Any:
        """Returns a view without axes of length 1."""
        return _view(call("rgpu.squeeze", (self, axis), {}), self)

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
        """Returns a view of the diagonal."""
        return _view(call("rgpu.diagonal", (self, offset, axis1, axis2), {}), self)

    def view(self, dtype: Any = None) -> Any:
        """Returns a view of the same memory, with another dtype if one is given."""
        wanted = self._meta.dtype if dtype is None else np.dtype(dtype)
        return _view(call("rgpu.view", (self, wanted), {}), self)

    # Copies

    def copy(self, order: str = "C") -> Any:
        """Returns a copy."""
        return call("rgpu.copy", (self, order), {})

    def astype(
        self,
        dtype: Any,
        order: str = "K",
        casting: Any = None,
        subok: Any = None,
        copy: Any = True,
    ) -> Any:
        """Returns a copy of another dtype. Without `copy` it may be the array itself."""
        wanted = np.dtype(dtype)
        if casting is not None and not np.can_cast(self._meta.dtype, wanted, casting):
            raise TypeError(
                f"Cannot cast array data from {self._meta.dtype!r} to {wanted!r} "
                f"according to the rule {casting!r}"
            )
        if not copy and wanted == self._meta.dtype and order in ("K", "A"):
            return self
        return call("rgpu.astype", (self, wanted, order), {})

    def byteswap(self, inplace: bool = False) -> Any:
        """Is refused: arrays on the node have the machine's byte order."""
        raise NotImplementedError("arrays on a GPU node have the machine's own byte order")

    # Reductions

    sum = _typed("sum", "Returns the sum.")
    prod = _typed("prod", "Returns the product.")
    mean = _typed("mean", "Returns the mean.")
    std = _spread("std", "Returns the standard deviation.")
    var = _spread("var", "Returns the variance.")
    max = _plain("max", "Returns the largest element.")
    min = _plain("min", "Returns the smallest element.")
    ptp = _plain("ptp", "Returns the range between the smallest and the largest element.")
    all = _plain("all", "Returns whether all elements are true.")
    any = _plain("any", "Returns whether an element is true.")
    argmax = _typed("argmax", "Returns the place of the largest element.")
    argmin = _typed("argmin", "Returns the place of the smallest element.")
    cumsum = _running("cumsum", "Returns the sums up to each element.")
    cumprod = _running("cumprod", "Returns the products up to each element.")

    def trace(
        self, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None
    ) -> Any:
        """Returns the sum of the diagonal."""
        return call("trace", (self, offset, axis1, axis2), _given(dtype=dtype, out=out))

    # Elements

    def clip(self, min: Any = None, max: Any = None, out: Any = None) -> Any:  # noqa: A002
        """Returns the elements, limited."""
        return call("clip", (self, min, max), _given(out=out))

    def conj(self) -> Any:
        """Returns the complex conjugates."""
        return call("conj", (self,), {}) if self._meta.dtype.kind == "c" else self

    def conjugate(self) -> Any:
        """Returns the complex conjugates."""
        return self.conj()

    def round(self, decimals: int = 0, out: Any = None) -> Any:
        """Returns the elements, rounded."""
        return call("round", (self, decimals), _given(out=out))

    def dot(self, b: Any, out: Any = None) -> Any:
        """Returns the product with another array."""
        return call("dot", (self, b), _given(out=out))

    def take(self, indices: Any, axis: Any = None, out: Any = None) -> Any:
        """Returns the elements at places."""
        return call("take", (self, _on_node(self, indices), axis), _given(out=out))

    def choose(self, choices: Any, out: Any = None, mode: str = "raise") -> Any:
        """Returns elements of arrays that this array chooses from."""
        return call("choose", (self, choices), _given(out=out, mode=mode))

    def compress(self, condition: Any, axis: Any = None, out: Any = None) -> Any:
        """Returns the elements where a condition holds."""
        return call("compress", (_on_node(self, condition), self, axis), _given(out=out))

    def repeat(self, repeats: Any, axis: Any = None) -> Any:
        """Returns each element several times."""
        return call("repeat", (self, repeats, axis), {})

    def nonzero(self) -> Any:
        """Returns the places of elements that are not 0. Waits for their number."""
        return call("nonzero", (self,), {})

    def searchsorted(self, v: Any, side: str = "left", sorter: Any = None) -> Any:
        """Returns where elements would be inserted."""
        return call("searchsorted", (self, v), _given(side=side, sorter=sorter))

    def argsort(self, axis: Any = -1, kind: Any = None) -> Any:
        """Returns the places of the elements in sorted order."""
        return call("argsort", (self, axis), {})

    def argpartition(self, kth: Any, axis: Any = -1) -> Any:
        """Returns the places of the elements in partitioned order."""
        return call("argpartition", (self, kth, axis), {})

    # Changes in place

    def sort(self, axis: int = -1, kind: Any = None) -> None:
        """Sorts in place."""
        call("rgpu.sort", (self, axis), {})

    def partition(self, kth: Any, axis: int = -1) -> None:
        """Partitions in place."""
        call("rgpu.partition", (self, kth, axis), {})

    def fill(self, value: Any) -> None:
        """Sets all elements."""
        call("rgpu.fill", (self, value), {})

    def put(self, indices: Any, values: Any, mode: str = "wrap") -> None:
        """Sets the elements at places."""
        call("put", (self, _on_node(self, indices), _on_node(self, values), mode), {})

    def scatter_add(self, slices: Any, value: Any) -> None:
        """Adds values at places, each as often as it is named."""
        call("cupyx.scatter_add", (self, slices, value), {})

    def scatter_max(self, slices: Any, value: Any) -> None:
        """Takes the larger of elements and values at places."""
        call("cupyx.scatter_max", (self, slices, value), {})

    def scatter_min(self, slices: Any, value: Any) -> None:
        """Takes the smaller of elements and values at places."""
        call("cupyx.scatter_min", (self, slices, value), {})

    # Files

    def dump(self, file: Any) -> None:
        """Writes a pickle of the elements to a file of this machine."""
        self.get().dump(file)  # type: ignore[attr-defined]

    def dumps(self) -> Any:
        """Returns a pickle of the elements."""
        return self.get().dumps()  # type: ignore[attr-defined]

    def tofile(self, fid: Any, sep: str = "", format: str = "%s") -> None:  # noqa: A002
        """Writes the elements to a file of this machine."""
        self.get().tofile(fid, sep, format)  # type: ignore[attr-defined]


def _given(**keywords: Any) -> dict[str, Any]:
    return {word: value for word, value in keywords.items() if value is not None}


def _reduce(
    name: str, array: Any, axis: Any, dtype: Any, out: Any, keepdims: Any, **more: Any
) -> Any:
    if dtype is None and out is None and not keepdims and not more and type(axis) in _PLAIN:
        # The usual call, on its quick way. `call` gives the same.
        key = (name, array._meta, axis)
        session = array._session
        entry = session.entries.get(key)
        if entry is None:
            entry = _learn(array, key)
        if entry is not None:
            made = session.new_id()
            session.run(entry.template, (array._id,), (made,))
            return MAKERS["a"](session, made, entry.result)
    keywords = {word: value for word, value in more.items() if value}
    if dtype is not None:
        keywords["dtype"] = np.dtype(dtype)
    if out is not None:
        keywords["out"] = out
    if keepdims:
        keywords["keepdims"] = True
    return call(name, (array,) if axis is None else (array, axis), keywords)


def _learn(array: Any, key: Any) -> Entry | None:
    """Returns the entry of a reduction along one axis, or all; None: the rule is not sure."""
    name, _, axis = key
    try:
        result = RULES[name](array) if axis is None else RULES[name](array, axis)
    except Unsure:
        return None
    given = [["a"]] if axis is None else [["a"], axis]
    learned: Entry = array._session.learn(key, (name, given, {}), result, 1)
    return learned


def _view(made: Any, source: Any) -> Any:
    made._base = source if source._base is None else source._base
    return made


def _on_node(array: Any, value: Any) -> Any:
    """Returns lists and NumPy arrays as arrays on the node."""
    if isinstance(value, list | np.ndarray):
        from rgpu_client.cupy._transfer import upload

        return upload(np.asarray(value), array._session)
    return value
