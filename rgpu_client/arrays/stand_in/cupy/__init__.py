"""`import cupy` under `rgpu run --arrays`: CuPy's interface, executed on the GPU node."""

import sys

from rgpu_client.arrays.aliases import install

install("cupy", "rgpu_client.cupy")
install("cupyx", "rgpu_client.cupyx")
del sys.modules[__name__]
import cupy  # noqa: E402, F401
