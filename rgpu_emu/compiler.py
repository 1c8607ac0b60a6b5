"""The PTX compiler process: `python -m rgpu_emu.compiler --fd N | --accept-fd N | --report`."""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Final

from rgpu_common.wire.worker import Ready, encode_ready
from rgpu_emu.compile_cache import DEFAULT_LIMIT_BYTES, ObjectCache, open_folder
from rgpu_emu.compile_requests import emitter_version
from rgpu_emu.compile_sandbox import (
    Report,
    enter_sandbox,
    keep_folder,
    own_user,
    shared_user,
    trial,
)
from rgpu_emu.compile_schedule import Bounds
from rgpu_emu.compile_server import Compiler
from rgpu_emu.lower.codegen import host

DEFAULT_MEMORY_BYTES: Final = 4 << 30


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="rgpu_emu.compiler", description=__doc__)
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--fd", type=int, help="connected stream socket to serve")
    group.add_argument(
        "--accept-fd", type=int, help="SOCK_SEQPACKET socket on which connected sockets arrive"
    )
    group.add_argument(
        "--report", action="store_true", help="print what isolation is not to be had, and end"
    )
    low = Bounds()
    add = parser.add_argument
    add("--processes", type=int, default=low.processes, help="jobs at a time")
    add("--memory", type=int, default=DEFAULT_MEMORY_BYTES, help="bytes, all jobs together")
    add("--seconds", type=float, default=low.request_seconds, help="processor time of a request")
    add("--wall-seconds", type=float, default=low.wall_seconds, help="time of a request")
    add("--burst", type=float, default=low.burst_seconds, help="processor time before slowing down")
    add("--refill", type=float, default=low.refill, help="processors that fill the burst again")
    cache_bytes = int(os.environ.get("RGPU_EMU_CACHE_BYTES") or DEFAULT_LIMIT_BYTES)
    add("--cache-bytes", type=int, default=cache_bytes, help="bound of the object cache")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Runs the process; ends when its socket closes."""
    options = _arguments(arguments)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    host()
    emitter_version()
    folder = os.environ.get("RGPU_EMU_CACHE") if options.fd is not None else None
    report = Report()
    cache = ObjectCache(-1, limit_bytes=options.cache_bytes)
    if folder:
        with contextlib.suppress(OSError):
            cache.use(open_folder(Path(folder), "default", shared_user()))
    if options.fd is not None:
        enter_sandbox(shared_user(), 0, report)
    else:
        enter_sandbox(own_user(), options.processes + 2, report)
    if folder:
        keep_folder(cache.folder, report)
    gc.collect()
    gc.freeze()
    bounds = Bounds(
        options.processes, options.seconds, options.wall_seconds, options.burst, options.refill
    )
    compiler = Compiler(bounds, options.memory, cache)
    if options.report:
        report.add(trial(compiler.limits))
        print(report.text())
        return 0
    if options.fd is not None:
        compiler.serve(socket.socket(fileno=options.fd))
    else:
        accept = socket.socket(fileno=options.accept_fd)
        report.add(trial(compiler.limits))
        accept.send(encode_ready(Ready(report.text())))
        compiler.accept_on(accept)
    compiler.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
