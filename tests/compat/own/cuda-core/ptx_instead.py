"""A pytest plugin: cuda.core compiles to PTX where its tests ask for a cubin.

The emulated device runs PTX and no SASS.  The driver accepts both where the tests load the code.
"""

from __future__ import annotations

from typing import Any

import cuda.core


class Program(cuda.core.Program):
    """Compiles to PTX for a cubin."""

    def compile(self, target_type: str, *arguments: Any, **options: Any) -> Any:
        """As cuda.core's, with PTX for a cubin."""
        wanted = "ptx" if target_type == "cubin" else target_type
        return super().compile(wanted, *arguments, **options)


cuda.core.Program = Program
