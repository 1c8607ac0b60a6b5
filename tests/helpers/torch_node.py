"""A worker of an array session with PyTorch, as a process."""

from __future__ import annotations

import contextlib
import socket

from rgpu_common.arrays.line import Line, LineError
from rgpu_server.arrays.ceiling import give_back, set_ceiling
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

    charge_before = charge

    def release(self, size: int) -> None:
        self._left += size

    @property
    def room(self) -> int:
        return self._left


class OpenGate:
    """Nobody else wants the device."""

    def enter(self) -> None:
        pass

    def leave(self) -> None:
        pass


def serve(connected: socket.socket, total: int) -> None:
    """Serves one session, whose lease has `total` bytes."""
    line = Line.adopted(connected.detach())
    set_ceiling(total)
    library = TorchLibrary(Quota(total), total, threads=1, make_room=give_back)
    with contextlib.suppress(LineError):
        Engine(line, library, OpenGate()).serve()
