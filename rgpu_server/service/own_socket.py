"""The Unix socket that every server opens by itself. The server names it to clients at its port, so
that programs on its machine get shared memory without configuration.

Every user of the machine may connect, as to 127.0.0.1; but on a Unix socket the kernel tells the
user.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rgpu_common.unix import answers, bind_unix

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

log = logging.getLogger("rgpu.door")

_TRIES = 100
_TRY_SECONDS = 0.02
_BACKLOG = 512


def own_socket_path(port: int) -> Path:
    """Returns the path of the socket for this user's server on that port. No other user can create
    or replace a file at that path (in /tmp: replace, because of the sticky bit).
    """
    if os.geteuid() == 0 and os.access("/run", os.W_OK):
        return Path(f"/run/rgpu-{port}.sock")
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.access(runtime, os.W_OK):
        return Path(runtime) / f"rgpu-{port}.sock"
    return Path(f"/tmp/rgpu-{os.geteuid()}-{port}.sock")


def open_own_socket(path: Path, lock: Path) -> socket.socket | None:
    """Returns a socket that listens at `path`; None, with a line in the log, if it cannot be
    opened: the server then goes on without it. The socket of a living server is not taken.

    lock: a folder of this user's. Servers that start at the same time take turns, since a socket
    that is bound but does not listen yet looks like a dead server's.
    """
    try:
        with _alone(lock):
            _sweep(path)
            listener = bind_unix(str(path))
            try:
                path.chmod(0o666)
                listener.listen(_BACKLOG)
            except OSError:
                listener.close()
                path.unlink(missing_ok=True)
                raise
    except OSError as error:
        log.warning(
            "programs on this machine get no shared memory by default: %s cannot be opened (%s); "
            "name another path with --listen unix:/PATH, or say --no-socket",
            path,
            error.strerror or error,
        )
        return None
    return listener


def _sweep(path: Path) -> None:
    """Removes the sockets that this user's killed servers left."""
    before_port = path.stem.rpartition("-")[0]
    for left in path.parent.glob(f"{before_port}-*.sock"):
        with contextlib.suppress(OSError):
            mine = left.is_socket() and left.stat().st_uid == os.geteuid()
            if left != path and mine and not answers(str(left)):
                left.unlink()


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Holds the lock of `folder`; raises BlockingIOError if another server holds it too long."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for _ in range(_TRIES):
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            time.sleep(_TRY_SECONDS)
        else:
            raise BlockingIOError(0, "another server has been starting for too long")
        yield
    finally:
        os.close(descriptor)
