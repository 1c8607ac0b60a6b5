"""NVRTC by ctypes: CUDA C++ to PTX, or to the code of one device."""

from __future__ import annotations

import ctypes
import os
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


# The option for the code of a device of that compute capability, and for PTX.
CODE, PTX = "--gpu-architecture=sm_", "--gpu-architecture=compute_"


class NvrtcMissingError(RuntimeError):
    """This node has no NVRTC. The text says how to get it."""


class SourceError(Exception):
    """The compiler refuses the source. The text is its log."""


class Compiled(Struct, frozen=True):
    """code: PTX, which ends with a zero byte, or a device's code. names: what it calls each name
    expression. log: the warnings.
    """

    code: bytes
    names: dict[str, str]
    log: str


class Nvrtc:
    """The library with its own parts loaded, so that compiling opens no file."""

    def __init__(self) -> None:
        """Loads it.

        Raises:
            NvrtcMissingError: it is not installed, or cannot be loaded.
        """
        folder = _folder()
        try:
            # NVRTC looks for this part by its name, and finds it loaded.
            for part in sorted(folder.glob("libnvrtc-builtins.so.*")):
                ctypes.CDLL(str(part))
            (found,) = sorted(folder.glob("libnvrtc.so.*"))[-1:]
            self._library = ctypes.CDLL(str(found))
            self._capabilities = self._known_capabilities()
        except (OSError, ValueError, AttributeError, SourceError) as error:
            raise NvrtcMissingError(f"NVRTC in {folder} cannot be loaded: {error}") from None

    def compile(
        self,
        source: bytes,
        file: str,
        options: Sequence[str],
        expressions: Sequence[str],
        headers: Mapping[str, bytes],
    ) -> Compiled:
        """Compiles a source.

        Args:
            source: CUDA C++.
            file: the name that the log gives the source.
            options: NVRTC's. With CODE a device's code is made, which a driver takes also if it is
                older than NVRTC's PTX; or PTX, for a device that is newer than NVRTC.
            expressions: names of kernels as C++ has them, as `scale<float>`.
            headers: what the source includes, by the names by which it does.

        Raises:
            SourceError: the source has an error.
        """
        program = c_void_p()
        names = (c_char_p * max(len(headers), 1))(*(one.encode() for one in headers))
        texts = (c_char_p * max(len(headers), 1))(*headers.values())
        count = c_int(len(headers))
        create = self._library.nvrtcCreateProgram
        self._check(create(byref(program), c_char_p(source), file.encode(), count, texts, names))
        for one in expressions:
            self._check(self._library.nvrtcAddNameExpression(program, one.encode()))
        options = [self._known(one) for one in options]
        words = (c_char_p * max(len(options), 1))(*(one.encode() for one in options))
        failed = self._library.nvrtcCompileProgram(program, c_int(len(options)), words)
        log = self._taken("ProgramLog", program).rstrip(b"\0").decode(errors="replace")
        if failed:
            raise SourceError(log or self._words(failed))
        lowered = {one: self._lowered(program, one) for one in expressions}
        what = "CUBIN" if any(one.startswith(CODE) for one in options) else "PTX"
        return Compiled(self._taken(what, program), lowered, log)

    def _known(self, option: str) -> str:
        """Returns an option. For a device that NVRTC does not know, CODE becomes PTX for the latest
        earlier one that it knows; the driver makes the device's code of it.
        """
        if not option.startswith(CODE):
            return option
        wanted = int(option.removeprefix(CODE))
        earlier = [one for one in self._capabilities if one < wanted]
        # If there is no earlier one, NVRTC is too new for the device, and its log says so.
        return option if wanted in self._capabilities or not earlier else f"{PTX}{earlier[-1]}"

    def _known_capabilities(self) -> list[int]:
        """Returns the compute capabilities that NVRTC knows, as 90 for 9.0, the least first."""
        count = c_int()
        self._check(self._library.nvrtcGetNumSupportedArchs(byref(count)))
        found = (c_int * count.value)()
        self._check(self._library.nvrtcGetSupportedArchs(found))
        return sorted(found)

    def _lowered(self, program: c_void_p, expression: str) -> str:
        name = c_char_p()
        self._check(self._library.nvrtcGetLoweredName(program, expression.encode(), byref(name)))
        return (name.value or b"").decode()

    def _taken(self, what: str, program: c_void_p) -> bytes:
        size = c_size_t()
        self._check(getattr(self._library, f"nvrtcGet{what}Size")(program, byref(size)))
        text = ctypes.create_string_buffer(max(size.value, 1))
        self._check(getattr(self._library, f"nvrtcGet{what}")(program, text))
        return text.raw[: size.value]

    def _check(self, result: int) -> None:
        if result:
            raise SourceError(self._words(result))

    def _words(self, result: int) -> str:
        words = self._library.nvrtcGetErrorString
        words.restype = c_char_p
        return str((words(c_int(result)) or b"").decode())


def toolkit() -> Path:
    """Returns where CUDA's toolkit is if it was not installed by pip, as CuPy looks for it."""
    return Path(os.environ.get("CUDA_PATH") or "/usr/local/cuda")


def _folder() -> Path:
    """Returns the folder with NVRTC: of NVIDIA's package, or else of the toolkit."""
    spec = find_spec("nvidia")
    for root in (spec.submodule_search_locations or []) if spec is not None else []:
        for part in sorted(Path(root).glob("*/lib/libnvrtc.so.*"), reverse=True):
            return part.parent
    if any((toolkit() / "lib64").glob("libnvrtc.so.*")):
        return toolkit() / "lib64"
    raise NvrtcMissingError(
        "this GPU node has no NVRTC, which compiles the source of kernels: install "
        "nvidia-cuda-nvrtc and nvidia-cuda-runtime beside rgpu there, or name CUDA's "
        "toolkit in CUDA_PATH"
    )
