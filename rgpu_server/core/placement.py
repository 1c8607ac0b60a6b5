"""The devices of a server, by number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_server.core.model import Code, Device, RefusedError

if TYPE_CHECKING:
    from collections.abc import Sequence


def find(devices: Sequence[Device], ordinal: int) -> Device:
    """Returns the device with this ordinal; RefusedError if there is none."""
    for device in devices:
        if device.ordinal == ordinal:
            return device
    last = len(devices) - 1
    offered = "only device 0" if last == 0 else f"devices 0 to {last}"
    raise RefusedError(
        Code.NO_SUCH_DEVICE, f"there is no device {ordinal}: this server offers {offered}"
    )
