"""PTX compiler processes of the emulated device: one per tenant, started before they are needed.

A compiler is given connected sockets, one per session; nobody else can reach it.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rgpu_common.errors import WorkerError
from rgpu_server.workers.logs import LogPipe
from rgpu_server.workers.process import CLEAN_ENVIRONMENT

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger("rgpu.compiler")

# Compilers of tenants that have no session now; more than these are ended, oldest first.
MAX_IDLE = 4
_LOG_BYTES = 64 << 10


@dataclass(slots=True)
class _Compiler:
    process: subprocess.Popen[bytes]
    pidfd: int
    accept: socket.socket
    log: LogPipe
    sessions: int = 0


class Compilers:
    """Hands out connections to the compiler of a tenant; `cache` is a folder for compiled
    objects.
    """

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._spare: _Compiler | None = None
        self._tenants: dict[str, _Compiler] = {}
        self._closed = False

    def start(self) -> None:
        """Starts the spare compiler; WorkerError if it cannot be started."""
        if self._spare is None and not self._closed:
            self._spare = self._spawn()

    def connect(self, tenant: str) -> socket.socket:
        """Returns a socket that is connected to the tenant's compiler; the caller closes it.

        Raises:
            WorkerError: no compiler could be started or spoken to.
        """
        compiler = self._tenants.pop(tenant, None)
        if compiler is None:
            self.start()
            compiler, self._spare = self._spare, None
            # The next spare is started when this session has been served.
            asyncio.get_running_loop().call_later(0.5, self._restart_spare)
        if compiler is None:
            raise WorkerError("the server is stopping")
        self._tenants[tenant] = compiler  # last: most recently used
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            socket.send_fds(compiler.accept, [namespace(tenant).encode()], [theirs.fileno()])
        except OSError as error:
            ours.close()
            raise WorkerError(f"the PTX compiler does not answer: {error}") from None
        finally:
            theirs.close()
        compiler.sessions += 1
        return ours

    def release(self, tenant: str) -> None:
        """A session of the tenant is over; compilers that nobody uses are ended beyond a few."""
        compiler = self._tenants.get(tenant)
        if compiler is not None and compiler.sessions > 0:
            compiler.sessions -= 1
        idle = [name for name, c in self._tenants.items() if c.sessions == 0]
        for name in idle[: max(len(idle) - MAX_IDLE, 0)]:
            self._tenants.pop(name).accept.close()

    def close(self) -> None:
        """Lets all compilers end: each does so when its last session has gone."""
        self._closed = True
        spare = [self._spare] if self._spare is not None else []
        for compiler in [*self._tenants.values(), *spare]:
            compiler.accept.close()
            asyncio.get_running_loop().remove_reader(compiler.pidfd)
            os.close(compiler.pidfd)
            compiler.log.close()
            compiler.process.returncode = 0  # init inherits it; it is not ours to wait for
        self._spare = None
        self._tenants.clear()

    def _restart_spare(self) -> None:
        try:
            self.start()
        except WorkerError as error:
            log.warning("%s", error)

    def _spawn(self) -> _Compiler:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        pipe = LogPipe("compiler", _LOG_BYTES)
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", "rgpu_emu.compiler", "--accept-fd", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=pipe.write_fd,
                stderr=pipe.write_fd,
                env=self._environment(),
                cwd="/",
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
            pidfd = os.pidfd_open(process.pid)
        except OSError as error:
            ours.close()
            pipe.close()
            raise WorkerError(f"the PTX compiler could not be started: {error}") from None
        finally:
            theirs.close()
            pipe.close_write_end()
        compiler = _Compiler(process, pidfd, ours, pipe)
        asyncio.get_running_loop().add_reader(pidfd, self._exited, compiler)
        return compiler

    def _environment(self) -> dict[str, str]:
        environment = {**CLEAN_ENVIRONMENT, "RGPU_EMU_CACHE": str(self._cache)}
        for name in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"):
            if name in os.environ:
                environment[name] = os.environ[name]
        return environment

    def _exited(self, compiler: _Compiler) -> None:
        asyncio.get_running_loop().remove_reader(compiler.pidfd)
        os.close(compiler.pidfd)
        status = compiler.process.wait()
        compiler.log.close()
        compiler.accept.close()
        if compiler is self._spare:
            self._spare = None
        for tenant, known in list(self._tenants.items()):
            if known is compiler:
                del self._tenants[tenant]
        if status != 0 and not self._closed:
            name = signal.Signals(-status).name if status < 0 else f"exit code {status}"
            log.warning("a PTX compiler ended with %s; the next session starts another", name)


def namespace(tenant: str) -> str:
    """Returns the name of a tenant's part of the object cache: safe in a path, not guessed
    alike.
    """
    return hashlib.sha256(tenant.encode()).hexdigest()[:32]
