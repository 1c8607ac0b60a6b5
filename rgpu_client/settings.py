"""What a client asks a server for, as the `RGPU_*` variables that the driver library reads."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rgpu_client.sizes import (
    parse_cap,
    parse_guarantee,
    parse_limit_of_memory,
    parse_name,
    parse_ordinal,
    parse_priority,
    parse_weight,
)
from rgpu_common.endpoints import DEFAULT_PORT, Endpoint, TcpEndpoint, parse_endpoint
from rgpu_common.errors import UsageError
from rgpu_common.sharing import parse_policy
from rgpu_common.units import PPM, format_share, parse_share, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DEFAULT_SERVER = TcpEndpoint("127.0.0.1", DEFAULT_PORT)
# UCX carries sessions, not the API.
_SERVER_HELP = (
    "HOST:PORT, tls:HOST:PORT, {ucx}grpc[s]:HOST:PORT, unix:/PATH or shm:/PATH (default: "
    "RGPU_SERVER, then 127.0.0.1:7700)"
)
SESSION_SERVER_HELP = _SERVER_HELP.format(ucx="ucx:HOST:PORT, ")
API_SERVER_HELP = _SERVER_HELP.format(ucx="")
# An emulated device runs PTX, not machine code: these make programs that can choose send it.
SEND_PTX = {"CUPY_COMPILE_WITH_PTX": "1"}


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Sizes as users write them; None leaves it to the environment, then to the server.

    memory: "2GiB", "8vmem" or "25%".  device: its number on the server.  share, limit: "0.4",
    "40%" or "40vcore".  lease: processes with one lease share it.  tenant: who is billed.
    policy: "fixed", "burst", "best-effort" or "none".  priority, weight: who gets idle device time
    first, and how much of it.
    """

    server: str | None = None
    memory: str | int | None = None
    device: int | None = None
    share: str | float | None = None
    limit: str | float | None = None
    tenant: str | None = None
    lease: str | None = None
    policy: str | None = None
    priority: int | None = None
    weight: int | None = None

    def variables(self, naming: str = "--{}") -> dict[str, str]:
        """Returns the variables to set.

        naming: how the user has named a value, for sentences.

        Raises:
            UsageError: with the value and what is accepted.
        """
        found: dict[str, str] = {}
        for name, write in _WRITERS.items():
            value = getattr(self, name)
            if value is None:
                continue
            try:
                found[variable_of(name)] = write(value)
            except UsageError as error:
                raise UsageError(f"{naming.format(name)}: {error}") from None
        _check_shares(found)
        return found


def variable_of(name: str) -> str:
    """Returns the variable that stands for a field of `ClientSettings`."""
    return f"RGPU_{name.upper()}"


def configured_server(option: str | None, environment: Mapping[str, str]) -> Endpoint:
    """Returns the server of the option, else of RGPU_SERVER, else 127.0.0.1:7700."""
    text = option or environment.get("RGPU_SERVER")
    if not text:
        return DEFAULT_SERVER
    try:
        return parse_endpoint(text)
    except UsageError as error:
        raise UsageError(f"{'--server' if option else 'RGPU_SERVER'}: {error}") from None


def _text(value: object) -> str:
    """UsageError for what is no text."""
    if not isinstance(value, str):
        raise UsageError(f"{value!r} is not a text, as it is written between quotes")
    return value


def _digits(value: object) -> str:
    """A whole number as text; what is none is refused by the parser."""
    if isinstance(value, (str, bool)):
        return str(value)
    try:
        return str(operator.index(value))  # type: ignore[arg-type]
    except TypeError:
        return repr(value)


def _memory(value: str | int) -> str:
    text = _digits(value)
    size = parse_limit_of_memory(text)
    # Only the server knows of what a percentage is.
    return text.replace(" ", "") if size.ppm else str(size.bytes)


def _fraction(ppm: int) -> str:
    return f"{ppm / PPM:.6f}".rstrip("0").rstrip(".")


def _part(value: str | float) -> str:
    known = isinstance(value, (str, int, float)) and not isinstance(value, bool)
    return plain(value) if known else repr(value)


# Field -> its variable's text; UsageError.
_WRITERS: dict[str, Callable[[Any], str]] = {
    "server": lambda value: str(parse_endpoint(_text(value))),
    "memory": _memory,
    "device": lambda value: str(parse_ordinal(_digits(value))),
    "share": lambda value: _fraction(parse_guarantee(_part(value))),
    "limit": lambda value: _fraction(parse_cap(_part(value))),
    "tenant": lambda value: parse_name(_text(value)),
    "lease": lambda value: parse_name(_text(value)),
    "policy": lambda value: parse_policy(_text(value)).word,
    "priority": lambda value: str(parse_priority(_digits(value))),
    "weight": lambda value: str(parse_weight(_digits(value))),
}


FIELDS = tuple(_WRITERS)


def _check_shares(found: Mapping[str, str]) -> None:
    if "RGPU_SHARE" not in found or "RGPU_LIMIT" not in found:
        return
    share, limit = parse_share(found["RGPU_SHARE"]), parse_share(found["RGPU_LIMIT"])
    if share > limit:
        raise UsageError(
            f"the share {format_share(share)} is above its limit {format_share(limit)}; "
            "raise the limit or ask for a smaller share"
        )
