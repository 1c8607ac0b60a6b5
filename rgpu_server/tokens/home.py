"""The state folder: where the daemon of an address keeps what outlives it, and finds it again."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
import select
import shutil
import socket
import stat
import struct
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from netprobe.identity import FILE as IDENTITY
from rgpu_common.endpoints import TcpEndpoint
from rgpu_common.errors import ServerError
from rgpu_server.observe.record import FILES as RECORD

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rgpu_common.endpoints import Endpoint

LOCK = "lock"
SOCKET = "loop"
LOG = "loop.log"
# Folders that end with their daemon begin so.
OWN = "daemon-"
# A Unix socket's path has at most 107 bytes.
_MAX_PATH = 90
_TRIES = 50
_TRY_SECONDS = 0.02
# How long a loop that nobody needs waits for a daemon that has the folder and does not come.
_LEAVE_SECONDS = 5.0


class StateFolder(Struct, frozen=True):
    """A folder that this daemon alone uses, as long as lock_fd is open."""

    path: Path
    lock_fd: int

    def own_folder(self) -> Path:
        """A folder that ends with this daemon; those that killed daemons left are removed."""
        for left in self.path.glob(f"{OWN}*"):
            shutil.rmtree(left, ignore_errors=True)
        return Path(tempfile.mkdtemp(prefix=OWN, dir=self.path))

    def connect(self) -> socket.socket | None:
        """The token loop that an earlier daemon left, if it lives."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            connection.connect(str(self.path / SOCKET))
        except OSError:
            connection.close()
            return None
        return connection

    def has_loop(self) -> bool:
        """Whether there is such a loop: a daemon that cannot start leaves it what it has here."""
        connection = self.connect()
        if connection is None:
            return False
        connection.close()
        return True

    def remove(self) -> None:
        """Nothing of it is needed any more."""
        _remove(self.path)

    def release(self) -> None:
        """Lets another daemon use the folder; what is left in it is the loop's to remove."""
        os.close(self.lock_fd)


class InUseError(ServerError):
    """Another server has the state folder."""


def state_path(listen: Sequence[Endpoint]) -> Path:
    """The folder of a server that listens there, where the operator names none."""
    return _base() / _name(listen)


def open_state(path: Path) -> StateFolder:
    """Makes the folder and takes it; removes those beside it whose servers are gone.

    Raises:
        InUseError: another server uses it.
        ServerError: it cannot be used.
    """
    if len(os.fsencode(path)) > _MAX_PATH:
        raise ServerError(f"the state folder's path {path} is too long: name a shorter one with "
                          "--state-dir")  # fmt: skip
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_private(path)
        lock_fd = _take_lock(path)
        if path.parent == _base():
            _sweep(path)
    except OSError as error:
        kind = InUseError if isinstance(error, BlockingIOError) else ServerError
        raise kind(
            f"the state folder {path} cannot be used: {error.strerror or error}; name another one "
            "with --state-dir"
        ) from None
    return StateFolder(path, lock_fd)


def base_folder() -> Path:
    """Returns the folder in which this user's servers keep their state folders; it is there."""
    base = _base()
    base.mkdir(mode=0o700, exist_ok=True)
    return base


def _base() -> Path:
    candidates = [Path("/run/rgpu")] if os.geteuid() == 0 else []
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if os.geteuid() != 0 and runtime:
        candidates.append(Path(runtime) / "rgpu")
    for folder in candidates:
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, exist_ok=True)
            if os.access(folder, os.W_OK):
                return folder
    return Path(f"/tmp/rgpu-{os.geteuid()}")


def _name(listen: Sequence[Endpoint]) -> str:
    ports = [e.port for e in listen if isinstance(e, TcpEndpoint)]
    if ports and ports[0]:
        return str(ports[0])
    if ports:
        return f"any-{secrets.token_hex(4)}"  # a port that nobody knows yet is found by nobody
    return f"unix-{hashlib.sha256(str(listen[0]).encode()).hexdigest()[:12]}"


def _check_private(path: Path) -> None:
    """Others must not have made it, nor the folder of ours above it, nor look into it."""
    for folder in (path.parent, path) if path.parent == _base() else (path,):
        facts = os.lstat(folder)
        if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid():
            raise PermissionError(0, f"{folder} is no folder of this user's")
        if facts.st_mode & 0o077:
            if folder == path:
                raise PermissionError(0, "others may look into it (chmod 700)")
            os.chmod(folder, 0o700)


def _take_lock(path: Path) -> int:
    """The lock of a folder; a folder that is being removed meanwhile is made again."""
    for _ in range(_TRIES):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock_fd = _try_lock(path, os.O_CREAT)
        if lock_fd is not None:
            return lock_fd
        time.sleep(_TRY_SECONDS)
    raise BlockingIOError(0, "another server uses it")


def _try_lock(path: Path, flags: int = 0) -> int | None:
    try:
        lock_fd = os.open(path / LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | flags, 0o600)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(lock_fd).st_ino == os.stat(path / LOCK).st_ino:
            return lock_fd
    except OSError:
        pass
    os.close(lock_fd)
    return None


def _sweep(mine: Path) -> None:
    """Removes the folders of servers that were killed and left no sessions."""
    for folder in mine.parent.iterdir():
        if folder == mine or folder.is_symlink():
            continue
        lock_fd = _try_lock(folder)
        if lock_fd is None:
            continue
        if not StateFolder(folder, lock_fd).has_loop():
            _remove(folder)
        os.close(lock_fd)


def _remove(folder: Path) -> None:
    """Removes what is ours, and the folder if that was all: the operator may have named any."""
    for left in folder.glob(f"{OWN}*"):
        shutil.rmtree(left, ignore_errors=True)
    with contextlib.suppress(OSError):
        for name in (SOCKET, LOG, IDENTITY, *RECORD, LOCK):
            (folder / name).unlink(missing_ok=True)
        folder.rmdir()


class Home:
    """The loop's side of the folder: it listens there, and removes it when it ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._give_up: float | None = None
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path / SOCKET)
        self.listener.bind(str(path / SOCKET))
        os.chmod(path / SOCKET, 0o600)
        self.listener.listen(4)
        self.listener.setblocking(False)

    def accept(self) -> socket.socket | None:
        """A daemon of the same user, if one came."""
        self._give_up = None
        try:
            connection, _ = self.listener.accept()
        except OSError:
            return None
        size = struct.calcsize("3i")
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
        if struct.unpack("3i", credentials)[1] != os.geteuid():
            connection.close()
            return None
        return connection

    def leave(self) -> bool:
        """Nobody needs the loop: removes the folder and returns True, unless a daemon has it, which
        is about to come.
        """
        now = time.monotonic()
        self._give_up = self._give_up or now + _LEAVE_SECONDS
        lock_fd = _try_lock(self._path, os.O_CREAT)
        if lock_fd is None:
            return now >= self._give_up
        try:
            if select.select([self.listener], [], [], 0)[0]:
                return False
            _remove(self._path)
        finally:
            os.close(lock_fd)
        return True
