"""The one error that reading or lowering PTX ends with, and the CUresults it carries."""

from __future__ import annotations

from typing import Final

CUDA_SUCCESS: Final = 0
CUDA_ERROR_OUT_OF_MEMORY: Final = 2
CUDA_ERROR_NO_BINARY_FOR_GPU: Final = 209
CUDA_ERROR_INVALID_PTX: Final = 218
CUDA_ERROR_UNSUPPORTED_PTX_VERSION: Final = 222
CUDA_ERROR_NOT_FOUND: Final = 500
CUDA_ERROR_ILLEGAL_ADDRESS: Final = 700
CUDA_ERROR_LAUNCH_TIMEOUT: Final = 702
CUDA_ERROR_MISALIGNED_ADDRESS: Final = 716
CUDA_ERROR_LAUNCH_FAILED: Final = 719
CUDA_ERROR_NOT_SUPPORTED: Final = 801


class PtxError(Exception):
    """A module is refused.

    Attributes:
        result: the CUresult that the loading program gets.
        line: 1-based line in the input, 0 when it is not about one line.
    """

    def __init__(
        self, message: str, *, result: int = CUDA_ERROR_INVALID_PTX, line: int = 0
    ) -> None:
        super().__init__(f"line {line}: {message}" if line else message)
        self.message = message
        self.result = result
        self.line = line

    @property
    def unsupported(self) -> bool:
        """True if the PTX is legal and only the emulated device lacks it."""
        return self.result == CUDA_ERROR_NOT_SUPPORTED

    def at(self, line: int) -> PtxError:
        """The same error, told with its line unless it already knows one."""
        return self if self.line else PtxError(self.message, result=self.result, line=line)


def unsupported(
    name: str, reason: str = "is not in the emulated device's instruction table"
) -> PtxError:
    """The error for PTX that is legal but not executed here, named in full."""
    return PtxError(f"{name} {reason}", result=CUDA_ERROR_NOT_SUPPORTED)
