"""CuPy on a remote GPU node, in a process that has no CUDA: `import rgpu_client.cupy as cp`.

Arrays are on the node. Operations are sent there without waiting; the client waits when a program
reads a value. `docs/how-to/arrays.md` says how to start, and what differs from CuPy.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as _numpy

from rgpu_client.cupy import _creation, _functions, _interop, _local
from rgpu_client.cupy._array import ndarray as ndarray
from rgpu_client.cupy._rules import all as _all_rules
from rgpu_client.cupy._ufuncs import ufunc as ufunc

_RULES = _all_rules.MODULES
# The release of CuPy whose functions these are.
__version__ = "14.2.0"
AxisError = _numpy.exceptions.AxisError
ComplexWarning = _numpy.exceptions.ComplexWarning

# What is NumPy's own here too: types, constants, and functions of dtypes.
_NUMPY = [
    "bool",
    "bool_",
    "broadcast_shapes",
    "byte",
    "cdouble",
    "complex64",
    "complex128",
    "complexfloating",
    "csingle",
    "double",
    "dtype",
    "e",
    "euler_gamma",
    "finfo",
    "float16",
    "float32",
    "float64",
    "floating",
    "format_float_positional",
    "format_float_scientific",
    "generic",
    "get_printoptions",
    "half",
    "iinfo",
    "index_exp",
    "inexact",
    "inf",
    "int8",
    "int16",
    "int32",
    "int64",
    "int_",
    "intc",
    "integer",
    "intp",
    "isdtype",
    "issubdtype",
    "iterable",
    "long",
    "longlong",
    "nan",
    "ndindex",
    "newaxis",
    "number",
    "pi",
    "printoptions",
    "promote_types",
    "s_",
    "set_printoptions",
    "short",
    "signedinteger",
    "single",
    "typename",
    "ubyte",
    "uint",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "uintc",
    "uintp",
    "ulong",
    "ulonglong",
    "unsignedinteger",
    "ushort",
]
_MODULES = ("linalg", "fft", "random", "cuda", "lib", "exceptions", "testing")
_KERNELS = ("ElementwiseKernel", "ReductionKernel", "RawKernel", "RawModule", "fuse")
_POOLS = ("get_default_memory_pool", "get_default_pinned_memory_pool")


def _module(name: str) -> Any:
    return importlib.import_module(f"{__name__}.{name}")


def _more() -> dict[str, Any]:
    """Returns what makes each name that is not of the list."""
    found: dict[str, Any] = {}
    for module in (_creation, _local):
        for name, value in vars(module).items():
            if getattr(value, "__module__", "") == module.__name__:
                found[name] = lambda value=value: value
    for name in _NUMPY:
        found[name] = lambda name=name: getattr(_numpy, name)
    for name in _MODULES:
        found[name] = lambda name=name: _module(name)
    for name in _KERNELS:
        found[name] = lambda name=name: getattr(_module("_kernels"), name)
    for name in _POOLS:
        found[name] = lambda name=name: getattr(_module("cuda"), name)
    for name in ("r_", "c_", "mgrid", "ogrid"):
        found[name] = lambda name=name: getattr(_module("_others"), name)
    found["asanyarray"] = lambda: _creation.asanyarray
    return found


__getattr__, __dir__ = _functions.lazy(__name__, "", globals(), _more())
_interop.NAMESPACES["numpy"] = importlib.import_module(__name__)
