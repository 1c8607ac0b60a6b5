"""Programs for clients over grpc:."""

from __future__ import annotations

import subprocess

from helpers import clients


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


def start_and_open(address: str) -> subprocess.Popen[str]:
    """Starts a client and waits until it has a session. After a line on its input, the client
    allocates memory, and prints the error if that fails.
    """
    client = clients.start(
        address,
        """
        cuda.open()
        print("open")
        wait_for_line()
        try:
            cuda.alloc(4096)
        except CudaError as error:
            print(error.result)
        """,
    )
    assert client.stdout is not None
    assert client.stdout.readline() == "open\n"
    return client
