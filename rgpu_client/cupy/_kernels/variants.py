"""The kernels that one of the program's own becomes: dtypes and scalars decide its C++."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rgpu_client.cupy._handle import Handle
from rgpu_client.cupy._kernels.raw import RawKernel
from rgpu_client.cupy._kernels.text import dtype_of, symbol

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rgpu_client.cupy._kernels.text import Parameter


class Variants:
    """One RawKernel for each source. name: the program's. options: the compiler's."""

    def __init__(self, name: str, options: Sequence[str]) -> None:
        self._symbol, self._options = symbol(name), tuple(options)
        self._kernels: dict[str, RawKernel] = {}

    def get(self, source: str) -> RawKernel:
        """Returns the kernel of a source."""
        kernel = self._kernels.get(source)
        if kernel is None:
            kernel = self._kernels[source] = RawKernel(source, self._symbol, self._options)
        return kernel


def launch_values(
    given: Iterable[tuple[Parameter, Any]], letters: dict[str, np.dtype[Any]]
) -> list[Any]:
    """Returns what a launch passes for the parameters that `text.declared` writes."""
    words: list[Any] = []
    for parameter, value in given:
        if not isinstance(value, Handle):
            words.append(dtype_of(parameter, letters).type(value))
            continue
        words.append(value)
        if parameter.raw:
            words.append(np.int64(value._meta.size))
    return words
