"""The exceptions that a program expects of CuPy, for failures on the node."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from rgpu_common.arrays.messages import Failure


class OutOfMemoryError(MemoryError):
    """The lease has no room for what an operation makes."""


class CompileException(Exception):
    """The source of a kernel does not compile. The text is the compiler's."""

    def get_message(self) -> str:
        """Returns the compiler's text."""
        return str(self)

    def dump(self, f: Any) -> None:
        """Writes the compiler's text to a file."""
        f.write(str(self))


class CUDARuntimeError(RuntimeError):
    """CUDA has reported an error."""


class CUDADriverError(RuntimeError):
    """CUDA's driver has reported an error."""


# Only these builtins are made of a name that comes from the node.
_BUILTINS: Final = [
    "ArithmeticError",
    "AssertionError",
    "AttributeError",
    "BufferError",
    "FloatingPointError",
    "IndexError",
    "KeyError",
    "LookupError",
    "MemoryError",
    "NotImplementedError",
    "OverflowError",
    "RuntimeError",
    "TypeError",
    "ValueError",
    "ZeroDivisionError",
]
_OTHERS: Final[dict[str, Any]] = {
    "AxisError": np.exceptions.AxisError,
    "LinAlgError": np.linalg.LinAlgError,
    "TooHardError": np.exceptions.TooHardError,
    "UFuncTypeError": TypeError,
    "UFuncNoLoopError": TypeError,
    "UFuncInputCastingError": TypeError,
    "UFuncOutputCastingError": TypeError,
    "UFuncBinaryResolutionError": TypeError,
    "UFuncCastingError": TypeError,
    "_UFuncNoLoopError": TypeError,
    "_UFuncInputCastingError": TypeError,
    "_UFuncOutputCastingError": TypeError,
    "_UFuncBinaryResolutionError": TypeError,
    "_ArrayMemoryError": OutOfMemoryError,
    "MemoryError": OutOfMemoryError,
    "OutOfMemoryError": OutOfMemoryError,
    "NotOfferedError": NotImplementedError,
    "CompileException": CompileException,
    "CUDARuntimeError": CUDARuntimeError,
    "CUDADriverError": CUDADriverError,
}


def exception(failure: Failure) -> BaseException:
    """Returns the exception for a failure on the node, with its type and text."""
    module, _, name = failure.type.rpartition(".")
    kind = _OTHERS.get(name)
    if kind is None and module == "builtins" and name in _BUILTINS:
        kind = getattr(builtins, name)
    if kind is None:
        return RuntimeError(f"{name}: {failure.text}")
    made: BaseException = kind(failure.text)
    return made
