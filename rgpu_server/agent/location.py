"""Where a card lies in its node: NUMA node, host bridge, and the PCI switches above it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rgpu_server.devices import DeviceFacts

SYS = Path("/sys")
_BUS = re.compile(r"(?:0000)?([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")
_MOST_PARTS = 8


def location_of(facts: DeviceFacts) -> tuple[str, ...]:
    """Returns the place of a card, outermost part first; () if nothing is known about it."""
    if facts.kind != "cuda":
        return ()
    bus = _bus_of(facts.uuid)
    place = place_of(bus) if bus else ()
    # The slices of one GPU are closer to each other than to those of another one.
    return (*place, bus.lower()) if place and facts.mig else place


def place_of(bus: str, sys: Path = SYS) -> tuple[str, ...]:
    """Returns the place of the PCI device with this bus id ("0000:3b:00.0")."""
    match = _BUS.fullmatch(bus.lower())
    if match is None:
        return ()
    device = sys / "bus" / "pci" / "devices" / match[1]
    try:
        parts = device.resolve(strict=True).parts
        numa = (device / "numa_node").read_text(encoding="ascii").strip()
    except OSError:
        return ()
    # .../devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0: the host bridge, the ports, the device.
    begin = next((i for i, part in enumerate(parts) if part.startswith("pci")), len(parts))
    above = parts[begin:-1][:_MOST_PARTS]
    return (f"numa{max(int(numa), 0)}" if numa.lstrip("-").isdigit() else "numa0", *above)


def _bus_of(uuid: str) -> str:
    """Asks NVML for the bus id of a card; "" without NVML."""
    try:
        import pynvml
    except ImportError:
        return ""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ""
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        if uuid.startswith("MIG-"):
            handle = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
        bus = pynvml.nvmlDeviceGetPciInfo(handle).busId
        return bus.decode() if isinstance(bus, bytes) else str(bus)
    except pynvml.NVMLError:
        return ""
    finally:
        pynvml.nvmlShutdown()
