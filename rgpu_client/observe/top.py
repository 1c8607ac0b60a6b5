"""`rgpu top`: shows the present use of the devices."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import sys
import termios
import time
import tty
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from msgspec.structs import replace

from rgpu_client.cluster.servers import add_servers, servers_of
from rgpu_client.observe.frame import SORTS, View, frame, report
from rgpu_client.observe.ink import Ink
from rgpu_common.closing import Closing
from rgpu_common.command import OK, Command
from rgpu_common.errors import ServerError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from rgpu_client.cluster.servers import Answers, Server, Servers
    from rgpu_client.control import ControlClient
    from rgpu_client.observe.frame import Nows
    from rgpu_common.v1.observe_pb2 import GetNowResponse

_PERIOD_SECONDS = 1.0
# How often the manager is asked which nodes there are, and how long a node may hold up a screen.
_POOL_SECONDS, _ANSWER_SECONDS = 5.0, 3.0
_ENDS = (signal.SIGINT, signal.SIGTERM)
# Escape codes: to the alternate screen without a cursor, and back.
_ENTER, _LEAVE = "\033[?1049h\033[?25l", "\033[?25h\033[?1049l"
_HOME, _WHOLE_LINE, _ALL = "\033[H", "\033[2K", "\033[2J"
_QUIT = b"qQ\x03\x04"


def _configure(parser: argparse.ArgumentParser) -> None:
    add_servers(parser)
    parser.add_argument("--once", action="store_true", help="print it once")
    parser.add_argument("--json", action="store_true", help="print it once, as JSON")
    parser.add_argument("--sort", choices=tuple(SORTS), default="share", help="order of leases")


def _top(arguments: argparse.Namespace) -> int:
    servers = servers_of(arguments)
    if arguments.json:
        answers = servers.ask(lambda client: client.now())
        print(json.dumps(answers.plain(), indent=2))
        return answers.complain()
    with _Nodes(arguments, servers) as nodes:
        found = nodes.ask()  # an error is printed before the screen changes
        live = sys.stdout.isatty() and sys.stdin.isatty() and not arguments.once
        columns, rows = shutil.get_terminal_size((120, 40))
        view = View(columns, rows, _ink(), nodes.name, arguments.sort)
        if not live:
            print("\n".join(report(_nows(found), view)))
            return found.complain()
        _Screen(nodes, view).run(found)
    return OK


class _Nodes(Closing):
    """The servers that are watched, by connections that stay open. Nodes come and go."""

    def __init__(self, arguments: argparse.Namespace, servers: Servers) -> None:
        self._arguments = arguments
        self._servers = servers
        self._look_again = time.monotonic() + _POOL_SECONDS
        self._clients: dict[Server, ControlClient] = {}
        self.name = servers.name

    def close(self) -> None:
        """Closes the connections."""
        for client in self._clients.values():
            client.close()

    def ask(self) -> Answers[GetNowResponse]:
        """Returns what happens on each server; ServerError: the only one or the manager is away."""
        if self._servers.whole and time.monotonic() >= self._look_again:
            self._servers = servers_of(self._arguments)
            self._look_again = time.monotonic() + _POOL_SECONDS
        for gone in self._clients.keys() - set(self._servers.asked):
            self._clients.pop(gone).close()
        return self._servers.ask(lambda client: client.now(), self._opened, _ANSWER_SECONDS)

    def _opened(self, server: Server) -> AbstractContextManager[ControlClient]:
        """Returns the connection to a server; RgpuError: it has no address for one."""
        if server not in self._clients:
            self._clients[server] = server.client(_ANSWER_SECONDS)
        return nullcontext(self._clients[server])


def _nows(found: Answers[GetNowResponse]) -> Nows:
    return {server.node: now for server, now in found}


def _ink() -> Ink:
    """Returns the terminal's abilities. NO_COLOR (no-color.org) turns colours off."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") == "dumb"
    fine = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    return Ink(sys.stdout.isatty() and not plain, fine)


class _Screen:
    """Asks the servers once a second, draws the screen, and reads keys in between."""

    def __init__(self, nodes: _Nodes, view: View) -> None:
        self._nodes = nodes
        self._view = view
        self._nows: Nows | None = None

    def run(self, found: Answers[GetNowResponse]) -> None:
        """Runs until the user quits."""
        self._show(found)
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
            self._show(self._nodes.ask())
        except ServerError as error:
            self._view = replace(self._view, notice=str(error))  # go on: it may come back

    def _show(self, found: Answers[GetNowResponse]) -> None:
        silent = [f"{one.server}: {one.failure}" for one in found.rows if one.failure]
        self._nows = _nows(found)
        self._view = replace(self._view, notice="; ".join(silent))

    def _draw(self) -> None:
        # Ask the terminal itself: COLUMNS in the environment does not follow a change of its size.
        columns, rows = os.get_terminal_size(sys.stdout.fileno())
        resized = (columns, rows) != (self._view.width, self._view.height)
        self._view = replace(self._view, width=max(columns, 1), height=max(rows, 1))
        # Clear each line before it is written, not after: after a line that fills the screen's
        # width, the cursor still stands on its last character.
        lines = [f"{_WHOLE_LINE}{line}" for line in frame(self._nows, self._view)]
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
    told = sys.unraisablehook
    sys.unraisablehook = lambda lost: None if _is_interrupt(lost) else told(lost)
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
        sys.unraisablehook = told
        signal.set_wakeup_fd(woken)
        os.close(wakes)
        os.close(wake)


def _is_interrupt(lost: sys.UnraisableHookArgs) -> bool:
    """True for Ctrl-C where Python cannot raise it. `_waits` hears of it by the descriptor."""
    return isinstance(lost.exc_value, KeyboardInterrupt)


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


top = Command("top", "watch the use of the devices, second by second", _configure, _top)
