"""An array session within this process: a real line, and the engine on a thread of its own."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest

from rgpu_client.arrays.issuer import Issuer
from rgpu_common.arrays.line import Line, LineError
from rgpu_common.arrays.messages import Tag
from rgpu_server.arrays.engine import Engine
from rgpu_server.arrays.templates import MalformedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rgpu_common.arrays.messages import Failure
    from rgpu_server.arrays.engine import Gate
    from rgpu_server.arrays.library import Library

# The slot of an object in a template.
A = [Tag.SLOT_OBJECT]


class OpenGate:
    """Nobody else wants the device."""

    def enter(self) -> None:
        pass

    def leave(self) -> None:
        pass


class Served:
    """An engine on a thread, and the line of its client.

    broken: the sentence with which the engine ended a session whose client sent nonsense.
    """

    def __init__(self, library: Library, gate: Gate | None = None) -> None:
        ours, theirs = socket.socketpair()
        self.line = Line.adopted(ours.detach())
        self.broken = ""
        self._line = Line.adopted(theirs.detach())
        self.engine = Engine(self._line, library, gate or OpenGate())
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def join(self) -> None:
        """Waits until the engine has ended, because its client is gone."""
        self._thread.join(30)
        assert not self._thread.is_alive()
        self._line.close()

    def _serve(self) -> None:
        try:
            self.engine.serve()
        except LineError:
            pass
        except MalformedError as error:
            self.broken = str(error)
            self._line.shutdown()


@contextlib.contextmanager
def session(
    library: Library,
    raising: Callable[[Failure], BaseException] | None = None,
    gate: Gate | None = None,
) -> Iterator[Issuer]:
    """An open session with a library."""
    served = Served(library, gate)
    issuer = Issuer(served.line, raising)
    try:
        yield issuer
    finally:
        issuer.close()
        served.join()


def put(issuer: Issuer, tensor: Any) -> int:
    """Sends a tensor of PyTorch's; returns its id."""
    made = issuer.new_id()
    data = tensor.contiguous()
    issuer.put(made, str(data.dtype)[6:], list(data.shape), memoryview(data.numpy()).cast("B"))
    return made


def run(
    issuer: Issuer, name: str, slots: Any, arguments: Any, outputs: int = 1, **keywords: Any
) -> int:
    """Issues an operation; returns the id of its result, if it has one."""
    made = issuer.new_id()
    key = (name, str(arguments), str(keywords), outputs)
    issuer.run(
        issuer.template(key, name, arguments, keywords, outputs), slots, [made] if outputs else []
    )
    return made


def refused(issuer: Issuer, why: str, *rest: Any, **keywords: Any) -> None:
    """Asserts that an operation fails with a sentence. why: a pattern. rest: as of `run`."""
    made = run(issuer, *rest, **keywords)
    with pytest.raises(RuntimeError, match=why):
        issuer.describe([made])
    issuer.free(made)
