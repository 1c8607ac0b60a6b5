"""Copies what a child process prints, line by line, into the daemon's log, up to a limit."""

from __future__ import annotations

import asyncio
import logging
import os

from rgpu_common.texts import one_line
from rgpu_server.observe.audit import tell
from rgpu_server.observe.lease_log import PRINTED

log = logging.getLogger("rgpu.worker")

_MAX_LINE_BYTES = 1000
_LAST_READS = 64


class LogPipe:
    """A pipe whose write end becomes a child's stdout and stderr.

    The pipe is always read to its end, so that the child never blocks. Beyond the limit its lines
    are dropped.
    """

    def __init__(self, name: str, max_bytes: int, read_fd: int = -1) -> None:
        """Creates a pipe, or takes the read end (read_fd) of one that an earlier daemon made."""
        self._name = name
        self._left = max_bytes
        self._lease, self._number = "", 0
        self._line = b""
        self._loop = asyncio.get_running_loop()
        self.read_fd, self.write_fd = (read_fd, -1) if read_fd >= 0 else os.pipe()
        os.set_blocking(self.read_fd, False)
        self._loop.add_reader(self.read_fd, self._readable)

    def serves(self, worker: int, lease: str) -> None:
        """From now on each line names the worker and its lease, and is part of the lease's log."""
        self._name = f"worker {worker} (lease {lease})"
        self._lease, self._number = lease, worker

    def close_write_end(self) -> None:
        """Closes our copy of the write end: it would keep the pipe open after the child's end."""
        if self.write_fd >= 0:
            os.close(self.write_fd)
            self.write_fd = -1

    def close(self) -> None:
        """Logs what is left in the pipe and closes it."""
        self.close_write_end()
        if self.read_fd < 0:
            return
        # A limited number of reads: another process may still hold the write end and write.
        for _ in range(_LAST_READS):
            if self.read_fd < 0 or not self._readable():
                break
        self._stop()

    def _readable(self) -> bool:
        try:
            data = os.read(self.read_fd, 65536)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            data = b""
        if not data:
            self._stop()
            return False
        *lines, self._line = (self._line + data).split(b"\n")
        for line in lines:
            self._emit(line)
        if len(self._line) > _MAX_LINE_BYTES:
            self._emit(self._line)
            self._line = b""
        return True

    def _stop(self) -> None:
        if self.read_fd < 0:
            return
        if self._line:
            self._emit(self._line)
            self._line = b""
        self._loop.remove_reader(self.read_fd)
        os.close(self.read_fd)
        self.read_fd = -1

    def _emit(self, line: bytes) -> None:
        if self._left <= 0:
            return
        self._left -= len(line) + 1
        text = line[:_MAX_LINE_BYTES].decode(errors="replace")
        log.info("%s: %s", self._name, one_line(text))
        if self._lease:
            tell(PRINTED, lease=self._lease, worker=self._number, text=text)
        if self._left <= 0:
            log.warning("%s prints too much; the rest is dropped", self._name)
