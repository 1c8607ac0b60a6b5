"""What makes a request of headers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from rgpu_common.http2 import headers
from rgpu_common.http2.frames import Error

if TYPE_CHECKING:
    from rgpu_common.http2.headers import Headers

_PSEUDO: Final = (":method", ":scheme", ":path", ":authority")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")
_GRPC = re.compile(r"application/grpc(?:[+;]|\Z)")
_VALUE = re.compile(r"[^\x00\r\n]*")
# They belong to HTTP/1.
_OF_CONNECTION = frozenset(
    ("connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade")
)
_NO_POST: Final = headers.encode([(":status", "405"), ("allow", "POST")])
_NO_GRPC: Final = headers.encode([(":status", "415")])


def check(fields: Headers) -> dict[str, str] | bytes | Error:
    """Returns the fields; or the headers of the answer to what is no gRPC; or why the stream is
    given up that breaks HTTP's rules.
    """
    found: dict[str, str] = {}
    regular = False
    for name, value in fields:
        pseudo = name.startswith(":")
        if not pseudo:
            regular = True
        if (pseudo and (regular or name not in _PSEUDO or name in found)) or not (
            (pseudo or (_NAME.fullmatch(name) and name not in _OF_CONNECTION))
            and _VALUE.fullmatch(value)
        ):
            return Error.PROTOCOL
        found[name] = f"{found[name]},{value}" if name in found else value
    if not all(found.get(name) for name in (":method", ":scheme", ":path")):
        return Error.PROTOCOL
    if found[":method"] != "POST":
        return _NO_POST
    if not _GRPC.match(found.get("content-type", "")):
        return _NO_GRPC
    return found
