"""What small calls cost over the path that RGPU_SERVER names while a large copy is under way.

Each line of input, `KIND BYTES`, asks for one such copy: `idle` (none, for a second), `up` and
`down` (asynchronous, pinned), `pageable_up` and `pageable_down` (synchronous), on one stream in a
thread of its own.  Meanwhile this thread launches and synchronises on another stream, and copies 64
bytes to the host, in turn.  Prints JSON: lists of the seconds of each, of the copy, and of the call
that began it.
"""

from __future__ import annotations

import ctypes
import json
import sys
import threading
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))

from helpers.driver import Driver

MOST_BYTES = 256 << 20
PAUSE_SECONDS = 0.002  # between two rounds of small calls
IDLE_SECONDS = 1.0
PTX = b"""
.version 7.0
.target sm_80
.address_size 64
.visible .entry nothing()
{
  ret;
}
"""
NON_BLOCKING = 1


class Session:
    """One session: memory for the copies, and two streams."""

    def __init__(self) -> None:
        self.cuda = Driver()
        self.cuda.open()
        self._context = ctypes.c_void_p()
        self.cuda("cuCtxGetCurrent", ctypes.byref(self._context))
        self._device = self.cuda.alloc(MOST_BYTES)
        self._small = self.cuda.alloc(64)
        pinned = ctypes.c_void_p()
        size = ctypes.c_size_t(MOST_BYTES)
        self.cuda("cuMemHostAlloc", ctypes.byref(pinned), size, 0)
        self._pinned = pinned.value
        self._pageable = (ctypes.c_char * MOST_BYTES)()
        ctypes.memset(self._pageable, 1, MOST_BYTES)
        ctypes.memset(self._pinned, 1, MOST_BYTES)
        self._bulk, self._quick = self._stream(), self._stream()
        self._kernel = ctypes.c_void_p(self.cuda.function(self.cuda.load(PTX), "nothing"))
        for _ in range(3):
            self.launch()
            self.copy()

    def _stream(self) -> ctypes.c_void_p:
        stream = ctypes.c_void_p()
        self.cuda("cuStreamCreate", ctypes.byref(stream), NON_BLOCKING)
        return stream

    def launch(self) -> None:
        """A launch, and a wait for its stream."""
        shape = (1, 1, 1, 1, 1, 1)
        self.cuda("cuLaunchKernel", self._kernel, *shape, 0, self._quick, None, None)
        self.cuda("cuStreamSynchronize", self._quick)

    def copy(self) -> None:
        """64 bytes to the host."""
        to = ctypes.create_string_buffer(64)
        size = ctypes.c_size_t(64)
        source = ctypes.c_uint64(self._small)
        self.cuda("cuMemcpyDtoHAsync_v2", to, source, size, self._quick)

    def bulk(self, kind: str, count: int) -> float:
        """Copies `count` bytes; how long the call itself took."""
        device, size = ctypes.c_uint64(self._device), ctypes.c_size_t(count)
        begin = time.perf_counter()
        if kind == "idle":
            time.sleep(IDLE_SECONDS)
        elif kind == "up":
            pinned = ctypes.c_void_p(self._pinned)
            self.cuda("cuMemcpyHtoDAsync_v2", device, pinned, size, self._bulk)
        elif kind == "down":
            pinned = ctypes.c_void_p(self._pinned)
            self.cuda("cuMemcpyDtoHAsync_v2", pinned, device, size, self._bulk)
        elif kind == "pageable_up":
            self.cuda("cuMemcpyHtoDAsync_v2", device, self._pageable, size, self._bulk)
        else:
            self.cuda("cuMemcpyDtoHAsync_v2", self._pageable, device, size, self._bulk)
        issued = time.perf_counter() - begin
        self.cuda("cuStreamSynchronize", self._bulk)
        return issued

    def measure(self, kind: str, count: int) -> dict[str, list[float]]:
        """One copy, and what small calls cost meanwhile."""
        took: dict[str, list[float]] = {}
        started, over = threading.Event(), threading.Event()

        def run() -> None:
            self.cuda("cuCtxSetCurrent", self._context)
            started.set()
            begin = time.perf_counter()
            took["issue"] = [self.bulk(kind, count)]
            took["seconds"] = [time.perf_counter() - begin]
            over.set()

        thread = threading.Thread(target=run)
        times: dict[str, list[float]] = {"launch": [], "copy": []}
        thread.start()
        started.wait()
        while not over.is_set():
            for name, call in (("launch", self.launch), ("copy", self.copy)):
                begin = time.perf_counter()
                call()
                # What began before the copy's end was under way with it, for a part at least.
                times[name].append(time.perf_counter() - begin)
            time.sleep(PAUSE_SECONDS)
        thread.join()
        return {**times, **took}


def main() -> None:
    session = Session()
    print("ready", flush=True)
    for line in sys.stdin:
        kind, count = line.split()
        print(json.dumps(session.measure(kind, int(count))), flush=True)


if __name__ == "__main__":
    main()
