"""PTX compiler processes of the emulated device: one per tenant, started before it is needed.

A compiler gets connected sockets, one per session; no other process can reach it.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from msgspec import Struct

from rgpu_common.errors import WorkerError
from rgpu_common.texts import process_end
from rgpu_common.wire.frame import WireError
from rgpu_common.wire.worker import MAX_MESSAGE_BYTES, Ready, decode_from_worker
from rgpu_emu.compile_cache import open_folder
from rgpu_emu.compile_sandbox import own_user
from rgpu_emu.compile_schedule import Debts
from rgpu_server.workers.logs import LogPipe
from rgpu_server.workers.process import CLEAN_ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rgpu_server.config import CompilerLimits

log = logging.getLogger("rgpu.compiler")

# How many compilers of tenants without sessions are kept; beyond it the oldest are ended.
MAX_IDLE = 4
_LOG_BYTES = 64 << 10
_START_SECONDS = 60
# When the next spare starts: later than the session that took the last one, which it would slow
# down, and not at all on a server that ends with its first program.
_SPARE_SECONDS = 2.0


class _Compiler(Struct):
    process: subprocess.Popen[bytes]
    pidfd: int
    accept: socket.socket
    log: LogPipe
    started: float
    sessions: int = 0
    # The tenant, and the tenant's compile-time debt when it got the compiler.
    tenant: str = ""
    debt: float = 0.0


class Compilers:
    """Gives sessions a connection to their tenant's compiler. `cache`: the folder for compiled
    objects, or None.
    """

    def __init__(self, cache: Path | None, limits: CompilerLimits) -> None:
        self._cache = cache
        self._limits = limits
        self._check: Callable[[str], str] = lambda _: ""
        self._debts = Debts()
        self._spare: _Compiler | None = None
        self._tenants: dict[str, _Compiler] = {}
        self._closed = False

    def check_with(self, check: Callable[[str], str]) -> None:
        """Sets the function that judges each compiler's isolation report (in the form of a
        worker's). It returns why that compiler may not be used, or "".
        """
        self._check = check

    def start(self) -> None:
        """Starts the spare compiler; raises WorkerError if that fails."""
        if self._spare is None and not self._closed:
            self._spare = self._spawn()

    def connect(self, tenant: str) -> socket.socket:
        """Returns a socket that is connected to the tenant's compiler; the caller closes it.

        Raises:
            WorkerError: no compiler could be started, or the compiler does not answer.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        folder = -1
        try:
            compiler, first = self._compiler_of(tenant)
            folder = self._open_folder(tenant, compiler) if first else -1
            passed = [theirs.fileno(), *([folder] if folder >= 0 else [])]
            socket.send_fds(compiler.accept, [f"{compiler.debt:.3f}".encode()], passed)
        except OSError as error:
            ours.close()
            raise WorkerError(f"the PTX compiler does not answer: {error}") from None
        except WorkerError:
            ours.close()
            raise
        finally:
            theirs.close()
            if folder >= 0:
                os.close(folder)
        compiler.sessions += 1
        return ours

    def _compiler_of(self, tenant: str) -> tuple[_Compiler, bool]:
        """Returns the tenant's compiler, and True if the tenant has it from now on."""
        compiler = self._tenants.pop(tenant, None)
        first = compiler is None
        if compiler is None:
            self.start()
            compiler, self._spare = self._spare, None
            asyncio.get_running_loop().call_later(_SPARE_SECONDS, self._restart_spare)
        if compiler is None:
            raise WorkerError("the server is stopping")
        self._tenants[tenant] = compiler  # last = most recently used
        if first:
            compiler.tenant = tenant
            compiler.debt = self._debts.take(tenant, time.monotonic())
        return compiler, first

    def release(self, tenant: str) -> None:
        """Notes that a session of the tenant is over; ends unused compilers beyond MAX_IDLE."""
        compiler = self._tenants.get(tenant)
        if compiler is not None and compiler.sessions > 0:
            compiler.sessions -= 1
        idle = [name for name, c in self._tenants.items() if c.sessions == 0]
        for name in idle[: max(len(idle) - MAX_IDLE, 0)]:
            self._hang_up(self._tenants.pop(name))

    def close(self) -> None:
        """Lets all compilers end: each ends after its last session."""
        self._closed = True
        spare = [self._spare] if self._spare is not None else []
        for compiler in [*self._tenants.values(), *spare]:
            self._hang_up(compiler)
            asyncio.get_running_loop().remove_reader(compiler.pidfd)
            os.close(compiler.pidfd)
            compiler.log.close()
            compiler.process.returncode = 0  # init inherits the process and waits for it
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
                self._command(theirs.fileno()),
                stdin=subprocess.DEVNULL,
                stdout=pipe.write_fd,
                stderr=pipe.write_fd,
                env=_environment(),
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
        compiler = _Compiler(process, pidfd, ours, pipe, time.monotonic())
        loop = asyncio.get_running_loop()
        loop.add_reader(pidfd, self._exited, compiler)
        loop.add_reader(ours.fileno(), self._heard, compiler)
        return compiler

    def _command(self, accept_fd: int) -> list[str]:
        limits = self._limits
        options = {
            "accept-fd": accept_fd,
            "processes": limits.processes,
            "memory": limits.memory_bytes,
            "seconds": limits.seconds,
            "burst": limits.burst_seconds,
            "cache-bytes": limits.cache_bytes,
        }
        command = [sys.executable, "-m", "rgpu_emu.compiler"]
        for name, value in options.items():
            command += (f"--{name}", f"{value}")
        return command

    def _heard(self, compiler: _Compiler) -> None:
        """Handles a compiler's only message: READY, with the isolation that it lacks."""
        try:
            data = compiler.accept.recv(MAX_MESSAGE_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        asyncio.get_running_loop().remove_reader(compiler.accept.fileno())
        if not data:
            return
        try:
            message = decode_from_worker(data)
        except WireError as error:
            log.warning("a PTX compiler sent an invalid message: %s", error)
            compiler.process.kill()
            return
        why = self._check(message.report) if isinstance(message, Ready) else "it did not say READY"
        if why:
            log.error("a PTX compiler is not used: %s", why)
            compiler.process.kill()

    def _hang_up(self, compiler: _Compiler) -> None:
        if compiler.accept.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(compiler.accept.fileno())
            compiler.accept.close()

    def _open_folder(self, tenant: str, compiler: _Compiler) -> int:
        """Opens the tenant's folder of compiled kernels for the compiler's user; -1: none."""
        if self._cache is None:
            return -1
        try:
            return open_folder(self._cache, namespace(tenant), own_user(compiler.process.pid))
        except OSError as error:
            log.warning("compiled kernels of a tenant are not kept in %s: %s", self._cache, error)
            return -1

    def _exited(self, compiler: _Compiler) -> None:
        asyncio.get_running_loop().remove_reader(compiler.pidfd)
        os.close(compiler.pidfd)
        _, status, usage = os.wait4(compiler.process.pid, 0)
        compiler.process.returncode = status = os.waitstatus_to_exitcode(status)
        if compiler.tenant:
            spent = compiler.debt + usage.ru_utime + usage.ru_stime
            now = time.monotonic()
            self._debts.keep(compiler.tenant, spent, now - compiler.started, now)
        compiler.log.close()
        self._hang_up(compiler)
        if compiler is self._spare:
            self._spare = None
        for tenant, known in list(self._tenants.items()):
            if known is compiler:
                del self._tenants[tenant]
        if status != 0 and not self._closed:
            end = process_end(status)
            log.warning("a PTX compiler ended with %s; the next session starts another", end)


def first_report() -> str:
    """Returns the isolation report of a compiler started only for that; raises WorkerError."""
    command = [sys.executable, "-m", "rgpu_emu.compiler", "--report"]
    try:
        done = subprocess.run(
            command, env=_environment(), cwd="/", capture_output=True, text=True,
            timeout=_START_SECONDS, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        raise WorkerError(f"the PTX compiler could not be started: {error}") from None
    return done.stdout.strip()


def _environment() -> dict[str, str]:
    environment = dict(CLEAN_ENVIRONMENT)
    for name in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"):
        if name in os.environ:
            environment[name] = os.environ[name]
    return environment


def namespace(tenant: str) -> str:
    """Returns the name of a tenant's part of the object cache: safe in a path, and not guessable
    from another tenant's.
    """
    return hashlib.sha256(tenant.encode()).hexdigest()[:32]
