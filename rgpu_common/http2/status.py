"""How calls end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

if TYPE_CHECKING:
    from collections.abc import Mapping

OK: Final = 0
CANCELLED: Final = 1
UNKNOWN: Final = 2
INVALID_ARGUMENT: Final = 3
DEADLINE_EXCEEDED: Final = 4
RESOURCE_EXHAUSTED: Final = 8
UNIMPLEMENTED: Final = 12
INTERNAL: Final = 13
UNAVAILABLE: Final = 14

# What a proxy that does not speak gRPC means (gRPC's table).
_OF_HTTP = {
    "400": INTERNAL, "401": 16, "403": 7, "404": UNIMPLEMENTED, "429": UNAVAILABLE,
    "502": UNAVAILABLE, "503": UNAVAILABLE, "504": UNAVAILABLE,
}  # fmt: skip
_OF_RESET = {7: UNAVAILABLE, 8: CANCELLED, 11: RESOURCE_EXHAUSTED}
_MAX_DETAILS = 500
# What stands for itself in a message; "%" does not.
_PRINTABLE = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")


@dataclass(frozen=True, slots=True)
class Status:
    """code: a number of gRPC's."""

    code: int
    details: str


class CallFailedError(Exception):
    """The call ended with another status than OK."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.details)
        self.status = status


def trailers(status: Status) -> list[tuple[str, str]]:
    """The last headers of a call, which `of_trailers` reads."""
    fields = [("grpc-status", str(status.code))]
    if status.details:
        fields.append(("grpc-message", quote(status.details[:_MAX_DETAILS], safe=_PRINTABLE)))
    return fields


def of_trailers(fields: Mapping[str, str]) -> Status:
    """The status that the server's last headers say."""
    text = fields.get("grpc-status", "")
    if text.isascii() and text.isdigit() and len(text) < 4:
        return Status(int(text), _clean(unquote(fields.get("grpc-message", ""))))
    return of_http(fields)


def of_http(fields: Mapping[str, str]) -> Status:
    """The status of an answer that is not gRPC's."""
    code = fields.get(":status", "")
    if code == "200":
        return Status(UNKNOWN, "the answer is no gRPC")
    return Status(_OF_HTTP.get(code, UNKNOWN), _clean(f"HTTP status {code}"))


def of_reset(code: int) -> Status:
    """The status of a stream that was given up."""
    return Status(_OF_RESET.get(code, UNAVAILABLE), f"the stream was reset with code {code}")


def _clean(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text[:_MAX_DETAILS])
