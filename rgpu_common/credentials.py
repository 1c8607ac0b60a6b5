"""The credentials of a client: the token of RGPU_TOKEN or RGPU_TOKEN_FILE."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_common.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_TOKEN_BYTES = 8192


def configured_token(environment: Mapping[str, str]) -> str:
    """Returns the token, read as the driver library reads it; "" if there is none.

    Raises:
        UsageError: the file that RGPU_TOKEN_FILE names cannot be read or holds no token, or
            RGPU_TOKEN holds a different token.
    """
    token = _checked(environment.get("RGPU_TOKEN", ""), "RGPU_TOKEN")
    path = environment.get("RGPU_TOKEN_FILE", "")
    if not path:
        return token
    source = f"the token file {path} (RGPU_TOKEN_FILE)"
    written = _written(path, source)
    if token and token != written:
        raise UsageError(
            f"RGPU_TOKEN and {source} hold different tokens: unset the variable that is wrong"
        )
    return written


def _written(path: str, source: str) -> str:
    """Returns the token in a file."""
    try:
        with open(path, encoding="utf-8") as file:
            token = file.readline(MAX_TOKEN_BYTES + 2)
    except OSError as error:
        raise UsageError(f"{source} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{source} holds no text") from None
    token = _checked(token.rstrip("\r\n"), source)
    if not token:
        raise UsageError(f"{source} holds no token in its first line")
    return token


def call_metadata(environment: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Returns the metadata of each call of the control-plane API. Errors as `configured_token`."""
    token = configured_token(environment)
    return (("authorization", f"Bearer {token}"),) if token else ()


def _checked(token: str, source: str) -> str:
    """Returns the token without blanks around it. UsageError never shows the token."""
    if len(token) > MAX_TOKEN_BYTES or not token.isascii() or not token.isprintable():
        raise UsageError(f"{source} is no token: at most {MAX_TOKEN_BYTES} printable characters")
    return token.strip()
