"""Unix sockets in the file system: binding a path that a dead process may have left behind."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat

_ANSWER_SECONDS = 1.0


def bind_unix(path: str) -> socket.socket:
    """Returns a stream socket that is bound to `path` and does not listen yet.  A socket at which
    nobody listens any more is replaced, a living one is not.

    Raises:
        OSError: it cannot be bound.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISSOCK(os.stat(path).st_mode):
                raise FileExistsError(errno.EEXIST, "something else than a socket lies there")
            if not answers(path):
                os.unlink(path)
        listener.bind(path)
    except OSError:
        listener.close()
        raise
    return listener


def answers(path: str) -> bool:
    """True if somebody listens at a Unix socket, or that cannot be told."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.settimeout(_ANSWER_SECONDS)
        try:
            caller.connect(path)
        except ConnectionRefusedError:
            return False
        except OSError:
            return True
    return True
