"""Finds out whether connecting to a `ucx:` address would end this process.

UCX 1.13 ends its process when something that does not speak UCX answers, for instance the TCP port
of a server. Its API cannot find this out before. So another process connects first.
"""

from __future__ import annotations

import functools
import os
import sys

from netprobe.native import Line
from netprobe.schemes import scheme_of
from rgpu_common.errors import RgpuError, ServerError

_TRY_SECONDS = 5.0
# Further time for starting Python and loading UCX.
_START_SECONDS = 10.0
_MAIN = "import sys; from netprobe.reach import try_to_reach; try_to_reach(sys.argv[1])"


@functools.cache
def check_reach(uri: str) -> None:
    """Checks that connecting to `uri` does not end the process. It does nothing unless `uri` is
    `ucx:`. All other errors appear when the caller connects.

    Raises:
        ServerError: connecting to `uri` would end this process.
    """
    if scheme_of(uri) != "ucx":
        return
    import subprocess

    # UCX would show a trace of its stack, or wait for a debugger.
    environment = {**os.environ, "UCX_HANDLE_ERRORS": "none"}
    try:
        ended = subprocess.run(
            [sys.executable, "-c", _MAIN, uri], env=environment, cwd="/", check=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            timeout=_TRY_SECONDS + _START_SECONDS,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return
    if ended.returncode < 0:
        raise ServerError(
            f"what listens at {uri} does not speak UCX (its answer ended the process that tried): "
            "name the server's ucx: address, or leave ucx: out for its TCP port (--server or "
            "RGPU_SERVER)"
        )


def try_to_reach(uri: str) -> None:
    """Connects as a probe does. Its errors do not matter: the exit status says if UCX ended it."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        with Line(uri, _TRY_SECONDS):
            pass
    except RgpuError:
        pass
