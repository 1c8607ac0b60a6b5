"""The operations on kernels where CuPy itself launches them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from rgpu_server.arrays.kernel_sources import KernelOperations
from rgpu_server.arrays.modules import Modules
from rgpu_server.arrays.nvrtc import CODE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rgpu_server.arrays.device import Device
    from rgpu_server.arrays.engine import Gate
    from rgpu_server.arrays.kernel_sources import Source
    from rgpu_server.arrays.source_compiler import SourceCompiler


class Kernel(Struct, frozen=True):
    """A kernel that can be launched.

    name: as the client named it. attributes: by CuPy's names. function: CuPy's. module: has it.
    """

    name: str
    attributes: Mapping[str, int]
    function: Any
    module: Any


class CupyKernels(KernelOperations):
    """Launches with CuPy what a process beside the worker has compiled."""

    def __init__(
        self, cupy: Any, device: Device, compiler: SourceCompiler, gate: Gate | None = None
    ) -> None:
        """Makes them.

        Args:
            cupy: the imported module.
            device: the one that CuPy uses.
            compiler: compiles the sources.
            gate: see `Modules`.
        """
        self._cupy, self._device = cupy, device
        major, minor = device.capability
        self._modules = Modules(compiler, f"{CODE}{major}{minor}", self._loaded, gate)

    def compile(self, source: Any, name: Any, options: Any = (), backend: Any = "nvrtc") -> Any:
        """See `KernelOperations.compile`. A long source is an array of CuPy."""
        if isinstance(source, self._cupy.ndarray):
            source = source.get()
        return super().compile(source, name, options, backend)

    def compiled(self, wanted: Source) -> Any:
        """Returns a kernel of a source.

        Raises:
            cupy.cuda.compiler.CompileException: the source has an error.
            cupy.cuda.driver.CUDADriverError: there is no kernel of this name, or the device refuses
                the code.
        """
        module, names = self._modules.find(wanted)
        function = module.get_function(names.get(wanted.name, wanted.name))
        return Kernel(wanted.name, self._device.attributes(function.ptr), function, module)

    def launch(self, kernel: Any, grid: Any, block: Any, args: Any = (), shared: Any = 0) -> None:
        """Launches a kernel.

        Raises:
            TypeError: it is no kernel.
        """
        if not isinstance(kernel, Kernel):
            raise TypeError("only what kernel.compile returns can be launched")
        kernel.function(tuple(grid), tuple(block), tuple(args), shared_mem=int(shared))

    def _loaded(self, code: bytes) -> Any:
        module = self._cupy.cuda.Module()
        module.load(code)
        return module
