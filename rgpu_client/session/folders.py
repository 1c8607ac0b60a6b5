"""Private folders for the sockets of agents, in the runtime folder of their user.

Who makes one or serves in it holds a lock on it, which ends with the process, however that ends.
So what nobody holds was left behind, and goes when the next one is made.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import stat
import tempfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# What `mkdtemp` appends.
_RANDOM = "[a-z0-9_]{8}"
# Each is lost to somebody who sweeps in just that moment.
_TRIES = 100


@contextlib.contextmanager
def private_folder(prefix: str, environment: Mapping[str, str]) -> Iterator[str]:
    """A folder of this user's for the socket of an agent; gone if the block fails.  Nobody sweeps
    it within the block, nor later while somebody has it `held`.
    """
    parent = runtime_folder(environment) or tempfile.gettempdir()
    _sweep(parent, prefix)
    folder, lock = _made(parent, prefix)
    try:
        yield folder
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        os.close(lock)


def runtime_folder(environment: Mapping[str, str]) -> str | None:
    """Returns where private folders with sockets belong; None: where temporary files are."""
    folder = environment.get("XDG_RUNTIME_DIR", "")
    return folder if folder and os.access(folder, os.W_OK | os.X_OK) else None


def held(folder: str) -> int:
    """Returns a descriptor: as long as any process has it open, nobody sweeps the folder.

    Raises:
        FileNotFoundError, BlockingIOError: somebody just does.
        OSError: it cannot be opened.
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
    """A new folder, and what holds it.  In between it is nobody's, and may be swept."""
    for _ in range(_TRIES):
        folder = tempfile.mkdtemp(prefix=prefix, dir=parent)
        try:
            return folder, held(folder)
        except (FileNotFoundError, BlockingIOError):
            continue
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
    raise OSError(f"each folder made in {parent} was removed at once")


def _lock(descriptor: int, how: int) -> bool:
    """True if it is locked; BlockingIOError: somebody else has it.  Without locks on its file
    system nobody sweeps there.
    """
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return False
    return True


def _sweep(parent: str, prefix: str) -> None:
    """Removes what dead agents, and starters that died before they had one, left behind."""
    pattern = re.compile(re.escape(prefix) + _RANDOM)
    try:
        names = [name for name in os.listdir(parent) if pattern.fullmatch(name)]
    except OSError:
        return
    for name in names:
        with contextlib.suppress(OSError):
            _remove_dead(os.path.join(parent, name))


def _remove_dead(folder: str) -> None:
    """OSError if it is not this user's to remove, or holds what no agent leaves."""
    descriptor = os.open(folder, _OPEN)
    try:
        # Root may open the folders of others, whose agents it does not start.
        if os.fstat(descriptor).st_uid != os.geteuid() or not _lock(descriptor, fcntl.LOCK_EX):
            return
        for name in os.listdir(descriptor):
            found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            if stat.S_ISSOCK(found.st_mode):
                os.unlink(name, dir_fd=descriptor)
        os.rmdir(folder)
    finally:
        os.close(descriptor)
