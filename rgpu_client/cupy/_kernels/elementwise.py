"""ElementwiseKernel: a few lines of C++ for each element."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rgpu_client.cupy._call import call
from rgpu_client.cupy._handle import Handle
from rgpu_client.cupy._kernels.text import (
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

    from rgpu_client.cupy._kernels.text import Parameter

_THREADS: Final = 128
_MOST_BLOCKS: Final = 65535


class ElementwiseKernel:
    """A kernel of which a program writes what happens with each element."""

    def __init__(
        self, in_params: str, out_params: str, operation: str, name: str = "kernel",
        reduce_dims: bool = True, preamble: str = "", no_return: bool = False,
        return_tuple: bool = False, loop_prep: str = "", after_loop: str = "",
        options: Sequence[str] = (), **_: Any,
    ) -> None:  # fmt: skip
        self.in_params = parameters(in_params)
        self.out_params = parameters(out_params)
        self.params = (*self.in_params, *self.out_params)
        self.nin, self.nout = len(self.in_params), len(self.out_params)
        self.nargs = self.nin + self.nout
        if len({parameter.name for parameter in self.params}) != self.nargs:
            raise ValueError("two parameters of the kernel have the same name")
        self.operation, self.name, self.preamble = operation, name, preamble
        self.no_return, self.return_tuple = no_return, return_tuple
        self._prep, self._after = loop_prep, after_loop
        self._variants = Variants(name, options)

    def __call__(
        self, *args: Any, size: int | None = None, block_size: int = _THREADS, **_: Any
    ) -> Any:
        """Computes the outputs. Nothing waits, except for the compiler the first time.

        Raises:
            TypeError: the number of arguments, or a dtype, is wrong.
            ValueError: shapes do not fit, or nothing says how many elements there are.
        """
        if len(args) not in (self.nin, self.nargs):
            raise TypeError(
                f"Wrong number of arguments for {self.name!r}. It must be either {self.nin} or "
                f"{self.nargs} (with outputs), but given {len(args)}."
            )
        given = list(zip(self.params, args, strict=False))
        letters = types(given)
        shape = _shape(given, self.nin, size)
        inputs = [_input(p, value, shape) for p, value in given[: self.nin]]
        outs = [_checked_out(p, value, shape, size) for p, value in given[self.nin :]]
        targets = outs or [self._new(p, letters, shape) for p in self.out_params]
        kept = [one if one._meta.contiguous else one.copy() for one in targets]
        self._launch(
            letters, inputs, kept, int(np.prod(shape)) if size is None else size, block_size
        )
        for target, one in zip(targets, kept, strict=True):
            if target is not one:
                target[...] = one
        if self.no_return:
            return None
        return targets[0] if len(targets) == 1 and not self.return_tuple else tuple(targets)

    def source(self, letters: dict[str, Any], arrays: Sequence[bool]) -> str:
        """Returns the C++. arrays: which parameters are arrays; the others are numbers."""
        dtypes = [dtype_of(p, letters) for p in self.params]
        rows = list(zip(self.params, dtypes, arrays, strict=True))
        words = [
            word
            for at, (p, dtype, array) in enumerate(rows)
            for word in declared(p, dtype, array, at >= self.nin)
        ]
        text = head(letters, dtypes, self.preamble)
        text += f'extern "C" __global__ void {symbol(self.name)}(\n    '
        text += ",\n    ".join([*words, "const long long n"]) + ") {\n"
        text += "  const rgpu_indexer _ind = {n};\n" + raw_lines(rows)
        text += f"  {self._prep};\n"
        text += "  const long long _step = (long long)blockDim.x * gridDim.x;\n"
        text += "  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n;"
        text += " i += _step) {\n"
        for at, (p, dtype, array) in enumerate(rows):
            if array and not p.raw:
                out = at >= self.nin
                kind = f"{c_type(dtype)}&" if out else f"const {c_type(dtype)}"
                text += f"    {kind} {p.name} = _{p.name}[i];\n"
        return text + f"    {self.operation};\n  }}\n  {self._after};\n  (void)_ind;\n}}\n"

    def _launch(
        self, letters: dict[str, Any], inputs: list[Any], outs: list[Any], n: int, threads: int
    ) -> None:
        values = [*inputs, *outs]
        source = self.source(letters, [isinstance(one, Handle) for one in values])
        kernel = self._variants.get(source)
        if n == 0:
            return
        words = launch_values(zip(self.params, values, strict=True), letters)
        blocks = min(_MOST_BLOCKS, -(-n // threads))
        kernel((blocks,), (threads,), (*words, np.int64(n)))

    def _new(self, p: Parameter, letters: dict[str, Any], shape: tuple[int, ...]) -> Any:
        if p.raw:
            raise ValueError("Output array size is Undecided")
        return call("empty", (shape, dtype_of(p, letters)), {})


def _shape(given: list[tuple[Parameter, Any]], inputs: int, size: int | None) -> tuple[int, ...]:
    """Returns over what shape the kernel counts: that of its inputs, or else of its outputs."""
    if size is not None:
        if size < 0:
            raise ValueError("size must not be negative")
        return (size,)
    for some in (given[:inputs], given[inputs:]):
        shapes = [v._meta.shape for p, v in some if not p.raw and isinstance(v, Handle)]
        if shapes:
            return np.broadcast_shapes(*shapes)
    raise ValueError("Loop size is undecided.")


def _input(p: Parameter, value: Any, shape: tuple[int, ...]) -> Any:
    """Returns an input that lies as the elements are counted: arrays in C order."""
    if not isinstance(value, Handle):
        if not isinstance(value, int | float | complex | np.generic):
            raise TypeError(f"Unsupported type {type(value)}")
        return value
    if not p.raw and value._meta.shape != shape:
        value = call("broadcast_to", (value, shape), {})
    return contiguous(value)


def contiguous(value: Any) -> Any:
    """Returns an array in C order: itself, or a copy."""
    return value if value._meta.contiguous else call("rgpu.copy", (value, "C"), {})


def _checked_out(p: Parameter, value: Any, shape: tuple[int, ...], size: int | None) -> Any:
    if not isinstance(value, Handle):
        raise TypeError(f"Output arguments type must be cupy.ndarray, not {type(value)}")
    if not p.raw and size is None and value._meta.shape != shape:
        raise ValueError(f"Out shape is mismatched: {value._meta.shape} instead of {shape}")
    return value
