"""The error with which reading or lowering PTX ends, and its CUresults."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Final

CUDA_ERROR_OUT_OF_MEMORY: Final = 2
CUDA_ERROR_NO_BINARY_FOR_GPU: Final = 209
CUDA_ERROR_INVALID_PTX: Final = 218
CUDA_ERROR_UNSUPPORTED_PTX_VERSION: Final = 222
CUDA_ERROR_NOT_FOUND: Final = 500
CUDA_ERROR_LAUNCH_TIMEOUT: Final = 702
CUDA_ERROR_ASSERT: Final = 710
CUDA_ERROR_MISALIGNED_ADDRESS: Final = 716
CUDA_ERROR_LAUNCH_FAILED: Final = 719
CUDA_ERROR_NOT_SUPPORTED: Final = 801
_SAID_CHARACTERS: Final = 120  # the most of an unforeseen error's text, which may quote the input


class PtxError(Exception):
    """A module or kernel is refused.

    Attributes:
        result: the CUresult that the loading program gets.
        line: the line in the input, from 1; 0 if the error is not about one line.
        later: the text may be legal in a later version of PTX than the one that is known here.
    """

    def __init__(
        self,
        message: str,
        *,
        result: int = CUDA_ERROR_INVALID_PTX,
        line: int = 0,
        later: bool = False,
    ) -> None:
        super().__init__(f"line {line}: {message}" if line else message)
        self.message = message
        self.result = result
        self.line = line
        self.later = later

    @property
    def unsupported(self) -> bool:
        """True if the PTX is legal and the emulated device does not support it."""
        return self.result == CUDA_ERROR_NOT_SUPPORTED

    def within(self, name: str) -> PtxError:
        """Returns the error with the name of its instruction added, unless it has a line or the
        name.
        """
        if self.line or name in self.message:
            return self
        return PtxError(f"{name}: {self.message}", result=self.result, later=self.later)

    def at(self, line: int) -> PtxError:
        """Returns the error with its line added, unless it has one."""
        if self.line:
            return self
        return PtxError(self.message, result=self.result, line=line, later=self.later)


class UndefinedError(PtxError):
    """No input defines a name that one of them uses.

    Attributes:
        symbol: the name.
        module: the number of the input that uses it.
    """

    def __init__(self, message: str, symbol: str, module: int) -> None:
        super().__init__(message)
        self.symbol = symbol
        self.module = module


def refusal_of(error: Exception, doing: str) -> PtxError:
    """Returns the refusal of a kernel for an error that was raised while `doing`.

    An unforeseen error is a defect of the compiler. Only the kernel that causes it is refused, with
    a message that says so, and the compiler goes on.

    Raises:
        MemoryError: the process has no memory left, so it must be replaced.
    """
    if isinstance(error, MemoryError):
        raise error
    if isinstance(error, PtxError):
        return error
    if isinstance(error, RecursionError):
        return unsupported(doing, "is nested too deeply for the emulated device's compiler")
    frames = traceback.extract_tb(error.__traceback__)
    place = f", {Path(frames[-1].filename).name} line {frames[-1].lineno}" if frames else ""
    said = f"{type(error).__name__}: {error}"[:_SAID_CHARACTERS]
    return unsupported(
        doing,
        f"met a defect of the emulated device's compiler ({said}{place}); "
        "please report it to rgpu together with the PTX",
    )


def unknown(message: str) -> PtxError:
    """Returns the error for an instruction that is not in the PTX manual."""
    return PtxError(message, later=True)


def unsupported(
    name: str, reason: str = "is not in the emulated device's instruction table"
) -> PtxError:
    """Returns the error for PTX that is legal but not supported here, with its full name."""
    return PtxError(f"{name} {reason}", result=CUDA_ERROR_NOT_SUPPORTED)
