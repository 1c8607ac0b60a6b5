"""`import cupyx` under `rgpu run --arrays`."""

import sys

from rgpu_client.arrays.aliases import install

install("cupy", "rgpu_client.cupy")
install("cupyx", "rgpu_client.cupyx")
del sys.modules[__name__]
import cupyx  # noqa: E402, F401
