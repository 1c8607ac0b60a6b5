"""The code of a session's kernels: compiled beside the worker, loaded into it, and kept for later.

NVRTC never runs in a worker, whatever the device: it reads any file that an `#include` names, and
quotes it in its log. On a GPU a worker may read all files.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from rgpu_server.arrays.nvrtc import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rgpu_server.arrays.engine import Gate
    from rgpu_server.arrays.kernel_sources import Source
    from rgpu_server.arrays.source_compiler import SourceCompiler

_M = TypeVar("_M")
_MOST_MODULES: Final = 256
_FILE: Final = "kernel.cu"


class CompileException(Exception):
    """A source was refused. The text is the compiler's log, as CuPy's exception of that name has
    it.
    """

    # The client raises the class of this name.
    __module__ = "cupy.cuda.compiler"


class Modules(Generic[_M]):
    """Modules by their sources; the last ones used are kept."""

    def __init__(
        self,
        compiler: SourceCompiler,
        architecture: str,
        load: Callable[[bytes], _M],
        gate: Gate | None = None,
    ) -> None:
        """Makes none yet.

        Args:
            compiler: compiles the sources.
            architecture: NVRTC's option for the device.
            load: loads what the compiler makes.
            gate: given back while a source is compiled, because that is no work of the device.
        """
        self._compiler, self._load, self._gate = compiler, load, gate
        self._architecture = architecture
        self._kept: OrderedDict[Any, tuple[_M, dict[str, str]]] = OrderedDict()

    def find(self, wanted: Source) -> tuple[_M, dict[str, str]]:
        """Returns the module of a source, and the names that it has for C++ expressions.

        Raises:
            CompileException: the source has an error.

        Errors of `load` besides.
        """
        # Not the source itself, which may be long.
        key = (hashlib.sha256(wanted.text).digest(), wanted.options, *wanted.expressions)
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
            return found
        found = self._kept[key] = self._made(wanted)
        if len(self._kept) > _MOST_MODULES:
            self._kept.popitem(last=False)
        return found

    def _made(self, wanted: Source) -> tuple[_M, dict[str, str]]:
        if self._gate is not None:
            self._gate.leave()
        try:
            options = (self._architecture, *wanted.options)
            done = self._compiler.compile(wanted.text, _FILE, options, wanted.expressions)
            return self._load(done.code), done.names
        except SourceError as error:
            raise CompileException(str(error)) from None
        finally:
            if self._gate is not None:
                self._gate.enter()
