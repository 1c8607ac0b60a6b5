"""The client: runs unmodified CUDA programs on a machine without a GPU.

`rgpu run -- PROGRAM` needs no import of this package. In Python, before the first CUDA import:

    import rgpu_client
    rgpu_client.connect("gpu-node:7700", memory="2GiB")
"""

from __future__ import annotations

from rgpu_client.connection import Connection
from rgpu_client.preload import connect, library_path

__all__ = ["Connection", "connect", "library_path"]
