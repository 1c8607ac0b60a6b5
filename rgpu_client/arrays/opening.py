"""Opens the session of this process at the array seam, as the `RGPU_*` variables describe it."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rgpu_client.arrays.issuer import Issuer
from rgpu_client.session.greeting import hello_of, program_name
from rgpu_client.settings import SILENT_REMEDY, configured_server
from rgpu_client.sizes import sizes_of
from rgpu_common.arrays.line import Line, LineError, Woken
from rgpu_common.errors import NoSessionError
from rgpu_common.texts import one_line
from rgpu_common.wire.fields import WishKey
from rgpu_common.wire.frame import Kind, WireError
from rgpu_common.wire.handshake import Handshake
from rgpu_common.wire.hello import GRANTS_MINOR, put_hello
from rgpu_common.wire.refused import decode_refused
from rgpu_common.wire.welcome import Welcome, decode_welcome

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rgpu_common.arrays.messages import Failure
    from rgpu_common.arrays.seams import Seam

_CONNECT_SECONDS = 10.0
# A worker with PyTorch takes seconds to start.
_WELCOME_SECONDS = 90.0
_SLICE_MS = 200


@dataclass(frozen=True, slots=True)
class Opened:
    """A session. library: the array library on the node with its version. server: the address."""

    issuer: Issuer
    library: str
    server: str
    memory_bytes: int


def open_session(
    seam: Seam,
    raising: Callable[[Failure], BaseException] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Opened:
    """Opens a session with an array library.

    Raises:
        NoSessionError: the server does not answer, or refuses; the sentence says why.
        UsageError: a variable has a value that cannot be used.
    """
    values = os.environ if environment is None else environment
    sizes = sizes_of(values)
    wishes = [(WishKey.SEAM, int(seam))]
    hello = hello_of(values, program_name(), sizes.key, sizes.device, wishes, GRANTS_MINOR)
    line, server = _connect(values)
    try:
        line.send(Kind.HANDSHAKE, Handshake.HELLO, put_hello(hello))
        welcome = _welcome(line, server, seam)
    except LineError as error:
        line.close()
        raise NoSessionError(f"the server at {server} ended the connection: {error}") from None
    except BaseException:
        line.close()
        raise
    marks = (WishKey.MARKS, 1) in welcome.grants
    blocking = values.get("CUDA_LAUNCH_BLOCKING") == "1"
    issuer = Issuer(line, raising, marks=marks, blocking=blocking)
    return Opened(issuer, welcome.note, server, welcome.memory_limit_bytes)


def _connect(environment: Mapping[str, str]) -> tuple[Line, str]:
    """Connects to the first path that accepts a connection, as other sessions do."""
    first = str(configured_server(None, environment))
    others = filter(None, environment.get("RGPU_PATHS", "").split(";"))
    why = ""
    for server in (first, *others):
        # The line has no ring in shared memory; it uses the ring's socket.
        uri = "unix:" + server.removeprefix("shm:") if server.startswith("shm:") else server
        try:
            return Line.connect(uri, _CONNECT_SECONDS), server
        except LineError as error:
            why = why or str(error)
    raise NoSessionError(why)


def _welcome(line: Line, server: str, seam: Seam) -> Welcome:
    deadline = time.monotonic() + _WELCOME_SECONDS
    while time.monotonic() < deadline:
        try:
            message = line.next(_SLICE_MS)
        except Woken:
            continue
        try:
            if message.kind is Kind.HANDSHAKE and message.opcode == Handshake.REFUSED:
                raise NoSessionError(one_line(decode_refused(message.head).sentence, 4096))
            if message.kind is Kind.HANDSHAKE and message.opcode == Handshake.WELCOME:
                return _granted(decode_welcome(message.head), server, seam)
        except WireError:
            pass
        raise NoSessionError(
            f"the server at {server} answers in a way this release does not know; install the same "
            "release on both sides"
        )
    raise NoSessionError(f"the server at {server} does not answer{SILENT_REMEDY}")


def _granted(welcome: Welcome, server: str, seam: Seam) -> Welcome:
    granted = {grant.key: grant.value for grant in welcome.grants}
    if granted.get(WishKey.SEAM) == seam:
        return welcome
    raise NoSessionError(
        f"the server at {server} has rgpu {one_line(welcome.release, 256)}, which does not "
        f"execute arrays of {seam.title}; install a newer release there"
    )
