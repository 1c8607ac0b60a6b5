"""A client of the wire by hand: opens a session that survives cuts, resumes it, speaks records."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress

from helpers.waiting import wait_until

from rgpu_common.wire.attach import Attach, encode_attach
from rgpu_common.wire.fields import Band, Wish, WishKey
from rgpu_common.wire.frame import HEADER_BYTES, Frame, parse_header
from rgpu_common.wire.handshake import Handshake
from rgpu_common.wire.hello import Hello, encode_hello
from rgpu_common.wire.messages import Control, encode_message
from rgpu_common.wire.refused import decode_refused
from rgpu_common.wire.resume import Lane, Resume, decode_resumed, encode_resume
from rgpu_common.wire.welcome import Welcome, decode_welcome

MISSING = (
    46,
    "the server has ended this session: its worker is gone, and the server's log says why",
)
RECORD = struct.Struct("<IIQQ")
HELLO = Hello(
    release="test",
    lease_key="by-hand",
    program="test",
    memory_bytes=1 << 20,
    device_bands=(Band(0x2A0000000000, 1 << 40),),
    pinned_bands=(Band(0x3A0000000000, 1 << 34),),
    wishes=(Wish(WishKey.RESUMABLE, 1),),
)


def connect(address: str) -> socket.socket:
    host, port = address.rsplit(":", 1)
    connection = socket.create_connection((host, int(port)), timeout=60)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = connection.recv(count - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data


def frame(connection: socket.socket) -> Frame:
    header = parse_header(exactly(connection, HEADER_BYTES))
    head = exactly(connection, header.head_bytes)
    return Frame(header, head, exactly(connection, header.bulk_bytes))


class ByHand:
    """A session over raw sockets.  `command` and `control` are its connections.

    attaches: whether it sends ATTACH on the second one.
    """

    def __init__(self, address: str, hello: Hello = HELLO, *, attaches: bool = True) -> None:
        self.address = address
        self.command = connect(address)
        self.command.sendall(encode_hello(hello))
        answer = frame(self.command)
        assert answer.header.opcode == Handshake.WELCOME, decode_refused(answer.head)
        self.welcome: Welcome = decode_welcome(answer.head)
        self.control = connect(address)
        if attaches:
            self.attach(self.control)

    def attach(self, connection: socket.socket) -> None:
        """Sends ATTACH."""
        connection.sendall(encode_attach(Attach(self.welcome.session, self.welcome.secret)))

    @property
    def grace_ms(self) -> int:
        return next((g.value for g in self.welcome.grants if g.key == WishKey.RESUMABLE), 0)

    def record(self, connection: socket.socket) -> tuple[int, int, int, int, bytes]:
        """The next record: length, flags, offset, received, the bytes."""
        header = RECORD.unpack(exactly(connection, RECORD.size))
        return (*header, exactly(connection, header[0]))

    def resume(
        self, epoch: int, received: int = 0, lane: Lane = Lane.COMMAND, **fields: object
    ) -> tuple[socket.socket, Frame]:
        """Sends RESUME on a new connection; returns the connection and the answer."""
        message = Resume(self.welcome.session, self.welcome.secret, lane, 0, epoch, received)
        connection = connect(self.address)
        try:
            connection.sendall(encode_resume(message._replace(**fields)))  # type: ignore[arg-type]
            return connection, frame(connection)
        except BaseException:
            connection.close()
            raise

    def close(self) -> None:
        self.command.close()
        self.control.close()


def refusal(answer: Frame) -> tuple[int, str]:
    """Status and sentence of a REFUSED."""
    assert answer.header.opcode == Handshake.REFUSED
    return answer.header.status, decode_refused(answer.head).sentence


def resumed(answer: Frame) -> int:
    """Returns the number of received bytes in RESUMED."""
    assert answer.header.opcode == Handshake.RESUMED, refusal(answer)
    return decode_resumed(answer.head).received


def ended(client: ByHand) -> bool:
    """Returns True if the server refuses to resume the session, because it has ended."""
    try:
        connection, answer = client.resume(2000)
    except (EOFError, ConnectionError):  # the worker is just ending
        return False
    connection.close()
    if answer.header.opcode != Handshake.REFUSED:
        return False
    status, sentence = refusal(answer)
    return status == MISSING[0] and sentence.startswith(f"{MISSING[1]}: ")


def end(client: ByHand) -> None:
    """Says BYE on the session's control lane, unless it has ended, and waits for its end."""
    bye = encode_message(Control.BYE)
    with suppress(EOFError, ConnectionError):  # the worker may just be ending
        connection, answer = client.resume(1000, lane=Lane.CONTROL)
        if answer.header.opcode == Handshake.RESUMED:
            connection.sendall(RECORD.pack(len(bye), 0, resumed(answer), 0) + bye)
            wait_until(lambda: ended(client))
        connection.close()
    client.close()
