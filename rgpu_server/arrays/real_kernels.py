"""The operations on kernels where CuPy itself compiles and launches them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rgpu_server.arrays.kernel_sources import KernelOperations

if TYPE_CHECKING:
    from rgpu_server.arrays.kernel_sources import Source


class CupyKernels(KernelOperations):
    """Compiles and launches with CuPy. cupy: the imported module."""

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy

    def compile(self, source: Any, name: Any, options: Any = (), backend: Any = "nvrtc") -> Any:
        """See `KernelOperations.compile`. A long source is an array of CuPy."""
        if isinstance(source, self._cupy.ndarray):
            source = source.get()
        return super().compile(source, name, options, backend)

    def compiled(self, wanted: Source) -> Any:
        """Returns a kernel of a source.

        Raises:
            UnicodeDecodeError: the source is no UTF-8.
            cupy.cuda.compiler.CompileException: the source has an error.
        """
        module = self._cupy.RawModule(
            code=wanted.text.decode(),
            options=wanted.options,
            backend="nvrtc",
            name_expressions=list(wanted.expressions) or None,
        )
        kernel = module.get_function(wanted.name)
        # The compiler is asked for nothing before this.
        kernel.compile()
        return kernel

    def launch(self, kernel: Any, grid: Any, block: Any, args: Any = (), shared: Any = 0) -> None:
        """Launches a kernel.

        Raises:
            TypeError: it is no kernel.
        """
        if not isinstance(kernel, self._cupy.RawKernel):
            raise TypeError("only what kernel.compile returns can be launched")
        kernel(tuple(grid), tuple(block), tuple(args), shared_mem=int(shared))
