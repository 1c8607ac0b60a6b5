"""The compiler's caches: replies on disk and loaded inputs in memory.

Each tenant has its own folder on disk, bounded in bytes. A file is written whole or not at all.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DEFAULT_LIMIT_BYTES: Final = 1 << 30
_DIGEST_BYTES: Final = 32
# The disk space of the smallest file.
_BLOCK_BYTES: Final = 4096
_MAX_LISTED: Final = 1 << 20


def open_folder(root: Path, name: str, owner: int = -1) -> int:
    """Makes the folder of one tenant and opens it. owner: the only user who may enter it (-1: this
    user).

    Raises:
        OSError: it cannot be made, given to the owner or opened.
    """
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.fchmod(opened, 0o700)
        if owner >= 0:
            os.fchown(opened, owner, owner)
    except OSError:
        os.close(opened)
        raise
    return opened


class ObjectCache:
    """Stores replies by key in an open folder (-1: stores none).

    All connections of a tenant share one cache, and so one bound. After an error of the file system
    the reply is not cached.
    """

    def __init__(self, folder: int, *, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        self.folder = folder
        self._limit = limit_bytes
        self._used = 0
        # The folder's modification time after the last change made here. If it differs, another
        # process (the compiler of an earlier server) has changed the folder too.
        self._changed = -1

    def use(self, folder: int) -> None:
        """Stores replies in this folder from now on."""
        self.folder, self._changed = folder, -1

    def get(self, key: str) -> bytes | None:
        """Returns the bytes stored under a key; None if there are none or they are damaged."""
        if self.folder < 0:
            return None
        try:
            with open(key, "rb", opener=self._open) as file:
                content = file.read()
        except OSError:
            return None
        digest, body = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        if hashlib.sha256(body).digest() != digest:
            with contextlib.suppress(OSError):
                os.unlink(key, dir_fd=self.folder)
            return None
        with contextlib.suppress(OSError):
            os.utime(key, dir_fd=self.folder)
        return body

    def put(self, key: str, body: bytes) -> None:
        """Stores bytes after removing the oldest files to make room."""
        if self.folder < 0 or _on_disk(len(body) + _DIGEST_BYTES) > self._limit // 4:
            return
        with contextlib.suppress(OSError), self._locked():
            self._make_room(_on_disk(len(body) + _DIGEST_BYTES))
            name = f".new-{secrets.token_hex(8)}"
            try:
                with open(name, "xb", opener=self._open) as file:
                    file.write(hashlib.sha256(body).digest() + body)
                os.replace(name, key, src_dir_fd=self.folder, dst_dir_fd=self.folder)
            except OSError:
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=self.folder)
                raise
            self._used += _on_disk(len(body) + _DIGEST_BYTES)
            self._changed = os.fstat(self.folder).st_mtime_ns

    def _open(self, name: str, flags: int) -> int:
        # The folder's owner changes with every process of the compiler. No other user can enter it.
        return os.open(name, flags | os.O_NOFOLLOW, 0o644, dir_fd=self.folder)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Holds the folder's lock within the block.

        Raises:
            OSError: another process writes now, so this reply is not cached.
        """
        fcntl.flock(self.folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            yield
        finally:
            fcntl.flock(self.folder, fcntl.LOCK_UN)

    def _make_room(self, wanted: int) -> None:
        known = self._changed == os.fstat(self.folder).st_mtime_ns
        if known and self._used + wanted <= self._limit:
            return
        files = []
        with os.scandir(self.folder) as entries:
            for entry, _ in zip(entries, range(_MAX_LISTED), strict=False):
                facts = entry.stat(follow_symlinks=False)
                files.append((facts.st_mtime, _on_disk(facts.st_size), entry.name))
        self._used = sum(size for _, size, _ in files)
        for _, size, name in sorted(files):
            if self._used + wanted <= self._limit:
                break
            os.unlink(name, dir_fd=self.folder)
            self._used -= size


def _on_disk(count: int) -> int:
    return (count + _BLOCK_BYTES - 1) // _BLOCK_BYTES * _BLOCK_BYTES


class ModuleStore:
    """Stores inputs by key; forgets the least recently used first."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit, self._used = limit_bytes, 0
        self._modules: OrderedDict[bytes, tuple[bytes, ...]] = OrderedDict()

    def put(self, key: bytes, inputs: tuple[bytes, ...]) -> None:
        if key in self._modules:
            self._modules.move_to_end(key)
            return
        self._modules[key] = inputs
        self._used += sum(map(len, inputs))
        while self._used > self._limit and len(self._modules) > 1:
            _, old = self._modules.popitem(last=False)
            self._used -= sum(map(len, old))

    def get(self, key: bytes) -> tuple[bytes, ...] | None:
        if key in self._modules:
            self._modules.move_to_end(key)
        return self._modules.get(key)
