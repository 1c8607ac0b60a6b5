"""What daemon and token loop say to each other, over a Unix SEQPACKET socket with descriptors.

A message is a JSON object: "kind" and the fields of the class of that name, nothing else.
"""

from __future__ import annotations

import array
import errno
import json
import os
import socket
from collections import deque
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import Struct
from msgspec.structs import asdict

from rgpu_common.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_MESSAGE_BYTES = 64 << 10
MAX_FDS = 4
# No room now; too many descriptors on their way.
_LATER = (errno.EAGAIN, errno.ENOBUFS, errno.ETOOMANYREFS)
_MAX_INT = (1 << 64) - 1


class Setup(Struct, frozen=True):
    """First message of a daemon.  devices: ordinals of those whose tokens are given out."""

    FDS: ClassVar[tuple[int, ...]] = (0,)
    devices: tuple[int, ...]
    max_kernel_ms: int


class Adopt(Struct, frozen=True):
    """The daemon asks for everything that there is: `LeaseIs` and `WorkerIs`, then `Told`."""

    FDS: ClassVar[tuple[int, ...]] = (0,)


class Start(Struct, frozen=True):
    """The daemon has said all that it knows: grants may begin."""

    FDS: ClassVar[tuple[int, ...]] = (0,)


class LeaseIs(Struct, frozen=True):
    """A lease, new (with page and eventfd) or changed (without).

    tenant: the tenant that pays for the lease's debts.
    ended: the counters of its sessions that have ended, as `Counters` has them.
    record: text that the daemon wants back when it is started again; the loop does not read it.
    """

    FDS: ClassVar[tuple[int, ...]] = (0, 3)
    lease: str
    tenant: str
    device: int
    request_ppm: int
    limit_ppm: int
    weight: int
    priority: int
    paused: bool
    ended: tuple[int, ...]
    record: str


class LeaseGone(Struct, frozen=True):
    FDS: ClassVar[tuple[int, ...]] = (0,)
    lease: str


class WorkerIs(Struct, frozen=True):
    """A worker that has a session, with its pidfd, our end of its control socket, and, if there
    is one, the read end of its log.
    """

    FDS: ClassVar[tuple[int, ...]] = (2, 3)
    session: int
    lease: str
    slot: int
    pid: int
    record: str


class WorkerGone(Struct, frozen=True):
    """The daemon has seen the end of a worker and cleared its slot; `ended` as in `LeaseIs`."""

    FDS: ClassVar[tuple[int, ...]] = (0,)
    session: int
    lease: str
    ended: tuple[int, ...]


class Told(Struct, frozen=True):
    """The loop has answered `Adopt`."""

    FDS: ClassVar[tuple[int, ...]] = (0,)
    leases: int
    workers: int


class UsageIs(Struct, frozen=True):
    """What a lease used of its device; fields as in `core.tokens.usage.Usage`."""

    FDS: ClassVar[tuple[int, ...]] = (0,)
    lease: str
    grants: int
    device_ns: int
    held_ns: int
    waiting_ns: int
    throttled_ns: int
    share_1s_ppm: int
    share_10s_ppm: int


class DeviceIs(Struct, frozen=True):
    """How the token of a device went round since the loop began, as in `tokens.health`.

    decisions, handovers: counts by class of duration; decision_ns, handover_ns: their sums.
    """

    FDS: ClassVar[tuple[int, ...]] = (0,)
    device: int
    switches: int
    fenced: int
    decision_ns: int
    decisions: tuple[int, ...]
    handover_ns: int
    handovers: tuple[int, ...]


class Noted(Struct, frozen=True):
    """Something that the operator should read.  session 0: it is about no session."""

    FDS: ClassVar[tuple[int, ...]] = (0,)
    session: int
    sentence: str


Message = (
    Setup
    | Adopt
    | Start
    | LeaseIs
    | LeaseGone
    | WorkerIs
    | WorkerGone
    | Told
    | UsageIs
    | DeviceIs
    | Noted
)
_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        Setup, Adopt, Start, LeaseIs, LeaseGone, WorkerIs, WorkerGone, Told, UsageIs, DeviceIs,
        Noted,
    )
}  # fmt: skip


def no_usage(lease: str) -> UsageIs:
    """Nothing used yet."""
    return UsageIs(lease, 0, 0, 0, 0, 0, 0, 0)


def encode(message: Message) -> bytes:
    """Returns the message's bytes."""
    fields = asdict(message)
    return json.dumps({"kind": type(message).__name__, **fields}, separators=(",", ":")).encode()


def decode(data: bytes) -> Message:
    """Returns the message that `data` is; ProtocolError if it is none."""
    try:
        fields = json.loads(data)
    except ValueError:
        raise ProtocolError("a message between daemon and token loop is not JSON") from None
    kind = _KINDS.get(str(fields.pop("kind", ""))) if isinstance(fields, dict) else None
    if kind is None:
        raise ProtocolError("a message between daemon and token loop has no known kind")
    wanted = {name: kind.__annotations__[name] for name in kind.__struct_fields__}
    if set(wanted) != set(fields):
        raise ProtocolError(
            f"a message {kind.__name__} has the fields {sorted(fields)} instead of {sorted(wanted)}"
        )
    message: Message = kind(**{name: _field(name, wanted[name], fields[name]) for name in wanted})
    return message


def _field(name: str, kind: str, value: object) -> object:
    if kind == "int" and _is_integer(value):
        return value
    if kind == "bool" and isinstance(value, bool):
        return value
    if kind == "str" and isinstance(value, str):
        return value
    if kind.startswith("tuple") and isinstance(value, list) and all(map(_is_integer, value)):
        return tuple(value)
    raise ProtocolError(f"the field {name} of a message is {value!r}, wanted is {kind}")


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _MAX_INT


class Channel:
    """One end of the socket; neither reads nor writes ever block.

    What cannot be sent yet is kept, with copies of its descriptors, until `flush` gets it out.
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._waiting: deque[tuple[bytes, list[int]]] = deque()

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def waiting(self) -> bool:
        """Whether `flush` has something to do once the socket can be written to."""
        return bool(self._waiting)

    def send(self, message: Message, fds: Sequence[int] = ()) -> None:
        """Sends or keeps a message; the caller's descriptors stay the caller's.

        Raises:
            OSError: the peer is gone.
        """
        data = encode(message)
        if not self._waiting and self._send_now(data, fds):
            return
        self._waiting.append((data, [os.dup(fd) for fd in fds]))

    def flush(self) -> None:
        """Sends what was kept, as far as there is room; errors as `send`."""
        while self._waiting and self._send_now(*self._waiting[0]):
            for fd in self._waiting.popleft()[1]:
                os.close(fd)

    def receive(self) -> tuple[Message, list[int]] | None:
        """Returns a message and its descriptors, which are the caller's; None: there is none yet.

        Raises:
            EOFError: the peer is gone.
            ProtocolError: it is no message; nothing of it is kept.
        """
        try:
            data, fds, flags = self._receive()
        except BlockingIOError:
            return None
        except OSError as error:
            raise EOFError(str(error)) from None
        if not data:
            raise EOFError("the other end has closed")
        try:
            if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
                raise ProtocolError("a message between daemon and token loop is too long")
            message = decode(data)
            if len(fds) not in message.FDS:
                name = type(message).__name__
                raise ProtocolError(f"a {name} came with {len(fds)} descriptors")
        except ProtocolError:
            close_all(fds)
            raise
        return message, fds

    def close(self) -> None:
        for _, fds in self._waiting:
            close_all(fds)
        self._waiting.clear()
        self._socket.close()

    def _send_now(self, data: bytes, fds: Sequence[int]) -> bool:
        try:
            socket.send_fds(self._socket, [data], list(fds), socket.MSG_NOSIGNAL)
        except OSError as error:
            if error.errno in _LATER:
                return False
            raise
        return True

    def _receive(self) -> tuple[bytes, list[int], int]:
        fds = array.array("i")
        room = socket.CMSG_SPACE(MAX_FDS * fds.itemsize)
        data, ancillary, flags, _ = self._socket.recvmsg(
            MAX_MESSAGE_BYTES, room, socket.MSG_CMSG_CLOEXEC
        )
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
        return data, list(fds), flags


def close_all(fds: Sequence[int]) -> None:
    """Closes descriptors."""
    for fd in fds:
        os.close(fd)
