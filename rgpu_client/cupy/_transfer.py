"""Moves elements between this process and the node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rgpu_client.cupy._call import MAKERS
from rgpu_client.cupy._meta import DTYPES, checked_dtype, dtype_name, fresh
from rgpu_common.errors import RgpuError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rgpu_client.cupy._handle import Handle
    from rgpu_client.cupy._session import Session


class Flags(NamedTuple):
    """How the elements of an array lie in memory."""

    c_contiguous: bool
    f_contiguous: bool
    owndata: bool

    def __getitem__(self, name: Any) -> Any:
        if isinstance(name, str):
            return getattr(self, name.lower())
        return tuple.__getitem__(self, name)

    @property
    def forc(self) -> bool:
        """Whether they lie without gaps, in one of the orders."""
        return self.c_contiguous or self.f_contiguous

    @property
    def fnc(self) -> bool:
        """Whether they lie without gaps in Fortran's order only."""
        return self.f_contiguous and not self.c_contiguous


def upload(value: Any, session: Session) -> Any:
    """Returns an array on the node with the elements of a NumPy array, in C's or Fortran's order.

    An array that lies in Fortran's order is sent as it lies: to turn it around here took 25 times
    as long as to send it.

    Raises:
        ValueError: its dtype is none of CuPy's, as objects and text.
        SessionLostError: the session has ended.
    """
    dtype = checked_dtype(value.dtype.newbyteorder("="))
    if value.flags.fnc:
        return upload(value.T, session).T
    whole = np.asarray(value, dtype, order="C")
    elements = _bytes(whole)
    made = session.put(dtype_name(dtype), whole.shape, elements)
    return MAKERS["a"](session, made, fresh(dtype, whole.shape))


def download(array: Any, order: str = "C", out: Any = None) -> Any:
    """Returns the elements in a new NumPy array, or in `out`. Errors as `Issuer.read`.

    Raises:
        ValueError: `out` has another shape or dtype.
    """
    known = array._meta
    if order == "F" and out is None and len(known.shape) > 1:
        # The node turns it around, not this process.
        return download(array.T, "C").T
    if out is not None:
        if not isinstance(out, np.ndarray):
            raise TypeError(
                f"Only numpy.ndarray can be obtained from cupy.ndarray, got {type(out)}"
            )
        if out.shape != known.shape or out.dtype != known.dtype:
            raise ValueError(
                f"Shape or dtype mismatch. Expected {known.shape}, {known.dtype}, "
                f"got {out.shape}, {out.dtype}"
            )
    straight = out is not None and out.flags.c_contiguous and out.flags.writeable
    got: Any = out if straight else _room(array)

    def make(dtype: str, shape: Sequence[int]) -> memoryview:
        if DTYPES.get(dtype) != known.dtype or tuple(shape) != known.shape:
            raise RgpuError(
                f"the node has an array of {dtype} with the shape {tuple(shape)} where "
                f"{known.dtype} with {known.shape} was expected; install the same release of "
                "rgpu on both sides, and report this"
            )
        return _bytes(got)

    array._session.issuer.read(array._id, make)
    if out is not None and not straight:
        out[...] = got
        return out
    return got


def _room(array: Handle) -> Any:
    """Returns a NumPy array for the elements."""
    known = array._meta
    try:
        return np.empty(known.shape, known.dtype)
    except (ValueError, MemoryError):
        # If the node could not make it either, its error says more.
        array._session.issuer.describe([array._id])
        raise


def _bytes(whole: Any) -> memoryview:
    return memoryview(whole.reshape(-1).view(np.uint8))
