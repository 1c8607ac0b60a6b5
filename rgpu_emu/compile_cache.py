"""What the compiler remembers: replies on disk (a folder per cache namespace, bounded in bytes,
files written whole or not at all) and loaded inputs in memory."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tempfile
from collections import OrderedDict
from pathlib import Path
from typing import Final

DEFAULT_LIMIT_BYTES: Final = 1 << 30
MAX_REMEMBERED_BYTES: Final = 512 << 20
_DIGEST_BYTES: Final = 32
_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


class ObjectCache:
    """Remembers replies by key.  Every error of the file system means: not cached."""

    def __init__(
        self, root: Path | None, namespace: str, *, limit_bytes: int = DEFAULT_LIMIT_BYTES
    ) -> None:
        safe = (
            namespace
            if _PLAIN.fullmatch(namespace)
            else "n-" + hashlib.sha256(namespace.encode()).hexdigest()
        )
        self._folder = root / safe if root is not None else None
        self._limit = limit_bytes
        self._used = -1

    def get(self, key: str) -> bytes | None:
        """The bytes stored under a key, None when there are none or they are damaged."""
        if self._folder is None:
            return None
        path = self._folder / key
        try:
            content = path.read_bytes()
        except OSError:
            return None
        digest, body = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        if hashlib.sha256(body).digest() != digest:
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return body

    def put(self, key: str, body: bytes) -> None:
        """Stores bytes; the oldest files make room."""
        if self._folder is None or len(body) > self._limit // 4:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle, name = tempfile.mkstemp(dir=self._folder, prefix=".new-")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(hashlib.sha256(body).digest() + body)
                Path(name).replace(self._folder / key)
            except OSError:
                Path(name).unlink(missing_ok=True)
                raise
            self._bound(len(body))
        except OSError:
            return

    def _bound(self, added: int) -> None:
        if self._folder is None:
            return
        if self._used >= 0 and self._used + added <= self._limit:
            self._used += added
            return
        files = sorted(
            (s.st_mtime, s.st_size, e.path) for e in os.scandir(self._folder) for s in (e.stat(),)
        )
        self._used = sum(size for _, size, _ in files)
        for _, size, path in files:
            if self._used <= self._limit:
                break
            os.unlink(path)
            self._used -= size


class ModuleStore:
    """Inputs by key, the least recently used forgotten first."""

    def __init__(self, limit_bytes: int = MAX_REMEMBERED_BYTES) -> None:
        self._limit, self._used = limit_bytes, 0
        self._modules: OrderedDict[bytes, list[bytes]] = OrderedDict()

    def put(self, key: bytes, inputs: list[bytes]) -> None:
        if key in self._modules:
            self._modules.move_to_end(key)
            return
        self._modules[key] = inputs
        self._used += sum(map(len, inputs))
        while self._used > self._limit and len(self._modules) > 1:
            _, old = self._modules.popitem(last=False)
            self._used -= sum(map(len, old))

    def get(self, key: bytes) -> list[bytes] | None:
        if key in self._modules:
            self._modules.move_to_end(key)
        return self._modules.get(key)
