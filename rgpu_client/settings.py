"""What a client asks a server for, as the `RGPU_*` variables that the driver library reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rgpu_common.endpoints import DEFAULT_PORT, Endpoint, TcpEndpoint, parse_endpoint
from rgpu_common.errors import UsageError
from rgpu_common.sharing import MAX_PRIORITY, MAX_WEIGHT, parse_policy
from rgpu_common.units import PPM, format_share, parse_memory, parse_share, plain

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_SERVER = TcpEndpoint("127.0.0.1", DEFAULT_PORT)
MAX_NAME_BYTES = 256
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

    def variables(self) -> dict[str, str]:
        """Returns the variables to set.

        Raises:
            UsageError: with the value and what is accepted.
        """
        found: dict[str, str] = {}
        if self.server is not None:
            found["RGPU_SERVER"] = str(parse_endpoint(self.server))
        if self.memory is not None:
            found["RGPU_MEMORY"] = _memory(str(self.memory))
        if self.device is not None:
            if not isinstance(self.device, int) or self.device < 0:
                raise UsageError(f"{self.device!r} is not a device: they are numbered from 0")
            found["RGPU_DEVICE"] = str(self.device)
        for name, value in (("SHARE", self.share), ("LIMIT", self.limit)):
            if value is not None:
                found[f"RGPU_{name}"] = _fraction(name.lower(), plain(value))
        for name, text in (("TENANT", self.tenant), ("LEASE", self.lease)):
            if text is not None:
                found[f"RGPU_{name}"] = _name(name.lower(), text)
        if self.policy is not None:
            found["RGPU_POLICY"] = parse_policy(self.policy).word
        for name, number, low, high in (
            ("PRIORITY", self.priority, 0, MAX_PRIORITY),
            ("WEIGHT", self.weight, 1, MAX_WEIGHT),
        ):
            if number is not None:
                found[f"RGPU_{name}"] = str(_within(name.lower(), number, low, high))
        _check_shares(found)
        return found


def configured_server(option: str | None, environment: Mapping[str, str]) -> Endpoint:
    """Returns the server of the option, else of RGPU_SERVER, else 127.0.0.1:7700."""
    text = option or environment.get("RGPU_SERVER")
    return parse_endpoint(text) if text else DEFAULT_SERVER


def _positive(name: str, number: int) -> int:
    if number <= 0:
        raise UsageError(f"{name} 0 makes no sense: leave it out for the server's default")
    return number


def _memory(text: str) -> str:
    size = parse_memory(text)
    if size.ppm:
        # Only the server knows of what.
        return text.replace(" ", "")
    return str(_positive("memory", size.bytes))


def _within(name: str, number: int, low: int, high: int) -> int:
    if not isinstance(number, int) or not low <= number <= high:
        raise UsageError(f"a {name} is a whole number from {low} to {high}, not {number!r}")
    return number


def parse_guarantee(text: str) -> int:
    """Returns a share that is asked for, in ppm; UsageError for none at all."""
    ppm = parse_share(text)
    if not ppm:
        raise UsageError(
            "share 0 makes no sense: leave it out for the server's default, or name "
            "--policy best-effort, which guarantees nothing"
        )
    return ppm


def _fraction(name: str, text: str) -> str:
    share = name == "share"
    ppm = parse_guarantee(text) if share else _positive(name, parse_share(text))
    return f"{ppm / PPM:.6f}".rstrip("0").rstrip(".")


def _check_shares(found: Mapping[str, str]) -> None:
    if "RGPU_SHARE" not in found or "RGPU_LIMIT" not in found:
        return
    share, limit = parse_share(found["RGPU_SHARE"]), parse_share(found["RGPU_LIMIT"])
    if share > limit:
        raise UsageError(
            f"the share {format_share(share)} is above its limit {format_share(limit)}; "
            "raise the limit or ask for a smaller share"
        )


def _name(name: str, text: str) -> str:
    if not text or len(text.encode()) > MAX_NAME_BYTES or not text.isprintable():
        raise UsageError(f"a {name} is 1 to {MAX_NAME_BYTES} printable characters, not {text!r}")
    return text
