"""The tokens file: which access token belongs to which tenant. It holds hashes of them only."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import json
import logging
import os
import re
import secrets
import stat
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from rgpu_common.config import read_toml
from rgpu_common.errors import ConfigError, RgpuError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

log = logging.getLogger("rgpu.identity")

MAX_TENANT_BYTES = 256
_SECRET_BYTES = 32
_ID = re.compile(r"[0-9a-f]{12}")
_TOKEN = re.compile(r"rgpu_([0-9a-f]{12})_[A-Za-z0-9_-]{43}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
# Compared if there is no such access token, so that the answer takes equally long.
_NOBODY = bytes(32)
_HEAD = """\
# The access tokens of this server: written by `rgpu token`, read again when it changes.
# It holds hashes; if an access token is lost, revoke it and make a new one.
"""


@dataclass(frozen=True, slots=True)
class AccessTokenRow:
    """A row of the tokens file. made, expires: seconds since 1970; None: never.

    digest: SHA-256 of the whole access token. Its secret has 256 random bits, so no salt is needed.
    """

    id: str
    tenant: str
    digest: bytes = field(repr=False)
    made: float
    expires: float | None = None


def default_tokens_file() -> Path:
    """Returns the file that `rgpu token` writes, and a server of this user reads, where none is
    named.
    """
    if os.geteuid() == 0:
        return Path("/etc/rgpu/tokens.toml")
    return Path("~/.config/rgpu/tokens.toml").expanduser()


def make_access_token(
    tenant: str, now: float, expires: float | None = None
) -> tuple[str, AccessTokenRow]:
    """Returns a new access token, which is stored nowhere, and its row.

    Raises:
        UsageError: `tenant` cannot be a tenant's name.
    """
    check_tenant(tenant)
    number = secrets.token_hex(6)
    access_token = f"rgpu_{number}_{secrets.token_urlsafe(_SECRET_BYTES)}"
    return access_token, AccessTokenRow(number, tenant, _digest(access_token), now, expires)


def check_tenant(tenant: str) -> None:
    """Raises UsageError if `tenant` cannot be a tenant's name."""
    size = len(tenant.encode(errors="replace"))
    if not 0 < size <= MAX_TENANT_BYTES or not tenant.isprintable() or tenant == "*":
        raise UsageError(
            f"a tenant is 1 to {MAX_TENANT_BYTES} printable characters and not '*': {tenant[:64]!r}"
        )


def read_access_tokens(path: Path) -> list[AccessTokenRow]:
    """Returns the rows of a tokens file.

    Raises:
        ConfigError: the file cannot be read, others may write to it, or it is not a tokens file.
    """
    root = read_toml(path)
    with contextlib.suppress(OSError):
        if os.stat(path).st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise ConfigError(f"{path}: other users may write to it; run chmod 600 {path}")
    rows = []
    for table in root.rows("token"):
        row = AccessTokenRow(
            id=table.text("id", ""),
            tenant=table.text("tenant", ""),
            digest=_hex(table.text("sha256", "")),
            made=table.instant("made") or 0.0,
            expires=table.instant("expires"),
        )
        table.done()
        if not _ID.fullmatch(row.id) or len(row.digest) != len(_NOBODY):
            raise ConfigError(f"{path}: the access token of {row.tenant!r} has no id or no sha256")
        try:
            check_tenant(row.tenant)
        except UsageError as error:
            raise ConfigError(f"{path}: {error}") from None
        rows.append(row)
    root.done()
    return rows


def write_access_tokens(path: Path, rows: Sequence[AccessTokenRow]) -> None:
    """Replaces the file atomically with mode 0600; raises RgpuError if that fails."""
    text = _HEAD + "".join(_as_toml(row) for row in rows)
    try:
        replace_file(path, text.encode())
    except OSError as error:
        raise RgpuError(f"{path} cannot be written: {error.strerror}") from None


def replace_file(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Replaces a file atomically: readers see the old content or all of the new one."""
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(new)
        raise


@contextlib.contextmanager
def changing(path: Path) -> Iterator[list[AccessTokenRow]]:
    """Yields the rows, which the caller changes in place, and writes them back; a lock keeps other
    writers out. Creates the file and its folder if they are missing.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock_fd = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise RgpuError(f"{path} cannot be written: {error.strerror}") from None
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX)
        rows = read_access_tokens(path) if path.exists() else []
        yield rows
        write_access_tokens(path, rows)
    finally:
        os.close(lock_fd)


class AccessTokens:
    """The server's view of the tokens file. While the file is invalid, no access token is valid."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows = _by_id(read_access_tokens(path))
        self._version = self._stamp()

    def row_of(self, access_token: str, now: float) -> AccessTokenRow | None:
        """Returns the row of a valid access token, or None. now: seconds since 1970."""
        self._read_again()
        match = _TOKEN.fullmatch(access_token)
        row = self._rows.get(match[1]) if match is not None else None
        same = hmac.compare_digest(
            _digest(access_token), row.digest if row is not None else _NOBODY
        )
        if row is None or not same or (row.expires is not None and row.expires <= now):
            return None
        return row

    def _read_again(self) -> None:
        version = self._stamp()
        if version == self._version:
            return
        self._version = version
        try:
            self._rows = _by_id(read_access_tokens(self._path))
        except ConfigError as error:
            self._rows = {}
            log.error("no access token is valid until this is corrected: %s", error)
        else:
            log.info("%s was read again: %d access tokens", self._path, len(self._rows))

    def _stamp(self) -> tuple[int, ...]:
        try:
            facts = os.stat(self._path)
        except OSError:
            return ()
        return facts.st_ino, facts.st_mtime_ns, facts.st_size, facts.st_mode


def existing_access_tokens(path: Path) -> AccessTokens:
    """Returns the access tokens of a server.

    Raises:
        ConfigError: the file is not there or makes no sense.
    """
    if not path.exists():
        raise ConfigError(
            f"there is no tokens file {path}: `rgpu token new TENANT --tokens {path}` makes one"
        )
    log.info("clients on other machines show an access token of %s", path)
    return AccessTokens(path)


def _by_id(rows: list[AccessTokenRow]) -> dict[str, AccessTokenRow]:
    return {row.id: row for row in rows}


def _digest(access_token: str) -> bytes:
    return hashlib.sha256(access_token.encode(errors="replace")).digest()


def _hex(text: str) -> bytes:
    return bytes.fromhex(text) if _DIGEST.fullmatch(text) else b""


def _as_toml(row: AccessTokenRow) -> str:
    lines = [
        "\n[[token]]",
        f'id = "{row.id}"',
        f"tenant = {json.dumps(row.tenant, ensure_ascii=False)}",
        f'sha256 = "{row.digest.hex()}"',
        f"made = {_instant(row.made)}",
    ]
    if row.expires is not None:
        lines.append(f"expires = {_instant(row.expires)}")
    return "\n".join(lines) + "\n"


def _instant(seconds: float) -> str:
    moment = datetime.fromtimestamp(round(seconds), timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
