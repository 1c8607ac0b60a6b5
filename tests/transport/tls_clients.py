"""Clients of a server on `tls:`, and their messages."""

from __future__ import annotations

import os
import subprocess

from helpers import clients
from helpers.server import Server, rgpu_command

MTLS = "[identity]\nrequire = 'always'\noperators = ['bob']"
HOLD = """
import sys
cuda.open()
address = cuda.alloc(1 << 20)
print("here", flush=True)
for line in sys.stdin:
    cuda.upload(address, line.encode())
    print(cuda.download(address, len(line)).decode(), end="", flush=True)
"""


def port(server: Server) -> int:
    return int(server.tls.rpartition(":")[2])


def start(server: Server, source: str, **variables: str) -> subprocess.Popen[str]:
    return clients.start(server.tls, source, **variables)


def opens(address: str, variables: dict[str, str]) -> tuple[bool, str]:
    """Returns whether a program gets its session, and the error output of the program and the API's
    client.
    """
    status, _, errors = clients.run(address, "cuda.open()", **variables)
    done = subprocess.run(
        [rgpu_command(), "devices", "--server", address],
        env={**os.environ, **variables}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (status == 0) == (done.returncode == 0), errors + done.stderr
    return status == 0, errors + done.stderr
