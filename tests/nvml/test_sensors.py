"""Readings of the node: which reach a client, how often the library is asked, and its failures."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from rgpu_common.wire.observe import ReadingKey
from rgpu_server.observe.sensors import Sensors

UUID = "GPU-11111111-1111-1111-1111-111111111111"


class NvmlError(Exception):
    """As pynvml.NVMLError."""


class Library:
    """A management library with one GPU that has a power and a temperature, and nothing else."""

    NVMLError = NvmlError
    NVML_TEMPERATURE_GPU = NVML_TEMPERATURE_THRESHOLD_SHUTDOWN = 0
    NVML_TEMPERATURE_THRESHOLD_SLOWDOWN = 1
    NVML_CLOCK_GRAPHICS, NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_CLOCK_VIDEO = range(4)

    def __init__(self) -> None:
        self.opened = self.asked = 0
        self.broken = False
        self.held = threading.Event()
        self.held.set()

    def open(self) -> Any:
        self.opened += 1
        return self

    def nvmlShutdown(self) -> None:
        pass

    def nvmlSystemGetDriverVersion(self) -> str:
        self.asked += 1
        self.held.wait()
        if self.broken:
            raise NvmlError
        return "580.65.06"

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid != UUID:
            raise NvmlError
        return uuid

    def nvmlDeviceGetPowerUsage(self, _handle: str) -> int:
        return 650_400

    def nvmlDeviceGetTemperature(self, _handle: str, _sensor: int) -> int:
        return 61

    def nvmlDeviceGetEccMode(self, _handle: str) -> list[int]:
        return [1, 1]

    def nvmlDeviceGetFanSpeed(self, _handle: str) -> int:
        raise NvmlError  # a card without a fan


@pytest.mark.asyncio
async def test_gives_what_the_device_has() -> None:
    library = Library()
    sensors = Sensors({0: UUID, 1: "GPU-other"}, library.open)
    found = await sensors.read()
    assert found.driver == "580.65.06"
    assert dict(found.by_device[0]) == {
        ReadingKey.TEMPERATURE_C: 61, ReadingKey.POWER_MW: 650_400, ReadingKey.ECC: 1,
    }  # fmt: skip
    assert found.by_device[1] == ()
    sensors.close()


@pytest.mark.asyncio
async def test_asks_once_for_many_clients() -> None:
    library = Library()
    sensors = Sensors({0: UUID}, library.open)
    await asyncio.gather(*(sensors.read() for _ in range(20)))
    assert (library.opened, library.asked) == (1, 1)
    sensors.close()


@pytest.mark.asyncio
async def test_a_library_that_hangs_does_not_hold_up_the_server() -> None:
    library = Library()
    library.held.clear()
    sensors = Sensors({0: UUID}, library.open)
    assert (await sensors.read()).driver == ""
    library.held.set()
    sensors.close()


@pytest.mark.asyncio
async def test_a_library_that_fails_gives_nothing() -> None:
    library = Library()
    library.broken = True
    sensors = Sensors({0: UUID}, library.open)
    found = await sensors.read()
    assert (found.driver, found.by_device) == ("", {})
    sensors.close()


@pytest.mark.asyncio
async def test_without_gpus_the_library_is_not_opened() -> None:
    library = Library()
    assert (await Sensors({}, library.open).read()).driver == ""
    assert (await Sensors({0: UUID}, lambda: None).read()).driver == ""
    assert library.opened == 0


def test_rgpus_own_library_is_not_the_nodes() -> None:
    """The server would ask itself."""
    import ctypes

    import rgpu_client

    path = rgpu_client.library_path() / "libnvidia-ml.so.1"
    assert hasattr(ctypes.CDLL(str(path)), "rgpu_shim_version")
