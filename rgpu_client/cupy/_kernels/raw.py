"""RawKernel and RawModule: a program's own CUDA C++."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rgpu_client.cupy._call import MAKERS, NOTHING, RULES, VALUES, call
from rgpu_client.cupy._handle import Handle
from rgpu_client.cupy._session import session as current_session
from rgpu_client.cupy._transfer import upload

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rgpu_client.cupy._session import Session

# A longer source is uploaded as bytes, because an operation must fit into a message.
_MOST_TEXT: Final = 16 << 10


class _Compiled(Handle):
    """A kernel on the node."""

    __slots__ = ()


def _launch_rule(*_: Any) -> Any:
    return NOTHING


RULES["kernel.launch"] = _launch_rule
VALUES.add("kernel.launch")
MAKERS["k"] = _Compiled


class RawKernel:
    """A kernel of CUDA C++, which the node compiles with NVRTC when it is first launched.

    backend: `nvrtc`; `nvcc` is refused by the node.
    """

    def __init__(
        self, code: str, name: str, options: Sequence[str] = (), backend: str = "nvrtc",
        translate_cucomplex: bool = False, *, enable_cooperative_groups: bool = False,
        jitify: bool = False,
    ) -> None:  # fmt: skip
        if enable_cooperative_groups or jitify:
            raise NotImplementedError("cooperative groups and jitify are not offered on a GPU node")
        self.code = code
        self.name = name
        self.options = tuple(options)
        self.backend = backend
        # A session's kernel goes with the session.
        self._compiled: weakref.WeakKeyDictionary[Session, _Compiled] = weakref.WeakKeyDictionary()

    def __call__(self, grid: Any, block: Any, args: Any, *, shared_mem: int = 0) -> None:
        """Launches the kernel. Nothing waits, except for the compiler the first time.

        Raises:
            CompileException: the source has an error.
            TypeError: an argument is no array and no number.
        """
        kernel = self._kernel()
        given = [_checked(one) for one in args]
        call("kernel.launch", (kernel, _sizes(grid), _sizes(block), given, int(shared_mem)), {})

    def compile(self, log_stream: Any = None) -> None:
        """Compiles the source now. Errors as a launch."""
        self._kernel()

    @property
    def kernel(self) -> Any:
        """The kernel on the node."""
        return self._kernel()

    @property
    def attributes(self) -> dict[str, Any]:
        """What the driver says of the kernel."""
        return dict(self._kernel()._meta[-1])

    @property
    def max_threads_per_block(self) -> int:
        """The most threads of a block."""
        return int(self.attributes["max_threads_per_block"])

    @property
    def num_regs(self) -> int:
        """The registers of a thread."""
        return int(self.attributes["num_regs"])

    def _kernel(self) -> _Compiled:
        session = current_session()
        found = self._compiled.get(session)
        if found is None:
            found = self._compiled[session] = self._compile(session)
        return found

    def _compile(self, session: Session) -> _Compiled:
        source: Any = self.code
        if len(source) > _MOST_TEXT:
            source = upload(np.frombuffer(source.encode(), np.uint8), session)
        made: _Compiled = call(
            "kernel.compile", (source, self.name, list(self.options), self.backend), {}
        )
        return made


class RawModule:
    """CUDA C++ with several kernels."""

    def __init__(
        self, *, code: str | None = None, path: str | None = None, options: Sequence[str] = (),
        backend: str = "nvrtc", translate_cucomplex: bool = False,
        enable_cooperative_groups: bool = False, name_expressions: Sequence[str] | None = None,
        jitify: bool = False,
    ) -> None:  # fmt: skip
        if path is not None or code is None:
            raise NotImplementedError(
                "a GPU node compiles source only; give `code`, not the `path` of a binary"
            )
        if enable_cooperative_groups or jitify:
            raise NotImplementedError("cooperative groups and jitify are not offered on a GPU node")
        self.code = code
        self.options = tuple(options)
        self.backend = backend
        self.name_expressions = tuple(name_expressions or ())
        self._kernels: dict[str, RawKernel] = {}

    def compile(self, log_stream: Any = None) -> None:
        """Compiles the kernels that were asked for by name expressions."""
        for name in self.name_expressions:
            self.get_function(name).compile()

    def get_function(self, name: str) -> RawKernel:
        """Returns a kernel of the source."""
        found = self._kernels.get(name)
        if found is None:
            found = self._kernels[name] = RawKernel(self.code, name, self.options, self.backend)
        return found

    def get_global(self, name: str) -> Any:
        """Is refused: a variable of the code has an address on the node only."""
        raise NotImplementedError(
            f"the variable {name} cannot be reached from here; give the kernel an array instead"
        )


def _sizes(given: Any) -> tuple[int, ...]:
    parts = given if isinstance(given, tuple | list) else (given,)
    return tuple(int(n) for n in parts)


def _checked(value: Any) -> Any:
    if isinstance(value, np.complex64 | np.complex128):
        raise TypeError("a kernel takes no complex scalar; give it an array of one element")
    if not isinstance(value, Handle | int | float | np.generic):
        raise TypeError(f"Unsupported type {type(value)}")
    return value
