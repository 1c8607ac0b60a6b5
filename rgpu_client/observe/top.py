"""`rgpu top`: shows the present use of the devices."""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import termios
import time
import tty
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from rgpu_client.observe.frame import SORTS, View, frame, report
from rgpu_client.observe.ink import Ink
from rgpu_client.settings import API_SERVER_HELP, configured_server
from rgpu_common.command import OK, Command
from rgpu_common.errors import ServerError
from rgpu_common.tables import message_json

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from rgpu_client.control import ControlClient
    from rgpu_common.v1.observe_pb2 import GetNowResponse

_PERIOD_SECONDS = 1.0
_ENDS = (signal.SIGINT, signal.SIGTERM)
# Escape codes: to the alternate screen without a cursor, and back.
_ENTER, _LEAVE = "\033[?1049h\033[?25l", "\033[?25h\033[?1049l"
_HOME, _WHOLE_LINE, _ALL = "\033[H", "\033[2K", "\033[2J"
_QUIT = b"qQ\x03\x04"


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--server", metavar="ADDRESS", help=API_SERVER_HELP)
    parser.add_argument("--once", action="store_true", help="print it once")
    parser.add_argument("--json", action="store_true", help="print it once, as JSON")
    parser.add_argument("--sort", choices=tuple(SORTS), default="share", help="order of leases")


def _top(arguments: argparse.Namespace) -> int:
    from rgpu_client.control import ControlClient

    server = configured_server(arguments.server, os.environ)
    with ControlClient(server) as client:
        now = client.now()  # an error is printed before the screen changes
        if arguments.json:
            print(message_json(now))
            return OK
        live = sys.stdout.isatty() and sys.stdin.isatty() and not arguments.once
        columns, rows = shutil.get_terminal_size((120, 40))
        view = View(columns, rows, _ink(), str(server), arguments.sort)
        if not live:
            print("\n".join(report(now, view)))
            return OK
        _Screen(client, view).run(now)
    return OK


def _ink() -> Ink:
    """Returns the terminal's abilities. NO_COLOR (no-color.org) turns colours off."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") == "dumb"
    fine = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    return Ink(sys.stdout.isatty() and not plain, fine)


class _Screen:
    """Asks the server once a second, draws the screen, and reads keys in between."""

    def __init__(self, client: ControlClient, view: View) -> None:
        self._client = client
        self._view = view
        self._now: GetNowResponse | None = None

    def run(self, now: GetNowResponse) -> None:
        """Runs until the user quits."""
        self._now = now
        with _raw_terminal() as signals:
            due = time.monotonic() + _PERIOD_SECONDS
            self._draw()
            while self._waits(due, signals):
                if time.monotonic() >= due:
                    due = max(due + _PERIOD_SECONDS, time.monotonic())
                    self._ask()
                self._draw()

    def _waits(self, due: float, signals: int) -> bool:
        """Waits until `due`, for a key or for a signal, such as that of a new size. False: quit."""
        left = max(due - time.monotonic(), 0.0)
        ready, _, _ = select.select([sys.stdin.fileno(), signals], [], [], left)
        # The exception of `_interrupt` may be lost: Python ignores one that interrupts the callback
        # of a weak reference.
        if signals in ready and any(number in _ENDS for number in os.read(signals, 4096)):
            return False
        if sys.stdin.fileno() not in ready:
            return True
        keys = os.read(sys.stdin.fileno(), 64)
        if not keys or any(key in _QUIT for key in keys):
            return False
        if b"s" in keys:
            names = [*SORTS]
            after = names[(names.index(self._view.sort) + 1) % len(names)]
            self._view = replace(self._view, sort=after)
        return True

    def _ask(self) -> None:
        try:
            self._now = self._client.now()
            notice = ""
        except ServerError as error:
            notice = str(error)  # go on: the server may come back
        self._view = replace(self._view, notice=notice)

    def _draw(self) -> None:
        # Ask the terminal itself: COLUMNS in the environment does not follow a change of its size.
        columns, rows = os.get_terminal_size(sys.stdout.fileno())
        resized = (columns, rows) != (self._view.width, self._view.height)
        self._view = replace(self._view, width=max(columns, 1), height=max(rows, 1))
        # Clear each line before it is written, not after: after a line that fills the screen's
        # width, the cursor still stands on its last character.
        lines = [f"{_WHOLE_LINE}{line}" for line in frame(self._now, self._view)]
        clear = _ALL if resized else ""  # the terminal may have wrapped the old lines
        sys.stdout.write(f"{_HOME}{clear}" + "\r\n".join(lines))
        sys.stdout.flush()


@contextmanager
def _raw_terminal() -> Iterator[int]:
    """Delivers keys as they are pressed, and switches to the alternate screen; undoes both at the
    end, also after an error. Yields a descriptor, to which each signal that comes writes its
    number. SIGWINCH says that the terminal's size has changed.
    """
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    wakes, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    woken = signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    handlers = {
        signal.SIGWINCH: signal.signal(signal.SIGWINCH, lambda _n, _f: None),
        signal.SIGTERM: signal.signal(signal.SIGTERM, _interrupt),
    }
    try:
        tty.setcbreak(keyboard)
        sys.stdout.write(_ENTER)
        yield wakes
    except KeyboardInterrupt:
        pass
    finally:
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(woken)
        os.close(wakes)
        os.close(wake)


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


top = Command("top", "watch the use of the devices, second by second", _configure, _top)
