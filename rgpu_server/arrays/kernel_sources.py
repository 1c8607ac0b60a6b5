"""The operations on kernels, and what a client's source and its options may be."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import Any, Final

import numpy as np
from msgspec import Struct

from rgpu_server.arrays.library import NotOfferedError, Operation

MOST_SOURCE_BYTES: Final = 4 << 20
_MOST_OPTIONS: Final = 64
_MOST_OPTION_BYTES: Final = 4096
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MOST_NAME_BYTES: Final = 4096
# Options that choose nothing but how the code is compiled. None names a file, a folder or an
# architecture.
_OPTIONS: Final = re.compile(
    r"""
    -D[A-Za-z_]\w*(=.*)? | --define-macro=[A-Za-z_]\w*(=.*)?
    | -U[A-Za-z_]\w* | --undefine-macro=[A-Za-z_]\w*
    | --?std=c\+\+(03|11|14|17|20)
    | --?use_fast_math
    | --?(ftz|prec-div|prec-sqrt|fmad)=(true|false)
    | --?maxrregcount=\d{1,3}
    | --?diag-(suppress|warn|error)=[\d,]+
    | --(extra-device-vectorization|restrict|device-as-default-execution-space|device-int128)
    | --(generate-line-info|disable-warnings|no-display-error-number|dopt=(on|off))
    | -(extra-device-vectorization|restrict|default-device|lineinfo|w|no-err|dopt=(on|off))
    """,
    re.VERBOSE | re.DOTALL,
)


class Source(Struct, frozen=True):
    """A kernel's source that was checked.

    text: CUDA C++. name: of the kernel. options: the compiler's. expressions: the name again, if it
    is an expression as `scale<float>`.
    """

    text: bytes
    name: str
    options: tuple[str, ...]
    expressions: tuple[str, ...]


class KernelOperations(ABC):
    """The operations on kernels of one session."""

    def operations(self) -> dict[str, Operation]:
        """Returns the operations by their names; `launch` changes the arrays among its values."""
        return {
            "kernel.compile": Operation(self.compile),
            "kernel.launch": Operation(self.launch, changes=(3, "args")),
        }

    def compile(self, source: Any, name: Any, options: Any = (), backend: Any = "nvrtc") -> Any:
        """Returns a kernel of a source.

        Args:
            source: CUDA C++ as text, or as an array of uint8 if it is longer than a message.
            name: of the kernel, or an expression as `scale<float>`.
            options: the compiler's, each as one text.
            backend: must be `nvrtc`.

        Raises:
            TypeError: the source is no text.
            ValueError: the source or the name is empty or too long.
            NotOfferedError: an option or the backend is not offered.

        Errors of `compiled` besides.
        """
        if backend != "nvrtc":
            raise NotOfferedError("kernels are compiled with backend='nvrtc' on this GPU node")
        text = _text(source)
        if not isinstance(name, str) or not 0 < len(name) <= _MOST_NAME_BYTES:
            raise ValueError("a kernel's name is a text of at most 4096 characters")
        expressions = () if _NAME.fullmatch(name) else (name,)
        return self.compiled(Source(text, name, checked_options(options), expressions))

    @abstractmethod
    def compiled(self, wanted: Source) -> Any:
        """Returns the kernel of a source that was checked."""

    @abstractmethod
    def launch(self, kernel: Any, grid: Any, block: Any, args: Any = (), shared: Any = 0) -> None:
        """Launches a kernel.

        Args:
            kernel: from `compile`.
            grid: blocks in up to three dimensions.
            block: threads of a block in up to three dimensions.
            args: one value for each parameter.
            shared: bytes of dynamic shared memory.
        """


def checked_options(options: Any) -> tuple[str, ...]:
    """Returns the compiler's options.

    Raises:
        NotOfferedError: one of them is not on the list.
        ValueError: there are too many, or they are no texts.
    """
    if not isinstance(options, tuple | list) or len(options) > _MOST_OPTIONS:
        raise ValueError(f"options are a list of at most {_MOST_OPTIONS} texts")
    if not all(isinstance(one, str) for one in options):
        raise ValueError("each of the options is a text")
    if sum(map(len, options)) > _MOST_OPTION_BYTES:
        raise ValueError(f"options have at most {_MOST_OPTION_BYTES} characters together")
    for one in options:
        if "\0" in one or not _OPTIONS.fullmatch(one):
            raise NotOfferedError(
                f"the option {one[:100]!r} is not offered on a remote GPU: kernels are compiled "
                "for the node's device, and without files; put what they include into the source"
            )
    return tuple(options)


def _text(source: Any) -> bytes:
    if isinstance(source, np.ndarray) and source.dtype == np.uint8:
        text = source.tobytes() if source.nbytes <= MOST_SOURCE_BYTES else b""
    elif isinstance(source, str):
        text = source.encode()
    else:
        raise TypeError("the source of a kernel is a text")
    if not 0 < len(text) <= MOST_SOURCE_BYTES:
        raise ValueError(f"the source of a kernel has 1 byte to {MOST_SOURCE_BYTES >> 20} MiB")
    if b"\0" in text:
        raise ValueError("the source of a kernel has a zero byte in it")
    return text
