"""The credentials of a client: the access token of RGPU_TOKEN or RGPU_TOKEN_FILE."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_common.endpoints import speaks_tls
from rgpu_common.errors import UnsecuredError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rgpu_common.endpoints import Endpoint

MAX_ACCESS_TOKEN_BYTES = 8192
# Files with the access tokens of single servers: ADDRESS=FILE, with ';' between several.
TOKEN_FILES = "RGPU_TOKEN_FILES"


def configured_access_token(environment: Mapping[str, str]) -> str:
    """Returns the access token, read as the driver library reads it; "" if there is none.

    Raises:
        UsageError: the file that RGPU_TOKEN_FILE names cannot be read or holds no access token, or
            RGPU_TOKEN holds a different one.
    """
    access_token = _checked(environment.get("RGPU_TOKEN", ""), "RGPU_TOKEN")
    path = environment.get("RGPU_TOKEN_FILE", "")
    if not path:
        return access_token
    source = f"the access token file {path} (RGPU_TOKEN_FILE)"
    written = _written(path, source)
    if access_token and access_token != written:
        raise UsageError(
            f"RGPU_TOKEN and {source} hold different access tokens: unset the variable that is "
            "wrong"
        )
    return written


def credentials_for(server: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Returns `environment` with the credentials that `server` is to see: those of its file in
    RGPU_TOKEN_FILES, or else the ones for all servers.

    Raises:
        UsageError: RGPU_TOKEN_FILES is not such a list.
    """
    result = dict(environment)
    files = result.pop(TOKEN_FILES, "")
    for entry in filter(None, files.split(";")):
        name, equals, file = entry.partition("=")
        if not (name and equals and file):
            raise UsageError(f"{TOKEN_FILES}: {entry!r} is not ADDRESS=FILE, as b:7700=/PATH")
        if name == server:
            result.pop("RGPU_TOKEN", None)
            result["RGPU_TOKEN_FILE"] = file
    return result


def _written(path: str, source: str) -> str:
    """Returns the access token in a file."""
    try:
        with open(path, encoding="utf-8") as file:
            access_token = file.readline(MAX_ACCESS_TOKEN_BYTES + 2)
    except OSError as error:
        raise UsageError(f"{source} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{source} holds no text") from None
    access_token = _checked(access_token.rstrip("\r\n"), source)
    if not access_token:
        raise UsageError(f"{source} holds no access token in its first line")
    return access_token


def check_secured(server: Endpoint, environment: Mapping[str, str], name: str) -> None:
    """Checks that no access token goes unencrypted to an address that a manager gave over TLS: the
    user has chosen a path on which nobody reads the token. name: of the server, for the sentence.

    Raises:
        UnsecuredError: it would go so.
        UsageError: as `configured_access_token`.
    """
    if not (speaks_tls(server) or server.loopback) and configured_access_token(environment):
        raise UnsecuredError(
            f"{name} has the address {server}, where everybody on the network could read your "
            "access token, and its manager is asked over TLS: give the server a tls: address, and "
            "name it with --advertise"
        )


def call_metadata(environment: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Returns the metadata of each call of the control-plane API.

    Errors as `configured_access_token`.
    """
    access_token = configured_access_token(environment)
    return (("authorization", f"Bearer {access_token}"),) if access_token else ()


def _checked(access_token: str, source: str) -> str:
    """Returns the access token without blanks around it. UsageError never shows it."""
    most = MAX_ACCESS_TOKEN_BYTES
    if len(access_token) > most or not access_token.isascii() or not access_token.isprintable():
        raise UsageError(f"{source} is no access token: at most {most} printable characters")
    return access_token.strip()
