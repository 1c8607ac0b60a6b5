"""Readings of the GPUs by NVIDIA's management library, for the NVML of clients."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from rgpu_common.wire.observe import Reading, ReadingKey
from rgpu_server.management import open_management

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

log = logging.getLogger("rgpu.server")

_AGE_SECONDS = 1.0
# The library may hang with a broken GPU; clients then get the last readings.
_WAIT_SECONDS = 1.0
_MOST = (1 << 64) - 1


class Readings(Struct, frozen=True):
    """driver: the release of the driver. by_device: ordinal -> its readings, by key."""

    driver: str = ""
    by_device: Mapping[int, tuple[Reading, ...]] = field(default_factory=dict)


class Sensors:
    """Reads in a thread, at most once a second and only when somebody asks.

    uuids: ordinal -> UUID of the devices that the library knows; those of NVIDIA's driver.
    """

    def __init__(
        self, uuids: Mapping[int, str], open_library: Callable[[], Any] = open_management
    ) -> None:
        self._uuids = uuids
        self._open = open_library
        self._library: Any = None
        self._thread = ThreadPoolExecutor(1, "sensors")
        self._last = Readings()
        self._read_at: float | None = None
        self._reading: asyncio.Future[Readings] | None = None

    async def read(self) -> Readings:
        """Returns readings that are at most about a second old, or older ones if the library does
        not answer.
        """
        loop = asyncio.get_running_loop()
        if not self._uuids:
            return self._last
        if self._read_at is not None and loop.time() - self._read_at < _AGE_SECONDS:
            return self._last
        if self._reading is None:
            self._reading = loop.run_in_executor(self._thread, self._read)
            self._reading.add_done_callback(self._have_read)
        await asyncio.wait([self._reading], timeout=_WAIT_SECONDS)
        return self._last

    def close(self) -> None:
        """Ends the thread, without waiting for a library that hangs."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _have_read(self, reading: asyncio.Future[Readings]) -> None:
        self._reading = None
        self._read_at = reading.get_loop().time()
        if not reading.cancelled() and reading.exception() is None:
            self._last = reading.result()

    def _read(self) -> Readings:
        self._library = self._library or self._open()
        nvml = self._library
        if nvml is None:
            return Readings()
        try:
            driver = _text(nvml.nvmlSystemGetDriverVersion())
            return Readings(driver, {n: _of(nvml, uuid) for n, uuid in self._uuids.items()})
        except nvml.NVMLError as error:
            log.warning("NVML does not answer, so clients see no readings: %s", error)
            with contextlib.suppress(nvml.NVMLError):
                nvml.nvmlShutdown()
            self._library = None
            return Readings()


def _of(nvml: Any, uuid: str) -> tuple[Reading, ...]:
    try:
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
    except nvml.NVMLError:
        return ()
    found = ((key, _ask(nvml, ask, handle)) for key, ask in _questions(nvml).items())
    return tuple(Reading(key, value) for key, value in found if value is not None)


def _ask(nvml: Any, ask: Callable[[Any], Any], handle: Any) -> int | None:
    """Returns the value; None: the device, or this release of the library, has none."""
    try:
        value = int(ask(handle))
    except (nvml.NVMLError, AttributeError):
        return None
    return value if 0 <= value <= _MOST else None


def _questions(nvml: Any) -> dict[ReadingKey, Callable[[Any], Any]]:
    """Returns, for each reading, the function that asks a handle."""
    key, gpu = ReadingKey, nvml.NVML_TEMPERATURE_GPU

    def clock(number: int) -> Callable[[Any], Any]:
        return lambda one: nvml.nvmlDeviceGetClockInfo(one, number)

    def most(number: int) -> Callable[[Any], Any]:
        return lambda one: nvml.nvmlDeviceGetMaxClockInfo(one, number)

    def limit(number: int) -> Callable[[Any], Any]:
        return lambda one: nvml.nvmlDeviceGetTemperatureThreshold(one, number)

    return {
        key.TEMPERATURE_C: lambda one: nvml.nvmlDeviceGetTemperature(one, gpu),
        key.SHUTDOWN_C: limit(nvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN),
        key.SLOWDOWN_C: limit(nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN),
        key.POWER_MW: lambda one: nvml.nvmlDeviceGetPowerUsage(one),
        key.POWER_LIMIT_MW: lambda one: nvml.nvmlDeviceGetEnforcedPowerLimit(one),
        key.FAN_PERCENT: lambda one: nvml.nvmlDeviceGetFanSpeed(one),
        key.PERFORMANCE_STATE: lambda one: nvml.nvmlDeviceGetPerformanceState(one),
        key.GRAPHICS_MHZ: clock(nvml.NVML_CLOCK_GRAPHICS),
        key.SM_MHZ: clock(nvml.NVML_CLOCK_SM),
        key.MEMORY_MHZ: clock(nvml.NVML_CLOCK_MEM),
        key.VIDEO_MHZ: clock(nvml.NVML_CLOCK_VIDEO),
        key.MOST_GRAPHICS_MHZ: most(nvml.NVML_CLOCK_GRAPHICS),
        key.MOST_SM_MHZ: most(nvml.NVML_CLOCK_SM),
        key.MOST_MEMORY_MHZ: most(nvml.NVML_CLOCK_MEM),
        key.MOST_VIDEO_MHZ: most(nvml.NVML_CLOCK_VIDEO),
        key.CLOCK_REASONS: lambda one: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(one),
        key.PERSISTENCE: lambda one: nvml.nvmlDeviceGetPersistenceMode(one),
        key.ECC: lambda one: nvml.nvmlDeviceGetEccMode(one)[0],
        key.PCIE_GENERATION: lambda one: nvml.nvmlDeviceGetCurrPcieLinkGeneration(one),
        key.PCIE_WIDTH: lambda one: nvml.nvmlDeviceGetCurrPcieLinkWidth(one),
        key.MOST_PCIE_GENERATION: lambda one: nvml.nvmlDeviceGetMaxPcieLinkGeneration(one),
        key.MOST_PCIE_WIDTH: lambda one: nvml.nvmlDeviceGetMaxPcieLinkWidth(one),
        key.CORES: lambda one: nvml.nvmlDeviceGetNumGpuCores(one),
        key.MEMORY_BUS_BITS: lambda one: nvml.nvmlDeviceGetMemoryBusWidth(one),
    }


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
