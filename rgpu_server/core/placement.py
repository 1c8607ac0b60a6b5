"""On which device a lease goes.  Memory is space-shared: the sum of the leases never passes the
device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_common.units import format_bytes
from rgpu_server.core.model import Code, Device, RefusedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def place(
    devices: Sequence[Device],
    leased_bytes: Mapping[int, int],
    ordinal: int | None,
    memory_bytes: int,
) -> Device:
    """Returns the device for a lease of `memory_bytes` (0: each device's default).

    With no `ordinal` it is the device with the most free memory, the lowest ordinal among equals.

    Raises:
        RefusedError: there is no such device, or too little memory; the sentence says by how much.
    """
    if ordinal is not None:
        return _check(find(devices, ordinal), leased_bytes, memory_bytes)
    best = max(devices, key=lambda d: (free_bytes(d, leased_bytes), -d.ordinal))
    return _check(best, leased_bytes, memory_bytes)


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


def free_bytes(device: Device, leased_bytes: Mapping[int, int]) -> int:
    """Returns the memory of `device` that no lease holds."""
    return device.memory_bytes - leased_bytes.get(device.ordinal, 0)


def wanted_bytes(device: Device, memory_bytes: int) -> int:
    """Returns `memory_bytes`, or the device's default for 0."""
    return memory_bytes or device.default_memory_bytes


def _check(device: Device, leased_bytes: Mapping[int, int], memory_bytes: int) -> Device:
    wanted = wanted_bytes(device, memory_bytes)
    free = free_bytes(device, leased_bytes)
    if wanted <= free:
        return device
    raise RefusedError(
        Code.NO_MEMORY,
        f"a lease of {format_bytes(wanted)} does not fit on device {device.ordinal}: "
        f"{format_bytes(free)} of its {format_bytes(device.memory_bytes)} are free, "
        f"{format_bytes(wanted - free)} too little; ask for less memory or wait until a lease ends",
    )
