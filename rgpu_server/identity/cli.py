"""`rgpu token`: makes, lists and revokes the access tokens of a server."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from rgpu_common.command import OK, Command
from rgpu_common.config import read_toml
from rgpu_common.errors import RgpuError, UsageError
from rgpu_common.units import counted
from rgpu_server.identity.access_tokens import (
    changing,
    default_tokens_file,
    make_access_token,
    read_access_tokens,
)

if TYPE_CHECKING:
    import argparse

    from rgpu_server.identity.access_tokens import AccessTokenRow

# Servers that join a manager show its tokens, unless its `nodes.tenant` names another tenant.
_NODES = "nodes"


class TokenRow(TypedDict):
    """An access token. made, expires: seconds since 1970; expires: null if it has no end."""

    id: str
    tenant: str
    made: float
    expires: float | None


class TokenList(TypedDict):
    """What `rgpu token list --json` prints."""

    tokens: list[TokenRow]


_LIFE = re.compile(r"([1-9][0-9]{0,5})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    new = verbs.add_parser("new", help="make an access token and print it; it is not shown again")
    new.add_argument("tenant", metavar="TENANT", help="the tenant that the access token stands for")
    new.add_argument(
        "--file",
        type=Path,
        metavar="FILE",
        help="write it to FILE (mode 0600), do not print it",
    )
    new.add_argument(
        "--expires",
        metavar="30d",
        help="how long the access token is valid: 90m, 12h, 30d (default: no end)",
    )
    listing = verbs.add_parser("list", help="list the access tokens' ids and tenants")
    listing.add_argument("--json", action="store_true", help="print JSON instead of a table")
    revoke = verbs.add_parser("revoke", help="make an access token invalid at once")
    revoke.add_argument("id", metavar="ID", nargs="?", help="its id, as `list` shows it")
    revoke.add_argument("--tenant", metavar="NAME", help="all access tokens of a tenant")
    for verb in (new, listing, revoke):
        verb.add_argument(
            "--tokens",
            type=Path,
            metavar="FILE",
            help="the server's tokens file (default: /etc/rgpu/tokens.toml for root, else "
            "~/.config/rgpu/tokens.toml, which a server of this user reads unasked if other "
            "machines can reach it)",
        )
        verb.add_argument(
            "--config",
            type=Path,
            metavar="FILE",
            help="the server's configuration file, which names the tokens file",
        )


def _run(arguments: argparse.Namespace) -> int:
    path = _path(arguments)
    if arguments.verb == "new":
        return _new(path, arguments)
    if arguments.verb == "list":
        return _list(path, arguments.json)
    return _revoke(path, arguments)


def _path(arguments: argparse.Namespace) -> Path:
    if arguments.tokens is not None:
        return Path(arguments.tokens).absolute()
    if arguments.config is not None:
        written = read_toml(arguments.config).table("identity").path("tokens", "")
        if not written:
            raise UsageError(f"{arguments.config} names no tokens file: set identity.tokens")
        return Path(written)
    return default_tokens_file()


def _new(path: Path, arguments: argparse.Namespace) -> int:
    now = time.time()
    expires = None if arguments.expires is None else now + _life(arguments.expires)
    access_token, row = make_access_token(arguments.tenant, now, expires)
    if arguments.file is not None:
        _write_secret(arguments.file, access_token)
    with changing(path) as rows:
        rows.append(row)
    if arguments.file is None:
        print(access_token, flush=True)
    where = f"it is in {arguments.file}" if arguments.file is not None else "it is not shown again"
    made = f"access token {row.id} of tenant {row.tenant!r}, in {path}; {where}"
    print(f"rgpu: {made}", file=sys.stderr)
    print(_next_steps(path, arguments), file=sys.stderr)
    return OK


def _next_steps(path: Path, arguments: argparse.Namespace) -> str:
    """Who takes the access token, and how it is shown."""
    named = arguments.config
    file = arguments.file or "FILE"
    put = "" if arguments.file else "put it into a file there and "
    if arguments.tenant.partition(":")[0] == _NODES:
        return (
            f"rgpu: the manager takes it: rgpu manager --listen 0.0.0.0:7710 --tokens {path}\n"
            f"rgpu: a server that joins shows it: {put}start it by rgpu serve --join MANAGER "
            f"--join-token {file}"
        )
    option = f"--tokens {path}" if named is None else f"--config {named}"
    unasked = " (or without the option)" if path == default_tokens_file() else ""
    return (
        f"rgpu: the server takes it: rgpu serve --listen 0.0.0.0:7700 {option}{unasked}\n"
        f"rgpu: the client shows it: {put}set RGPU_TOKEN_FILE={file}"
    )


def _write_secret(path: Path, access_token: str) -> None:
    """Writes the access token to a new file; an existing file is never overwritten."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise RgpuError(
            f"{path} exists already and is not overwritten: name another file, or delete this one "
            "if nobody uses its access token"
        ) from None
    except OSError as error:
        raise RgpuError(
            f"{path} cannot be created: {error.strerror}; name a file in a folder that you may "
            "write to"
        ) from None
    with os.fdopen(fd, "w", encoding="ascii") as file:
        file.write(access_token + "\n")


def _life(text: str) -> float:
    match = _LIFE.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is not a duration: write 90m, 12h or 30d")
    return float(int(match[1]) * _SECONDS[match[2]])


def _list(path: Path, as_json: bool) -> int:
    rows = read_access_tokens(path) if path.exists() else []
    if as_json:
        found: TokenList = {
            "tokens": [
                {"id": r.id, "tenant": r.tenant, "made": r.made, "expires": r.expires} for r in rows
            ]
        }
        print(json.dumps(found, indent=2))
        return OK
    for row in rows:
        print(f"{row.id}  {_day(row.made)}  {_end(row):<24}  {row.tenant}")
    missing = "" if path.exists() else ", which is not there"
    print(f"{counted(len(rows), 'access token')} in {path}{missing}", file=sys.stderr)
    return OK


def _end(row: AccessTokenRow) -> str:
    if row.expires is None:
        return "no end"
    word = "until" if row.expires > time.time() else "ended"
    return f"{word} {_day(row.expires)}"


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%MZ")


def _revoke(path: Path, arguments: argparse.Namespace) -> int:
    if (arguments.id is None) == (arguments.tenant is None):
        raise UsageError("say which access token: its id, or --tenant NAME for all of a tenant")
    with changing(path) as rows:
        gone = [
            r
            for r in rows
            if r.id == arguments.id or (arguments.id is None and r.tenant == arguments.tenant)
        ]
        if not gone:
            name = arguments.id or f"of tenant {arguments.tenant!r}"
            raise RgpuError(
                f"there is no access token {name} in {path}; `rgpu token list` shows them"
            )
        rows[:] = [row for row in rows if row not in gone]
    for row in gone:
        print(f"revoked {row.id} of tenant {row.tenant!r}")
    return OK


token = Command("token", "make, list and revoke the access tokens of a server", _configure, _run)
