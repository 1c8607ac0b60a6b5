"""Programs for clients over grpc:."""

from __future__ import annotations


def copies(mib: int) -> str:
    """Returns a program that sends so much to the device and compares what comes back."""
    return f"""
import os
cuda.open()
data = os.urandom({mib} << 20)
device = cuda.alloc(len(data))
cuda.upload(device, data)
assert cuda.download(device, len(data)) == data
print("ok")
"""


COPY = copies(3)
