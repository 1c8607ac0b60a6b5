"""Private folders for the sockets of agents, in the runtime folder of their user.

The process that makes a folder, and the agent that serves in it, hold a lock on it. The lock ends
with the process, however the process ends. So a folder without a lock was left behind, and is
removed when the next folder is made.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# The part of a name that `mkdtemp` appends.
_RANDOM = "[a-z0-9_]{8}"
# Each try fails only if another process sweeps in the same moment.
_TRIES = 100


@contextlib.contextmanager
def private_folder(prefix: str, environment: Mapping[str, str]) -> Iterator[str]:
    """Makes a folder of this user for the socket of an agent; removes it if the block fails.

    Other processes do not sweep the folder within the block, nor later while a process has it
    `held`.
    """
    parent = runtime_folder(environment) or _temporary_folder()
    _sweep(parent, prefix)
    folder, lock = _made(parent, prefix)
    try:
        yield folder
    except BaseException:
        _remove(folder)
        raise
    finally:
        os.close(lock)


def _temporary_folder() -> str:
    import tempfile

    return tempfile.gettempdir()


def _remove(folder: str) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def runtime_folder(environment: Mapping[str, str]) -> str | None:
    """Returns the user's runtime folder; None if private folders belong among the
    temporary files.
    """
    folder = environment.get("XDG_RUNTIME_DIR", "")
    return folder if folder and os.access(folder, os.W_OK | os.X_OK) else None


def held(folder: str) -> int:
    """Returns a descriptor of the folder. The folder is not swept while a process has it open.

    Raises:
        FileNotFoundError, BlockingIOError: another process is sweeping the folder now.
        OSError: the folder cannot be opened.
    """
    descriptor = os.open(folder, _OPEN)
    try:
        _lock(descriptor, fcntl.LOCK_SH)
        if not os.path.samestat(os.fstat(descriptor), os.stat(folder)):
            raise FileNotFoundError(folder)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _made(parent: str, prefix: str) -> tuple[str, int]:
    """Returns a new folder and the descriptor that holds it.

    Between the two steps no process holds the folder, so it may be swept; then another is made.
    """
    import tempfile

    for _ in range(_TRIES):
        folder = tempfile.mkdtemp(prefix=prefix, dir=parent)
        try:
            return folder, held(folder)
        except (FileNotFoundError, BlockingIOError):
            continue
        except BaseException:
            _remove(folder)
            raise
    raise OSError(f"each folder made in {parent} was removed at once")


def _lock(descriptor: int, how: int) -> bool:
    """True if the lock is taken; False if the file system has no locks, where no process sweeps.

    Raises:
        BlockingIOError: another process holds the lock.
    """
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return False
    return True


def _sweep(parent: str, prefix: str) -> None:
    """Removes folders of dead agents, and of processes that died before they had started one."""
    pattern = re.compile(re.escape(prefix) + _RANDOM)
    try:
        names = [name for name in os.listdir(parent) if pattern.fullmatch(name)]
    except OSError:
        return
    for name in names:
        with contextlib.suppress(OSError):
            _remove_dead(os.path.join(parent, name))


def _remove_dead(folder: str) -> None:
    """Removes a folder without a lock.

    Raises:
        OSError: the folder is another user's, or holds a file that no agent leaves.
    """
    descriptor = os.open(folder, _OPEN)
    try:
        # Root can open the folders of other users, and must not remove those.
        if os.fstat(descriptor).st_uid != os.geteuid() or not _lock(descriptor, fcntl.LOCK_EX):
            return
        for name in os.listdir(descriptor):
            found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            if stat.S_ISSOCK(found.st_mode):
                os.unlink(name, dir_fd=descriptor)
        os.rmdir(folder)
    finally:
        os.close(descriptor)
