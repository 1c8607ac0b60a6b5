"""The settings of a client, as the `RGPU_*` variables that the driver library reads."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, NamedTuple

from rgpu_client.device_names import parse_devices
from rgpu_client.sizes import (
    check_share_and_limit,
    parse_cap,
    parse_guarantee,
    parse_limit_of_memory,
    parse_name,
    parse_priority,
    parse_weight,
)
from rgpu_common.clusters import check_run_name
from rgpu_common.endpoints import DEFAULT_PORT, Endpoint, TcpEndpoint, parse_endpoint
from rgpu_common.errors import UsageError
from rgpu_common.sharing import parse_policy
from rgpu_common.units import PPM, parse_share, plain, spell_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# A server that says nothing for so long, to any command, counts as away. One that is busy, on a
# machine with more to do than it can, answers sooner. gRPC gives up a connection after 20 s and
# says only that it is unavailable, so this is less.
SILENT_SECONDS = 15.0
# The remedy for it. Few who read it may read a server's log.
SILENT_REMEDY = (
    ": it is overloaded, or another program listens there; try `rgpu doctor`, and have its "
    "operator look at its log"
)
DEFAULT_SERVER = TcpEndpoint("127.0.0.1", DEFAULT_PORT)
# {ucx} is empty for the control-plane API, because UCX carries sessions only.
_SERVER_HELP = (
    "HOST:PORT, tls:HOST:PORT, {ucx}grpc[s]:HOST:PORT, unix:/PATH or shm:/PATH (default: "
    "RGPU_SERVER, then 127.0.0.1:7700)"
)
SESSION_SERVER_HELP = _SERVER_HELP.format(ucx="ucx:HOST:PORT, ")
API_SERVER_HELP = _SERVER_HELP.format(ucx="")
# An emulated device runs PTX, not machine code. These variables make programs that can choose send
# PTX.
SEND_PTX = {"CUPY_COMPILE_WITH_PTX": "1"}


class ClientSettings(NamedTuple):
    """Settings as users write them. For None, the environment decides, and then the server.

    memory: "2GiB", "8vmem" or "25%". device: the device's number on the server, "0,1" for several,
    or "0,1@b:7700" for those of several servers. share, limit: "0.4", "40%" or "40vcore". lease:
    processes that name the same lease share it. tenant: the tenant whose quota is charged. policy:
    "fixed", "burst", "best-effort" or "none". priority: leases of a higher priority get idle device
    time first. weight: how leases of one priority divide it. name: what the lease is called in
    lists; it need not be unique.
    """

    server: str | None = None
    memory: str | int | None = None
    device: int | str | None = None
    share: str | float | None = None
    limit: str | float | None = None
    tenant: str | None = None
    lease: str | None = None
    policy: str | None = None
    priority: int | None = None
    weight: int | None = None
    name: str | None = None

    def variables(self, naming: str = "--{}") -> dict[str, str]:
        """Returns the variables to set.

        naming: the form in which the user wrote the name of a setting, for error sentences.

        Raises:
            UsageError: a value is not accepted. The sentence names the accepted forms.
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
    """Returns the name of the variable for a field of `ClientSettings`."""
    return f"RGPU_{name.upper()}"


def configured_server(option: str | None, environment: Mapping[str, str]) -> Endpoint:
    """Returns the server of the option, else of RGPU_SERVER, else 127.0.0.1:7700."""
    text = option or environment.get("RGPU_SERVER")
    if not text:
        return DEFAULT_SERVER
    try:
        return parse_endpoint(_text(text))
    except UsageError as error:
        raise UsageError(f"{'--server' if option else 'RGPU_SERVER'}: {error}") from None


def _text(value: object) -> str:
    """Returns the value. UsageError if it is not a text."""
    if not isinstance(value, str):
        raise UsageError(f"{value!r} is not a text, as it is written between quotes")
    return value


def _digits(value: object) -> str:
    """Returns a whole number as text. Other values become a text that the parser refuses."""
    if isinstance(value, (str, bool)):
        return str(value)
    try:
        return str(operator.index(value))  # type: ignore[arg-type]
    except TypeError:
        return repr(value)


def _memory(value: str | int) -> str:
    text = _digits(value)
    size = parse_limit_of_memory(text)
    # A percentage stays one, because only the server knows the device's memory.
    return text.replace(" ", "") if size.ppm else spell_bytes(size.bytes)


def _fraction(ppm: int) -> str:
    return f"{ppm / PPM:.6f}".rstrip("0").rstrip(".")


def _part(value: str | float) -> str:
    known = isinstance(value, (str, int, float)) and not isinstance(value, bool)
    return plain(value) if known else repr(value)


# Field -> the function that writes its variable's text, or raises UsageError.
_WRITERS: dict[str, Callable[[Any], str]] = {
    "server": lambda value: str(parse_endpoint(_text(value))),
    "memory": _memory,
    "device": lambda value: ",".join(map(str, parse_devices(_digits(value)))),
    "share": lambda value: _fraction(parse_guarantee(_part(value))),
    "limit": lambda value: _fraction(parse_cap(_part(value))),
    "tenant": lambda value: parse_name(_text(value)),
    "lease": lambda value: parse_name(_text(value)),
    "policy": lambda value: parse_policy(_text(value)).word,
    "priority": lambda value: str(parse_priority(_digits(value))),
    "weight": lambda value: str(parse_weight(_digits(value))),
    "name": lambda value: check_run_name(_text(value)),
}


FIELDS = tuple(_WRITERS)


def _check_shares(found: Mapping[str, str]) -> None:
    if "RGPU_SHARE" not in found or "RGPU_LIMIT" not in found:
        return
    share, limit = parse_share(found["RGPU_SHARE"]), parse_share(found["RGPU_LIMIT"])
    check_share_and_limit(share, limit)
