"""Operations of CuPy's list, with arguments by the names of their parameters."""

from __future__ import annotations

from typing import Any

import numpy as np

from rgpu_common.arrays.messages import Tag
from rgpu_server.arrays import cupy_rows
from rgpu_server.arrays.cupy_library import DTYPES
from seam.draw import FLOATS, NUMBERS, SHAPES, A, Draw, V, words

# Parameters that are numbers, shapes, dtypes or flags. The others are arrays, most of the time.
_NUMBERS = frozenset(
    words(
        """
        n N M k m axis axis1 axis2 dim num start stop step repeats ndim minlength order rank bins
        decimals shift size window_length polyorder deriv up down nperseg noverlap nfft numtaps wlen
        q r seed low high iterations origin offset kth power maxiter ncv restart width at part
        radius percentile points nbits length
        """
    )
)
_SHAPES = frozenset(
    words(
        """
        shape newshape new_shape reps pad_width axes size s dimensions output_shape window_shape
        strides grid block kernel_size mysize footprint_shape indices_or_sections
        """
    )
)
_FLOATS = frozenset(
    words(
        """
        sigma zoom angle cval fs beta alpha std p rcond tol a_min a_max fc lam scale loc df
        """
    )
)
_FLAGS = frozenset(
    words(
        """
        keepdims full_matrices reshape prefilter sym fftbins whole sparse copy replace
        """
    )
)
_SOURCES = (
    'extern "C" __global__ void k(float* a) { a[threadIdx.x] = 1; }',
    'extern "C" __global__ void k(long long* a) { a[1 << 20] = 1; }',
    'extern "C" __global__ void k(char** a) { for (;;) a[0][0]++; }',
    '#include "/etc/passwd"\nextern "C" __global__ void k(float* a) {}',
    '#include <../../../../etc/passwd>\nextern "C" __global__ void k(float* a) {}',
    "template <int n> struct S { static const int v = S<n + 1>::v; }; __device__ int x = S<0>::v;",
    'extern "C" __global__ void k(float* a) { asm volatile(".include \\"/etc/passwd\\""); }',
    'extern "C" __global__ void k(float* a) { asm volatile("trap;"); }',
    "#define A(x) x x x x x x x x\n#define B(x) A(A(A(A(x))))\n"
    'extern "C" __global__ void k(float* a) { B(B(*a += 1;)) }',
    "\\", '#line 1 "/etc/shadow"\n#error x', "#pragma push_macro(", "__global__ void k(", "/*",
)  # fmt: skip


class CupyDraw(Draw):
    """Mostly arguments that a parameter of this name takes."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.names = sorted(cupy_rows.rows())
        self._texts = cupy_rows._texts()

    def dtypes(self) -> list[str]:
        return list(DTYPES)

    def itemsize(self, dtype: str) -> int:
        return np.dtype(dtype).itemsize

    def operation(self) -> tuple[str, list[Any], dict[str, Any], list[Any]]:
        draw = self.random
        if draw.random() < 0.02:
            return self._kernel()
        row = cupy_rows.find(draw.choice(self.names))
        slots: list[Any] = []
        least = min(len(row.parameters), draw.choice((1, 1, 2, 2, 3)))
        count = draw.randint(least, len(row.parameters)) if draw.random() < 0.4 else least
        arguments = [self._argument(name, slots) for name in row.parameters[:count]]
        if row.rest:
            arguments += [self._array(slots) for _ in range(draw.randrange(4))]
        if row.public == "einsum":
            arguments.insert(0, draw.choice(("ij,jk->ik", "ii", "i->", "...", "abcd", "i,i,i->i")))
        if row.public.startswith("rgpu.ufunc_"):
            arguments[0] = draw.choice(("add", "multiply", "maximum", "power", "divmod", "gcd"))
        keywords = {
            name: self._argument(name, slots) for name in row.keywords if draw.random() < 0.2
        }
        return row.public, arguments, keywords, slots

    def _argument(self, name: str, slots: list[Any]) -> Any:
        draw = self.random
        if draw.random() < 0.04:
            return self._strange(slots)
        if name in self._texts and draw.random() < 0.8:
            return draw.choice(sorted(self._texts[name]))
        if name == "dtype":
            return [Tag.DTYPE, draw.choice(DTYPES)]
        if name in _SHAPES and draw.random() < 0.8:
            return [Tag.TUPLE, *draw.choice((*SHAPES, (draw.choice(NUMBERS), 2), (1, 1, 1)))]
        if name in _NUMBERS and draw.random() < 0.9:
            return self._number(slots)
        if name in _FLOATS and draw.random() < 0.9:
            return draw.choice((*FLOATS, 2.0))
        if name in _FLAGS:
            return draw.random() < 0.5
        if name in ("index", "slices") and draw.random() < 0.6:
            part = [Tag.SLICE, draw.choice(NUMBERS), None, draw.choice(NUMBERS)]
            return [Tag.TUPLE, part, draw.choice(([Tag.ELLIPSIS], None, self._array(slots)))]
        if draw.random() < 0.05:
            return [Tag.LIST, *(self._array(slots) for _ in range(draw.randrange(4)))]
        return self._array(slots)

    def _array(self, slots: list[Any]) -> Any:
        slots.append(self.object())
        return A

    def _number(self, slots: list[Any]) -> Any:
        if self.random.random() < 0.5:
            return self.random.choice(NUMBERS)
        slots.append(self.random.choice(NUMBERS))
        return V

    def _strange(self, slots: list[Any]) -> Any:
        draw = self.random
        return draw.choice((
            None, True, draw.choice(NUMBERS), draw.choice(FLOATS), "O", "__class__", "C",
            [Tag.LIST], [Tag.TUPLE, 1, [Tag.TUPLE, 2]], [Tag.COMPLEX, 1.0, 2.0], [Tag.ELLIPSIS],
            [Tag.TUPLE, [Tag.DTYPE, "float32"], 1 << 20], [Tag.LIST, None, 1],
            [Tag.SLICE, None, None, 0], [Tag.MAP, {}],
        ))  # fmt: skip

    def _kernel(self) -> tuple[str, list[Any], dict[str, Any], list[Any]]:
        if self._recent and self.random.random() < 0.5:
            slots = [self.random.choice(self._recent), self.object()]
            sizes = [Tag.TUPLE, self.random.choice((1, 2, 32, 1 << 20))]
            return "kernel.launch", [A, sizes, sizes, [Tag.TUPLE, A], 0], {}, slots
        options = [Tag.TUPLE, *self.random.choice(((), ("-DX=1",), ("-I/etc",), ("--std=c++17",)))]
        return "kernel.compile", [self.random.choice(_SOURCES), "k", options], {}, []
