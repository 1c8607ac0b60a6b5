"""ReductionKernel: C++ for each element, for two values, and for the result."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rgpu_client.cupy._call import call
from rgpu_client.cupy._handle import Handle
from rgpu_client.cupy._kernels.elementwise import contiguous
from rgpu_client.cupy._kernels.text import (
    C_TYPES,
    c_type,
    declared,
    dtype_of,
    head,
    parameters,
    raw_lines,
    symbol,
    types,
)
from rgpu_client.cupy._kernels.variants import Variants, launch_values

if TYPE_CHECKING:
    from collections.abc import Sequence

_THREADS: Final = 256
_MOST_BLOCKS: Final = 65535
# A block reduces the elements of one output. Its threads leave what they have in shared memory.
_BODY: Final = """
  __shared__ __align__(16) char _space[sizeof(_reduced) * {threads}];
  __shared__ bool _full[{threads}];
  _reduced* _values = reinterpret_cast<_reduced*>(_space);
  for (long long _at = blockIdx.x; _at < _outputs; _at += gridDim.x) {{
    bool _has = false;
    for (long long _k = threadIdx.x; _k < _each; _k += blockDim.x) {{
      const long long i = _at * _each + _k;
{inputs}      const _reduced _mapped = ({map});
      _values[threadIdx.x] = _has ? _combined(_values[threadIdx.x], _mapped) : _mapped;
      _has = true;
    }}
    _full[threadIdx.x] = _has;
    __syncthreads();
    for (int _half = blockDim.x / 2; _half > 0; _half /= 2) {{
      const int _other = threadIdx.x + _half;
      if (threadIdx.x < _half && _full[_other]) {{
        _values[threadIdx.x] = _full[threadIdx.x]
            ? _combined(_values[threadIdx.x], _values[_other]) : _values[_other];
        _full[threadIdx.x] = true;
      }}
      __syncthreads();
    }}
    if (threadIdx.x == 0) {{
      const _reduced a = {first};
{outputs}      {post};
    }}
    __syncthreads();
  }}
}}
"""


class ReductionKernel:
    """A kernel that reduces arrays along axes."""

    def __init__(
        self, in_params: str, out_params: str, map_expr: str, reduce_expr: str,
        post_map_expr: str, identity: Any, name: str = "reduce_kernel", reduce_type: Any = None,
        reduce_dims: bool = True, preamble: str = "", options: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.in_params = parameters(in_params)
        self.out_params = parameters(out_params)
        self.params = (*self.in_params, *self.out_params)
        self.nin, self.nout = len(self.in_params), len(self.out_params)
        if self.nout != 1:
            raise ValueError("a reduction on a GPU node has one output")
        self.map_expr, self.reduce_expr = map_expr, reduce_expr
        self.post_map_expr, self.identity = post_map_expr, identity
        self.name, self.preamble, self.reduce_type = name, preamble, reduce_type
        self._variants = Variants(name, options)

    def __call__(
        self,
        *args: Any,
        out: Any = None,
        axis: Any = None,
        keepdims: bool = False,
        stream: Any = None,
    ) -> Any:
        """Reduces. Nothing waits, except for the compiler the first time.

        Raises:
            TypeError: the number of arguments, or a dtype, is wrong.
            ValueError: the arrays are empty and the kernel has no identity, or shapes do not fit.
        """
        if len(args) == self.nin + 1 and out is None:
            *args, out = args  # type: ignore[assignment]
        if len(args) != self.nin:
            raise TypeError(f"Wrong number of arguments for {self.name!r}")
        given = list(zip(self.in_params, args, strict=True))
        letters = types(given if out is None else [*given, (self.out_params[0], out)])
        arrays = [v._meta.shape for p, v in given if isinstance(v, Handle) and not p.raw]
        if not arrays:
            raise TypeError("a reduction needs an array")
        shape = np.broadcast_shapes(*arrays)
        gone = _axes(axis, len(shape))
        kept = tuple(at for at in range(len(shape)) if at not in gone)
        made = self._reduced(given, letters, shape, kept, gone)
        if keepdims:
            made = made.reshape(tuple(1 if at in gone else n for at, n in enumerate(shape)))
        if out is None:
            return made
        out[...] = made
        return out

    def _reduced(
        self, given: list[Any], letters: dict[str, Any], shape: Any, kept: Any, gone: Any
    ) -> Any:
        outer = tuple(shape[at] for at in kept)
        each = prod(shape[at] for at in gone)
        if each == 0 and self.identity is None:
            raise ValueError(
                f"zero-size array to reduction operation {self.name} which has no identity"
            )
        made = call("empty", (outer, dtype_of(self.out_params[0], letters)), {})
        values = [_ordered(p, value, shape, (*kept, *gone)) for p, value in given]
        self._launch(letters, values, made, prod(outer), each)
        return made

    def source(self, letters: dict[str, Any], arrays: Sequence[bool]) -> str:
        """Returns the C++. arrays: which inputs are arrays; the others are numbers."""
        dtypes = [dtype_of(p, letters) for p in self.params]
        rows = list(zip(self.params, dtypes, [*arrays, True], strict=True))
        text = head(letters, dtypes, self.preamble)
        text += f"typedef {self._type(letters)} _reduced;\n"
        text += "__device__ _reduced _combined(const _reduced a, const _reduced b) {\n"
        text += f"  return {self.reduce_expr};\n}}\n"
        words = [
            word
            for at, (p, dtype, array) in enumerate(rows)
            for word in declared(p, dtype, array, at == self.nin)
        ]
        words += ["const long long _outputs", "const long long _each"]
        text += (
            f'extern "C" __global__ void {symbol(self.name)}(\n    '
            + ",\n    ".join(words)
            + ") {\n"
        )
        text += raw_lines(rows[:-1])
        inputs = "".join(
            f"      const {c_type(dtype)} {p.name} = _{p.name}[i];\n"
            for p, dtype, array in rows[:-1]
            if array and not p.raw
        )
        p, dtype, _ = rows[-1]
        identity = "_values[0]"
        if self.identity is not None:
            identity = f"_full[0] ? _values[0] : _reduced({self.identity})"
        return text + _BODY.format(
            threads=_THREADS, inputs=inputs, map=self.map_expr, post=self.post_map_expr,
            first=identity, outputs=f"      {c_type(dtype)}& {p.name} = _{p.name}[_at];\n",
        )  # fmt: skip

    def _type(self, letters: dict[str, Any]) -> str:
        if self.reduce_type is None:
            return c_type(dtype_of(self.out_params[0], letters))
        kind = str(self.reduce_type)
        if kind in letters:
            return c_type(letters[kind])
        return C_TYPES.get(kind, kind)

    def _launch(
        self, letters: dict[str, Any], values: list[Any], made: Any, outputs: int, each: int
    ) -> None:
        source = self.source(letters, [isinstance(one, Handle) for one in values])
        kernel = self._variants.get(source)
        if outputs == 0:
            return
        words = launch_values(zip(self.in_params, values, strict=True), letters)
        words += [made, np.int64(outputs), np.int64(each)]
        kernel((min(outputs, _MOST_BLOCKS),), (_THREADS,), tuple(words))


def _ordered(p: Any, value: Any, shape: tuple[int, ...], order: tuple[int, ...]) -> Any:
    """Returns an input in C order, with the axes that are reduced last."""
    if not isinstance(value, Handle):
        return value
    if p.raw:
        return contiguous(value)
    if value._meta.shape != shape:
        value = call("broadcast_to", (value, shape), {})
    if order != tuple(range(len(shape))):
        value = call("rgpu.transpose", (value, order), {})
    return contiguous(value)


def _axes(axis: Any, ndim: int) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(ndim))
    axes = axis if isinstance(axis, tuple) else (axis,)
    for at in axes:
        if not -ndim <= at < ndim:
            raise np.exceptions.AxisError(at, ndim)
    return tuple(at % ndim for at in axes)
