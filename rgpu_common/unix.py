"""Unix sockets in the file system: binds a path at which a dead process may have left a socket."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat

_ANSWER_SECONDS = 1.0


def bind_unix(path: str) -> socket.socket:
    """Returns a stream socket that is bound to `path` and does not listen yet. A socket at `path`
    is replaced if no process listens at it.

    Raises:
        OSError: the path cannot be bound.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISSOCK(os.stat(path).st_mode):
                raise FileExistsError(errno.EEXIST, "the path exists and is not a socket")
            if not answers(path):
                os.unlink(path)
        listener.bind(path)
    except OSError:
        listener.close()
        raise
    return listener


def answers(path: str) -> bool:
    """Returns whether a process listens at a Unix socket. True also if that cannot be found out."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.settimeout(_ANSWER_SECONDS)
        try:
            caller.connect(path)
        except ConnectionRefusedError:
            return False
        except OSError:
            return True
    return True
