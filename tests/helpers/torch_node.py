"""A worker of an array session with PyTorch, as a process: `python torch_node.py DESCRIPTOR BYTES`.

BYTES is the memory of the lease.
"""

from __future__ import annotations

import contextlib
import sys

from rgpu_common.arrays.line import Line, LineError
from rgpu_server.arrays.confine import limit_memory
from rgpu_server.arrays.engine import Engine
from rgpu_server.arrays.torch_library import TorchLibrary


class Quota:
    """A lease's memory."""

    def __init__(self, total: int) -> None:
        self._left = total

    def charge(self, size: int) -> bool:
        if size > self._left:
            return False
        self._left -= size
        return True

    def release(self, size: int) -> None:
        self._left += size


class OpenGate:
    """Nobody else wants the device."""

    def enter(self) -> None:
        pass

    def leave(self) -> None:
        pass


def main() -> None:
    """Serves one session."""
    line, total = Line.adopted(int(sys.argv[1])), int(sys.argv[2])
    limit_memory(total)
    library = TorchLibrary(Quota(total), total, threads=1)
    with contextlib.suppress(LineError):
        Engine(line, library, OpenGate()).serve()


if __name__ == "__main__":
    main()
