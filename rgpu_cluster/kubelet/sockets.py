"""Serves gRPC at Unix sockets in the folders of a kubelet."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from rgpu_common.endpoints import MAX_UNIX_PATH_BYTES
from rgpu_common.errors import ServerError
from rgpu_common.unix import answers

if TYPE_CHECKING:
    from pathlib import Path

    import grpc.aio


def bind(server: grpc.aio.Server, path: Path, remedy: str) -> None:
    """Binds a server to a socket that only this user can connect to. A socket that a dead process
    has left is replaced. remedy: what to do if the folder is not there.

    Raises:
        ServerError: the socket cannot be bound, or another process serves at it.
    """
    text = str(path)
    if len(os.fsencode(text)) > MAX_UNIX_PATH_BYTES:
        raise ServerError(f"{text} is too long for a socket; {remedy}")
    if not path.parent.is_dir():
        raise ServerError(f"there is no folder {path.parent}; {remedy}")
    if path.exists():
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise ServerError(f"{text} is there and is no socket: remove it")
        if answers(text):
            raise ServerError(f"another process serves at {text}: end it before")
        path.unlink()
    before = os.umask(0o177)
    try:
        server.add_insecure_port(f"unix:{text}")
    except RuntimeError:
        raise ServerError(f"cannot listen at {text}; {remedy}") from None
    finally:
        os.umask(before)
