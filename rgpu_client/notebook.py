"""The Jupyter extension: `%load_ext rgpu_client` shows what a cell uses, in a line that is updated
while the cell runs.
"""

from __future__ import annotations

import contextvars
import os
import threading
from dataclasses import dataclass
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rgpu_client.control import ControlClient
from rgpu_client.session.launch import api_server
from rgpu_common.clock import MonotonicClock
from rgpu_common.errors import RgpuError
from rgpu_common.texts import one_line
from rgpu_common.units import PPM, format_bytes, format_part, format_share

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rgpu_common.clock import Clock
    from rgpu_common.v1.observe_pb2 import LeaseNow

# Cells that end sooner, and use no device, have no line.
_SHORT_SECONDS = 0.5
_PERIOD_SECONDS = 1.0
# A line must not hold up a cell for longer. A server that did not answer is left alone for a while,
# so that it does not hold up every cell.
_ASK_SECONDS = 2.0
_QUIET_SECONDS = 15.0
_STYLE = "font-size:85%;opacity:0.8"
_HELP = "%rgpu shows the lease of this kernel; %rgpu off and %rgpu on hide and show the lines"


@dataclass(frozen=True, slots=True)
class Line:
    """What the lease of this process uses at a moment.

    sentence: the reason why nothing is known, else "".
    """

    device: str = ""
    path: str = ""
    used_bytes: int = 0
    limit_bytes: int = 0
    share_ppm: int = 0
    request_ppm: int = 0
    launches: int = 0
    note: str = ""
    sentence: str = ""

    def uses_more_than(self, other: Line | None) -> bool:
        """True if the device was used since `other`."""
        if other is None:
            return bool(self.launches or self.used_bytes)
        return (self.launches, self.used_bytes) != (other.launches, other.used_bytes)

    def text(self) -> str:
        """Returns the line as text."""
        return one_line(f"rgpu: {self.sentence or ', '.join(self._parts())}")

    def bundle(self) -> dict[str, str]:
        """Returns the line as a notebook shows it."""
        if self.sentence:
            html = escape(self.text())
        else:
            part = self.used_bytes / self.limit_bytes if self.limit_bytes else 0.0
            bar = f'<meter min="0" max="1" value="{part:.3f}" aria-hidden="true"></meter>'
            memory, *others = (escape(one_line(text)) for text in self._parts())
            html = f"rgpu: {bar} {', '.join([memory, *others])}"
        return {"text/plain": self.text(), "text/html": f'<div style="{_STYLE}">{html}</div>'}

    def _parts(self) -> list[str]:
        share = f"share {format_part(self.share_ppm)}"
        if self.request_ppm:
            share += f" ({format_share(self.request_ppm)} guaranteed)"
        memory = f"memory {format_bytes(self.used_bytes)} of {format_bytes(self.limit_bytes)}"
        return [memory, share, f"{self.device} over {self.path}", *filter(None, [self.note])]


class Watch:
    """Asks the server for the lease of this process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._client: ControlClient | None = None
        self._server = ""
        self._failed = Line()
        self._quiet_until = 0.0

    def look(self, environment: Mapping[str, str], again: bool = True) -> Line | None:
        """Returns the line of this moment; None if this process has no lease.

        again: asks the server even if it has just failed to answer.
        """
        key, server = environment.get("RGPU_LEASE"), environment.get("RGPU_SERVER")
        if not key or not server:
            return None
        if not again and server == self._server and self._clock.now() < self._quiet_until:
            return self._failed
        try:
            return self.ask(key, server, environment)
        except RgpuError as error:
            self.close()
            self._failed = Line(sentence=str(error))
            self._quiet_until = self._clock.now() + _QUIET_SECONDS
            return self._failed

    def close(self) -> None:
        """Closes the connection."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def ask(self, key: str, server: str, environment: Mapping[str, str]) -> Line:
        """Returns the line of a lease of a server; RgpuError."""
        if self._client is None or self._server != server:
            self.close()
            self._server = server
            self._client = ControlClient(api_server(environment, server), _ASK_SECONDS)
        now = self._client.now()
        lease = next((one for one in now.leases if one.key == key), None)
        if lease is None:
            gone = f"the server has no lease {key} any more; restart the kernel and connect again"
            return Line(sentence=gone)
        names = {device.ordinal: device.name for device in now.devices}
        over = {one.transport for one in self._client.sessions() if one.client_pid == os.getpid()}
        path = " and ".join(sorted(over))
        # An agent takes the session to the server by another transport than that of the address.
        path = server if path in ("", server.partition(":")[0]) else f"{path} ({server})"
        return _line(lease, names.get(lease.device, "device"), path)


def _line(lease: LeaseNow, device: str, path: str) -> Line:
    note = ""
    if lease.paused:
        note = "paused by an operator"
    elif lease.compiling:
        note = "compiling"
    elif lease.throttled_ppm > PPM // 10:
        note = f"at its limit for {format_part(lease.throttled_ppm)} of the last second"
    elif lease.waiting_ppm > PPM // 10:
        note = f"waited {format_part(lease.waiting_ppm)} of the last second for others"
    return Line(
        device=device,
        path=path,
        used_bytes=lease.memory_used_bytes,
        limit_bytes=lease.memory_limit_bytes,
        share_ppm=lease.share_1s_ppm,
        request_ppm=lease.share_request_ppm,
        launches=lease.launches,
        note=note,
    )


class Extension:
    """The lines of one IPython shell."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._watch = Watch(MonotonicClock())
        self._shown = True
        self._before: Line | None = None
        self._handle: Any = None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def load(self) -> None:
        """Takes part in the running of cells."""
        self._shell.events.register("pre_run_cell", self.begin)
        self._shell.events.register("post_run_cell", self.end)
        self._shell.register_magic_function(self.magic, "line", "rgpu")

    def unload(self) -> None:
        """Takes part no more."""
        self._shell.events.unregister("pre_run_cell", self.begin)
        self._shell.events.unregister("post_run_cell", self.end)
        self._shell.magics_manager.magics["line"].pop("rgpu", None)
        self._stop()
        self._watch.close()

    def magic(self, words: str) -> None:
        """%rgpu, %rgpu off, %rgpu on."""
        word = words.strip()
        if word in ("on", "off"):
            self._shown = word == "on"
        elif word:
            print(f"rgpu: {_HELP}")
        else:
            line = self._watch.look(os.environ)
            none = "rgpu: this kernel has no lease; rgpu_client.connect(...) gets one"
            print(none if line is None else line.text())

    def begin(self, *info: Any) -> None:
        """Starts the thread that shows the line of a cell that runs for longer."""
        self._stop()
        self._handle = None
        self._ended = threading.Event()
        # A terminal cannot update a line that it has printed.
        if not self._shown or getattr(self._shell, "kernel", None) is None:
            return
        context = contextvars.copy_context()
        words = (self._follow, self._ended)
        self._thread = threading.Thread(target=context.run, args=words, daemon=True)
        self._thread.start()

    def end(self, *result: Any) -> None:
        """Shows the line of the cell's end."""
        self._stop()
        if not self._shown:
            return
        line = self._watch.look(os.environ, again=False)
        if line is not None and (self._handle is not None or line.uses_more_than(self._before)):
            self._show(line)
        self._before = line

    def _follow(self, ended: threading.Event) -> None:
        pause = _SHORT_SECONDS
        while not ended.wait(pause):
            line = self._watch.look(os.environ, again=False)
            if line is not None and not ended.is_set():
                self._show(line)
            pause = _PERIOD_SECONDS

    def _show(self, line: Line) -> None:
        # IPython has no types for it.
        display: Any = import_module("IPython.display").display
        if self._handle is None:
            self._handle = display(line.bundle(), raw=True, display_id=True)
        else:
            self._handle.update(line.bundle(), raw=True)

    def _stop(self) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join(3 * _ASK_SECONDS)
            self._thread = None


_loaded: dict[int, Extension] = {}


def load(shell: Any) -> None:
    """Loads the extension into an IPython shell."""
    if id(shell) not in _loaded:
        extension = _loaded[id(shell)] = Extension(shell)
        extension.load()


def unload(shell: Any) -> None:
    """Removes the extension from an IPython shell."""
    extension = _loaded.pop(id(shell), None)
    if extension is not None:
        extension.unload()
