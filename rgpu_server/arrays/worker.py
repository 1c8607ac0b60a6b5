"""A worker for arrays: `python -m rgpu_server.arrays.worker cupy --control-fd N --library PATH`.

The daemon starts it as it starts `rgpu-worker`, and they speak the same messages. It serves one
session and ends.
"""

from __future__ import annotations

import argparse
import logging
import os
import select
import sys
import threading
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from rgpu_common import release
from rgpu_common.arrays.line import Line, LineError
from rgpu_common.arrays.seams import Seam
from rgpu_common.wire.fields import Wish, WishKey
from rgpu_common.wire.frame import Kind, WireError
from rgpu_common.wire.handshake import Handshake
from rgpu_common.wire.hello import decode_hello
from rgpu_common.wire.notices import Notice
from rgpu_common.wire.refused import Refused, put_refused
from rgpu_common.wire.scalars import Writer
from rgpu_common.wire.status import CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN
from rgpu_common.wire.welcome import Welcome, put_welcome
from rgpu_common.wire.worker import Assign, End, Warn
from rgpu_server.arrays.control import ControlSocket, close_all
from rgpu_server.arrays.engine import Engine
from rgpu_server.arrays.equipment import COMPILER_FD, Loaded
from rgpu_server.arrays.setup import Setup
from rgpu_server.arrays.templates import MalformedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rgpu_server.arrays.library import Library

log = logging.getLogger("rgpu.arrays")

_LOG_ERROR = 1
_NO_SANDBOX = "sandbox: it is switched off"
_NO_MEMORY = (
    "the worker's process has no memory left for what it keeps of the session; free arrays, or use "
    "fewer at a time"
)
_DEFECT = "the worker has a defect, which the server's log describes"
_GONE = "the client ended the connection"


class Session:
    """The one session of this process."""

    def __init__(self, control: ControlSocket, assigned: Assign, line: Line) -> None:
        self._control = control
        self._assigned = assigned
        self._line = line
        self._over = threading.Lock()

    def welcome(self, seam: Seam, library: Library) -> None:
        """Answers HELLO. Raises LineError: the client is gone."""
        said = Welcome(
            session=self._assigned.session,
            secret=self._assigned.secret,
            release=release(),
            memory_limit_bytes=self._assigned.memory_limit_bytes,
            note=f"{library.name} {library.version}",
            grants=(Wish(WishKey.SEAM, int(seam)), Wish(WishKey.MARKS, 1)),
        )
        self._line.send(Kind.HANDSHAKE, Handshake.WELCOME, put_welcome(said))
        self._control.opened()
        threading.Thread(target=self._listen, name="control", daemon=True).start()

    def refuse(self, sentence: str) -> None:
        """Answers HELLO with REFUSED."""
        try:
            head = put_refused(Refused(sentence))
            self._line.send(Kind.HANDSHAKE, Handshake.REFUSED, head, status=CUDA_ERROR_UNKNOWN)
        except LineError:
            pass
        self._control.refused(CUDA_ERROR_UNKNOWN, sentence)

    def serve(self, engine: Engine) -> NoReturn:
        """Executes what the client sends, and ends the process."""
        try:
            engine.serve()
        except LineError as error:
            self.leave(str(error) or _GONE)
        except MalformedError as error:
            self._notice(CUDA_ERROR_UNKNOWN, f"the worker received {error}")
            self.leave(f"the client sent {error}")
        except MemoryError:
            self._notice(CUDA_ERROR_OUT_OF_MEMORY, _NO_MEMORY)
            self.leave(_NO_MEMORY)
        except Exception as error:
            log.exception("the session has ended")
            self._notice(CUDA_ERROR_UNKNOWN, f"{_DEFECT} ({type(error).__name__})")
            self.leave(_DEFECT)
        raise AssertionError

    def end_with_client(self, socket: int) -> None:
        """Ends the process as soon as the client has gone, also in the middle of an operation:
        nobody can read what comes out, and the lease pays for the time. `socket` is the line's.
        """
        threading.Thread(target=self._watch, args=(socket,), name="client", daemon=True).start()

    def _watch(self, socket: int) -> None:
        hangup = select.poll()
        # What the client has sent before it went may be unread. A hangup is told all the same.
        hangup.register(socket, select.POLLRDHUP)
        hangup.poll()
        self.leave(_GONE)

    def leave(self, reason: str) -> NoReturn:
        """Ends the process. The system frees everything at once; threads may be computing."""
        self._over.acquire()
        self._control.ended(reason)
        os._exit(0)

    def _listen(self) -> None:
        """Hears what the daemon says. It may go away for a while; the session goes on."""
        while True:
            try:
                heard = self._control.next()
            except WireError as error:
                log.error("%s", error)
                continue
            if heard is None:
                return
            message, fds = heard
            close_all(fds)
            if isinstance(message, End):
                self._notice(message.status, message.sentence)
                self.leave(message.sentence)
            if isinstance(message, Warn):
                self._say(Notice.LOG, 0, _LOG_ERROR, message.sentence)

    def _notice(self, status: int, sentence: str) -> None:
        """The last words of the session."""
        self._say(Notice.STICKY, status, 0, sentence)

    def _say(self, notice: Notice, status: int, first: int, sentence: str) -> None:
        head = Writer()
        head.put("u32", first)
        head.put_text(sentence)
        try:
            self._line.notice(notice, head.take(), status)
        except LineError:
            return


def main(words: Sequence[str] | None = None) -> int:
    """Runs the worker; returns its exit status."""
    arguments = _parser().parse_args(words)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    # What a library warns of is the program's concern, and the program is elsewhere.
    warnings.simplefilter("ignore")
    seam = Seam[arguments.seam.upper()]
    loaded = Loaded(seam, Path(arguments.library))
    # It reads a file, which the worker's user may not be able to read later.
    release()
    control = ControlSocket(arguments.control_fd)
    report = loaded.confine() if arguments.sandbox else _NO_SANDBOX
    loaded.use_threads()
    control.ready(report)
    try:
        given = control.assignment()
    except WireError as error:
        log.error("%s", error)
        return 2
    if given is None:
        return 0
    assigned, fds = given
    watched = os.dup(fds[0])
    line = Line.adopted(fds[0])
    session = Session(control, assigned, line)
    setup = _setup(assigned, fds)
    try:
        _check_hello(assigned, seam)
        equipment = loaded.equip(setup, line.check)
    except Exception as error:
        log.exception("the session cannot be opened")
        session.refuse(f"the worker cannot serve arrays: {error}")
        return 0
    try:
        session.welcome(seam, equipment.library)
    except LineError as error:
        session.leave(str(error))
    session.end_with_client(watched)
    session.serve(Engine(line, equipment.library, equipment.gate))


def _check_hello(assigned: Assign, seam: Seam) -> None:
    """The daemon chose this worker by the same wish; a HELLO that says otherwise is a defect."""
    hello = decode_hello(assigned.hello)
    if (WishKey.SEAM, int(seam)) not in [(wish.key, wish.value) for wish in hello.wishes]:
        raise ValueError(f"the client did not ask for {seam.title}")


def _setup(assigned: Assign, fds: Sequence[int]) -> Setup:
    _, grants, usage, signal, *compiler, places = fds
    for line in assigned.environment:
        name, _, value = line.partition("=")
        os.environ[name] = value
    if compiler:
        os.environ[COMPILER_FD] = str(compiler[0])
    return Setup(
        ordinal=assigned.device,
        grants_fd=grants,
        usage_fd=usage,
        slot=assigned.slot,
        signal_fd=signal,
        memory_limit_bytes=assigned.memory_limit_bytes,
        places_fd=places,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rgpu array worker")
    parser.add_argument("seam", choices=[seam.word for seam in Seam])
    parser.add_argument("--control-fd", type=int, required=True)
    parser.add_argument("--library", required=True)
    parser.add_argument("--no-sandbox", dest="sandbox", action="store_false")
    return parser


if __name__ == "__main__":
    sys.exit(main())
