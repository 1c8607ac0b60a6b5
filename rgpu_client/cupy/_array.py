"""Arrays on the GPU node."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from rgpu_client.cupy import _ufuncs
from rgpu_client.cupy._call import call
from rgpu_client.cupy._form import set_upload
from rgpu_client.cupy._handle import Handle
from rgpu_client.cupy._index import getitem, setitem
from rgpu_client.cupy._interop import array_function, array_ufunc, to_dlpack
from rgpu_client.cupy._meta import Meta, is_contiguous, meta
from rgpu_client.cupy._methods import Methods
from rgpu_client.cupy._transfer import Flags, download, upload
from rgpu_client.cupy._ufuncs import binary, in_place, unary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rgpu_client.cupy._session import Session


class ndarray(Methods, Handle):
    """An array on the GPU node. Its dtype and shape are known here; its elements are there.

    Made by functions as `array` and `zeros`; calling the class makes an array of any content.
    """

    __slots__ = ()
    __array_priority__ = 100
    __hash__ = None  # type: ignore[assignment]
    _meta: Meta

    def __init__(
        self, shape: Any, dtype: Any = float, memptr: Any = None, strides: Any = None,
        order: str = "C",
    ) -> None:  # fmt: skip
        if memptr is not None or strides is not None:
            raise ValueError(
                "an array on a GPU node cannot be made at an address or with strides; "
                "use cupy.lib.stride_tricks.as_strided"
            )
        made = call("empty", (shape, np.dtype(dtype), order), {})
        super().__init__(made._session, made._id, made._meta)
        # This object frees it.
        del made._id

    # What is known here

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the elements."""
        return self._meta.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the axes. May be set, as NumPy's."""
        return self._meta.shape

    @shape.setter
    def shape(self, shape: Any) -> None:
        made = call("rgpu.reshape", (self, shape), {})
        self._become(made)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self._meta.ndim

    @property
    def size(self) -> int:
        """The number of elements."""
        return self._meta.size

    @property
    def itemsize(self) -> int:
        """The bytes of an element."""
        return self._meta.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """The bytes of all elements."""
        return self._meta.size * self._meta.dtype.itemsize

    @property
    def strides(self) -> tuple[int, ...]:
        """The steps of the axes in bytes. The node is asked where the client cannot know them."""
        if self._meta.strides is None:
            described = self._session.issuer.describe([self._id])[0]
            self._meta = meta(self._meta.dtype, self._meta.shape, tuple(described[3]))
        assert self._meta.strides is not None
        return self._meta.strides

    @property
    def flags(self) -> Flags:
        """How the elements lie in memory."""
        item = self.itemsize
        return Flags(
            is_contiguous(self.shape, self.strides, item),
            is_contiguous(self.shape[::-1], self.strides[::-1], item),
            self._base is None,
        )

    @property
    def base(self) -> Any:
        """The array whose memory this view shows; None if it has its own."""
        return self._base

    @property
    def device(self) -> Any:
        """The device on the node."""
        from rgpu_client.cupy.cuda import Device

        return Device()

    @property
    def T(self) -> Any:
        """A view with the axes in reverse order."""
        return self.transpose()

    @property
    def mT(self) -> Any:
        """A view with the last two axes exchanged."""
        return call("matrix_transpose", (self,), {})

    @property
    def real(self) -> Any:
        """The real parts; a view."""
        if self._meta.dtype.kind != "c":
            return self
        return call("rgpu.real", (self,), {})._of(self)

    @real.setter
    def real(self, value: Any) -> None:
        self.real[...] = value

    @property
    def imag(self) -> Any:
        """The imaginary parts; a view of complex numbers."""
        made = call("rgpu.imag", (self,), {})
        return made._of(self) if self._meta.dtype.kind == "c" else made

    @imag.setter
    def imag(self, value: Any) -> None:
        if self._meta.dtype.kind != "c":
            raise TypeError("cannot set imag to non-complex array")
        self.imag[...] = value

    @property
    def flat(self) -> Any:
        """The elements in C order; a view where the memory allows it."""
        return self.ravel()

    # Elements

    def __getitem__(self, index: Any) -> Any:
        return getitem(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        setitem(self, index, value)

    def __len__(self) -> int:
        if not self._meta.shape:
            raise TypeError("len() of unsized object")
        return self._meta.shape[0]

    def __iter__(self) -> Iterator[Any]:
        if not self._meta.shape:
            raise TypeError("iteration over a 0-d array")
        return (self[at] for at in range(self._meta.shape[0]))

    def __contains__(self, value: Any) -> bool:
        return bool((self == value).any())

    def get(
        self, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True
    ) -> Any:
        """Returns a NumPy array of the elements, or fills `out`. Waits for them.

        Raises:
            Exception: what the operation that made them raised on the node.
            SessionLostError: the session has ended.
        """
        return download(self, order, out)

    def set(self, arr: Any, stream: Any = None) -> None:
        """Replaces the elements by those of a NumPy array of the same shape and dtype."""
        if not isinstance(arr, np.ndarray):
            raise TypeError("Only numpy.ndarray can be set to cupy.ndarray")
        if arr.dtype != self.dtype:
            raise TypeError(f"{arr.dtype} array cannot be set to {self.dtype} array")
        if arr.shape != self.shape:
            raise ValueError(f"Shape mismatch. Old shape: {self.shape}, new shape: {arr.shape}")
        call("rgpu.upload", (self, upload(arr, self._session)), {})

    def item(self, *at: Any) -> Any:
        """Returns an element as a Python number. Waits for it."""
        return (self[at] if at else self).get().item()

    def tolist(self) -> Any:
        """Returns the elements as lists of Python numbers."""
        return self.get().tolist()

    def tobytes(self, order: Any = "C") -> bytes:
        """Returns the elements as bytes."""
        return bytes(self.get().tobytes(order))

    def __bool__(self) -> bool:
        if self.size != 1:
            return bool(np.empty(self.shape if self.size else (0,)))
        return bool(self.get())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __index__(self) -> int:
        if self._meta.dtype.kind not in "iu" or self._meta.shape:
            raise TypeError("only integer scalar arrays can be converted to a scalar index")
        return operator.index(self.item())

    def __repr__(self) -> str:
        return repr(self.get())

    def __str__(self) -> str:
        return str(self.get())

    def __format__(self, spec: str) -> str:
        return format(self.get() if self.ndim else self.get()[()], spec)

    # Copies and pickles

    def __copy__(self) -> Any:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> Any:
        return self.copy()

    def __reduce__(self) -> Any:
        return _rebuilt, (self.get(),)

    # Other libraries

    def __array__(self, dtype: Any = None, copy: Any = None) -> NoReturn:
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. "
            "Please use `.get()` to construct a NumPy array explicitly."
        )

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **keywords: Any) -> Any:
        return array_ufunc(ufunc, method, inputs, keywords)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return array_function(func, args, kwargs)

    @property
    def __cuda_array_interface__(self) -> NoReturn:
        raise AttributeError(
            "the elements of this array are in the memory of a GPU node, so there is no address "
            "to give another library; use .get() and copy them"
        )

    def __dlpack__(self, **keywords: Any) -> Any:
        return to_dlpack(self.get(), keywords)

    def __dlpack_device__(self) -> tuple[int, int]:
        # What leaves is a copy in the host's memory.
        return 1, 0

    # Operators

    __add__, __radd__ = binary("add"), binary("add", swapped=True)
    __sub__, __rsub__ = binary("subtract"), binary("subtract", swapped=True)
    __mul__, __rmul__ = binary("multiply"), binary("multiply", swapped=True)
    __truediv__, __rtruediv__ = binary("true_divide"), binary("true_divide", swapped=True)
    __floordiv__, __rfloordiv__ = binary("floor_divide"), binary("floor_divide", swapped=True)
    __mod__, __rmod__ = binary("remainder"), binary("remainder", swapped=True)
    __pow__, __rpow__ = binary("power"), binary("power", swapped=True)
    __and__, __rand__ = binary("bitwise_and"), binary("bitwise_and", swapped=True)
    __or__, __ror__ = binary("bitwise_or"), binary("bitwise_or", swapped=True)
    __xor__, __rxor__ = binary("bitwise_xor"), binary("bitwise_xor", swapped=True)
    __lshift__, __rlshift__ = binary("left_shift"), binary("left_shift", swapped=True)
    __rshift__, __rrshift__ = binary("right_shift"), binary("right_shift", swapped=True)
    __matmul__, __rmatmul__ = binary("matmul"), binary("matmul", swapped=True)
    __lt__, __le__ = binary("less"), binary("less_equal")
    __gt__, __ge__ = binary("greater"), binary("greater_equal")
    __eq__, __ne__ = binary("equal"), binary("not_equal")
    __iadd__, __isub__ = in_place("add"), in_place("subtract")
    __imul__, __itruediv__ = in_place("multiply"), in_place("true_divide")
    __ifloordiv__, __imod__ = in_place("floor_divide"), in_place("remainder")
    __ipow__, __iand__ = in_place("power"), in_place("bitwise_and")
    __ior__, __ixor__ = in_place("bitwise_or"), in_place("bitwise_xor")
    __ilshift__, __irshift__ = in_place("left_shift"), in_place("right_shift")
    __neg__, __pos__ = unary("negative"), unary("positive")
    __abs__, __invert__ = unary("absolute"), unary("invert")

    def __divmod__(self, other: Any) -> Any:
        return call("divmod", (self, other), {})

    def __rdivmod__(self, other: Any) -> Any:
        return call("divmod", (other, self), {})

    def __imatmul__(self, other: Any) -> Any:
        made = self @ other
        self[...] = made
        return self

    # Helpers

    def _of(self, base: Any) -> Any:
        """Notes that this is a view of `base`, and returns it."""
        self._base = base if base._base is None else base._base
        return self

    def _become(self, other: Any) -> None:
        """Takes over another array's place on the node."""
        self._id, other._id = other._id, self._id
        self._meta = other._meta


def _rebuilt(elements: Any) -> Any:
    from rgpu_client.cupy._session import session

    return upload(elements, session())


_new = object.__new__


def _make(session: Session, made: int, known: Meta) -> ndarray:
    """Returns the array of an id. Written out, because each operation needs it."""
    new = _new(ndarray)
    new._session = session
    new._id = made
    new._meta = known
    new._base = None
    return new


def _upload(value: Any, session: Session) -> Handle:
    made: Handle = upload(np.asarray(value), session)
    return made


_ufuncs.set_maker(_make, ndarray)
set_upload(_upload)
