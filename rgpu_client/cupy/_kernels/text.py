"""Reads the parameters of a kernel, as `T x, raw float32 y`, and writes CUDA C++."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rgpu_client.cupy._handle import Handle

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

C_TYPES: Final[dict[str, str]] = {
    "bool": "bool", "int8": "signed char", "int16": "short", "int32": "int", "int64": "long long",
    "uint8": "unsigned char", "uint16": "unsigned short", "uint32": "unsigned int",
    "uint64": "unsigned long long", "float16": "__half", "float32": "float", "float64": "double",
    "complex64": "complex<float>", "complex128": "complex<double>",
}  # fmt: skip
_NAME: Final = re.compile(r"[A-Za-z_]\w*")

_COMPLEX: Final = """
template <typename F> struct complex {
  F re, im;
  __host__ __device__ complex(F r = 0, F i = 0) : re(r), im(i) {}
  __host__ __device__ F real() const { return re; }
  __host__ __device__ F imag() const { return im; }
};
#define RGPU_COMPLEX(OP, RE, IM) \\
  template <typename F> __device__ complex<F> operator OP(complex<F> a, complex<F> b) { \\
    return complex<F>(RE, IM); \\
  } \\
  template <typename F> __device__ complex<F> operator OP(complex<F> a, F b) { \\
    return a OP complex<F>(b); \\
  } \\
  template <typename F> __device__ complex<F> operator OP(F a, complex<F> b) { \\
    return complex<F>(a) OP b; \\
  }
RGPU_COMPLEX(+, a.re + b.re, a.im + b.im)
RGPU_COMPLEX(-, a.re - b.re, a.im - b.im)
RGPU_COMPLEX(*, a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re)
RGPU_COMPLEX(/, (a.re * b.re + a.im * b.im) / (b.re * b.re + b.im * b.im), \\
             (a.im * b.re - a.re * b.im) / (b.re * b.re + b.im * b.im))
template <typename F> __device__ F real(complex<F> a) { return a.re; }
template <typename F> __device__ F imag(complex<F> a) { return a.im; }
template <typename F> __device__ complex<F> conj(complex<F> a) { return complex<F>(a.re, -a.im); }
template <typename F> __device__ F abs(complex<F> a) { return hypot(a.re, a.im); }
"""
_RAW: Final = """
template <typename E> struct rgpu_raw {
  E* begin;
  long long count;
  __device__ E& operator[](long long at) const { return begin[at]; }
  __device__ long long size() const { return count; }
};
struct rgpu_indexer {
  long long count;
  __device__ long long size() const { return count; }
};
"""
_FIXED: Final = """
typedef signed char int8; typedef short int16; typedef int int32; typedef long long int64;
typedef unsigned char uint8; typedef unsigned short uint16; typedef unsigned int uint32;
typedef unsigned long long uint64; typedef float float32; typedef double float64;
"""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a kernel.

    kind: a dtype's name, or a letter that stands for one. raw: the kernel indexes it itself.
    """

    name: str
    kind: str
    raw: bool = False

    @property
    def fixed(self) -> np.dtype[Any] | None:
        """The dtype, unless a letter stands for it."""
        if len(self.kind) == 1:
            return None
        return np.dtype(self.kind)


def parameters(text: str) -> tuple[Parameter, ...]:
    """Reads a list of parameters.

    Raises:
        ValueError: it is not one; the text names the part.
    """
    return tuple(_parameter(part) for part in text.split(",") if part.strip())


def _parameter(part: str) -> Parameter:
    words = part.split()
    words = [word for word in words if word not in ("const", "_non_const")]
    raw = bool(words) and words[0] == "raw"
    words = words[1:] if raw else words
    if len(words) != 2 or not _NAME.fullmatch(words[1]) or words[1].startswith("_"):
        raise ValueError(f"Invalid kernel parameter: {part.strip()!r}")
    if words[1] in ("i", "n", "_ind"):
        raise ValueError(f"Parameter name '{words[1]}' is not allowed")
    kind = words[0]
    if len(kind) > 1 and kind not in C_TYPES:
        try:
            kind = np.dtype(kind).name
        except TypeError:
            raise ValueError(f"Invalid kernel parameter: {part.strip()!r}") from None
    return Parameter(words[1], kind, raw)


def types(given: Iterable[tuple[Parameter, Any]]) -> dict[str, np.dtype[Any]]:
    """Returns the dtypes of letters, which arrays decide, and numbers where no array does.

    Raises:
        TypeError: arrays of different dtypes have the same letter, or one is not of a fixed dtype.
    """
    pairs = list(given)
    found: dict[str, np.dtype[Any]] = {}
    for parameter, value in pairs:
        if isinstance(value, Handle):
            dtype = value._meta.dtype
            wanted = parameter.fixed or found.setdefault(parameter.kind, dtype)
            if wanted != dtype:
                raise TypeError(
                    f"Type is mismatched. {parameter.name} {dtype} {wanted} {parameter.kind}"
                )
    for parameter, value in pairs:
        if not isinstance(value, Handle) and parameter.fixed is None:
            found.setdefault(parameter.kind, np.asarray(value).dtype)
    return found


def dtype_of(parameter: Parameter, letters: dict[str, np.dtype[Any]]) -> np.dtype[Any]:
    """Returns the dtype of a parameter.

    Raises:
        ValueError: nothing decides it.
    """
    found = parameter.fixed or letters.get(parameter.kind)
    if found is None:
        raise ValueError(
            f"the type {parameter.kind} of {parameter.name} is not decided by an argument"
        )
    return found


def symbol(name: str) -> str:
    """Returns the function's name, which must be none of CUDA's own, as `norm` is."""
    return f"rgpu_{name}"


def c_type(dtype: np.dtype[Any]) -> str:
    """Returns the type of C++."""
    return C_TYPES[dtype.name]


def head(letters: dict[str, np.dtype[Any]], dtypes: Sequence[np.dtype[Any]], preamble: str) -> str:
    """Returns the beginning of a source: types, and the program's own preamble."""
    text = ""
    if any(dtype.name == "float16" for dtype in dtypes):
        text += "#include <cuda_fp16.h>\ntypedef __half float16;\n"
    if any(dtype.kind == "c" for dtype in dtypes):
        text += _COMPLEX
    text += _FIXED + _RAW
    for letter, dtype in sorted(letters.items()):
        text += f"typedef {c_type(dtype)} {letter};\n"
    return f"{text}{preamble}\n"


def declared(parameter: Parameter, dtype: np.dtype[Any], array: bool, out: bool) -> list[str]:
    """Returns the parameters of the C++ function for one of the kernel's."""
    kind = c_type(dtype)
    if parameter.raw and array:
        return [f"{kind}* _{parameter.name}", f"long long _{parameter.name}_size"]
    if array:
        return [f"{'' if out else 'const '}{kind}* _{parameter.name}"]
    return [f"const {kind} {parameter.name}"]


def raw_lines(given: Iterable[tuple[Parameter, np.dtype[Any], bool]]) -> str:
    """Returns the objects that stand for raw arrays."""
    return "".join(
        f"  const rgpu_raw<{c_type(dtype)}> {p.name} = {{_{p.name}, _{p.name}_size}};\n"
        for p, dtype, array in given
        if p.raw and array
    )
