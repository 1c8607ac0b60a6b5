"""Names of devices: "1" for device 1 of the server of `--server`, "1@b:7700" for one of another."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from netprobe.candidates import completed
from rgpu_common.endpoints import refuse_secret
from rgpu_common.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

# The same limits as in the driver library.
_MAX_ORDINAL = 1023
_MAX_DIGITS = len(str(_MAX_ORDINAL))
MAX_DEVICES = 8


class DeviceName(NamedTuple):
    """A device of a server. server: its address; "" means the server of `--server`."""

    number: int
    server: str = ""

    def __str__(self) -> str:
        return f"{self.number}@{self.server}" if self.server else str(self.number)


def parse_device(text: str) -> DeviceName:
    """Returns the device that a text names; UsageError if it names none."""
    number, at, server = text.partition("@")
    # A longer word before the "@" is no number: it may be a user and a password.
    refuse_secret(server if at and len(number) <= _MAX_DIGITS else text)
    whole = number.isascii() and number.isdigit() and len(number) < 20
    if not whole or int(number) > _MAX_ORDINAL:
        raise UsageError(
            f"{text!r} is not a device: write its number, as 0, or 0@HOST:PORT for another server's"
        )
    if not at:
        return DeviceName(int(number))
    try:
        return DeviceName(int(number), completed(server))
    except UsageError as error:
        raise UsageError(f"{text!r} is not a device of a server: {error}") from None


def parse_devices(text: str) -> tuple[DeviceName, ...]:
    """Returns the devices of a list such as "0", "0,1" or "0,1@b:7700"; UsageError."""
    devices = tuple(parse_device(entry) for entry in text.split(","))
    if len(set(devices)) < len(devices):
        raise UsageError(f"{text!r} names a device twice")
    if len(devices) > MAX_DEVICES:
        raise UsageError(f"a program has at most {MAX_DEVICES} devices, not {len(devices)}")
    return devices


def servers_of(devices: Iterable[DeviceName]) -> list[str]:
    """Returns the servers of the devices, each once; "" is that of `--server`."""
    return list(dict.fromkeys(device.server for device in devices))
