"""What OBSERVE asks for: one lease, its device and its processes, as its tenant may see them."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from rgpu_common import release
from rgpu_common.wire.observe import Observed, ObservedProcess
from rgpu_server.core.model import PPM, Code, Refusal, Wish
from rgpu_server.devices import synthetic_bus_id
from rgpu_server.driver_probe import DriverFacts, ask_driver, driver_facts
from rgpu_server.observe.sensors import Sensors
from rgpu_server.workers.binary import emulated_library

if TYPE_CHECKING:
    from collections.abc import Callable

    from rgpu_common.wire.observe import Observe
    from rgpu_server.core.lease import Lease
    from rgpu_server.core.model import Device, LeaseKey
    from rgpu_server.devices import DeviceFacts, Inventory
    from rgpu_server.observe.recorder import Recorder
    from rgpu_server.observe.snapshot import Observer

# A client waits for five seconds. Without the driver's facts it gets the rest.
_DRIVER_SECONDS = 3.0


class Onlooking:
    """Changes nothing: a question makes no lease and needs no memory of a device.

    lease_of: returns the lease of a key, active or draining.
    """

    def __init__(
        self,
        lease_of: Callable[[LeaseKey], Lease | None],
        observer: Observer,
        recorder: Recorder,
        inventory: Inventory,
    ) -> None:
        self._lease_of = lease_of
        self._observer = observer
        self._recorder = recorder
        self._inventory = inventory
        of_driver = {n: one.uuid for n, one in inventory.facts.items() if one.kind == "cuda"}
        self._sensors = Sensors(of_driver)
        self._thread = ThreadPoolExecutor(1, "driver")
        self._emulated: asyncio.Future[DriverFacts] | None = None

    async def look(self, key: LeaseKey, question: Observe) -> Observed | Refusal:
        """Returns what the lease of `key` has and uses, or would have."""
        device = self._device(self._lease_of(key), question)
        if isinstance(device, Refusal):
            return device
        facts = self._inventory.facts[device.ordinal]
        readings = await self._sensors.read()
        driver = await self._driver(facts)
        # The lease as it is after the waits. It may have ended meanwhile.
        lease = self._lease_of(key)
        if lease is not None and lease.device == device.ordinal:
            seen = self._of_lease(lease)
        else:
            seen = Observed(memory_limit_bytes=_would_have(question, device))
        return seen._replace(
            release=release(),
            driver=f"rgpu {release()}" if facts.kind == "emulated" else readings.driver,
            cuda_version=driver.cuda_version,
            tenant=key.tenant,
            device=device.ordinal,
            name=facts.name,
            uuid=facts.uuid,
            pci_bus_id=synthetic_bus_id(facts.uuid),
            mig=facts.mig,
            compute_major=driver.compute_major,
            compute_minor=driver.compute_minor,
            clock_ns=time.monotonic_ns(),
            readings=readings.by_device.get(device.ordinal, ()),
        )

    def _of_lease(self, lease: Lease) -> Observed:
        return Observed(
            lease_id=lease.id,
            memory_limit_bytes=lease.quota.memory_bytes,
            memory_used_bytes=self._observer.used_bytes(lease.id),
            share_request_ppm=lease.quota.share_request_ppm,
            share_limit_ppm=lease.quota.share_limit_ppm or PPM,
            share_ppm=self._share_ppm(lease),
            processes=self._processes(lease),
        )

    def close(self) -> None:
        """Ends the threads, without waiting for a library that hangs."""
        self._sensors.close()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _device(self, lease: Lease | None, question: Observe) -> Device | Refusal:
        devices = self._inventory.devices
        wanted = lease.device if lease is not None else max(question.device, 0)
        found = next((one for one in devices if one.ordinal == wanted), None)
        if found is None:
            sentence = f"this server has no device {wanted}; `rgpu devices` lists those it has"
            return Refusal(Code.NO_SUCH_DEVICE, sentence)
        return found

    def _share_ppm(self, lease: Lease) -> int:
        if self._recorder.enforced:
            return min(self._observer.time_used(lease.id).share_1s_ppm, PPM)
        return self._recorder.rates(lease.id).device_ppm

    def _processes(self, lease: Lease) -> tuple[ObservedProcess, ...]:
        """Returns one row for each process. A process may have several sessions."""
        rows: dict[int, ObservedProcess] = {}
        for pid, program, counters in self._observer.processes(lease.id):
            other = rows.get(pid, ObservedProcess(pid))
            rows[pid] = ObservedProcess(
                pid,
                other.memory_bytes + counters.used_bytes,
                other.device_ns + counters.busy_ns,
                other.program or program,
            )
        return tuple(rows[pid] for pid in sorted(rows))

    async def _driver(self, facts: DeviceFacts) -> DriverFacts:
        """Returns what the driver library says. The emulated device's is asked once, when somebody
        wants to know: it says the same of each device.
        """
        if facts.driver is not None or facts.kind != "emulated":
            return facts.driver or DriverFacts()
        if self._emulated is None:
            loop = asyncio.get_running_loop()
            self._emulated = loop.run_in_executor(self._thread, _ask_emulated)
        await asyncio.wait([self._emulated], timeout=_DRIVER_SECONDS)
        return self._emulated.result() if self._emulated.done() else DriverFacts()


def _would_have(question: Observe, device: Device) -> int:
    """Returns the memory limit that a lease would have."""
    wish = Wish(memory_bytes=question.memory_bytes, memory_ppm=question.memory_ppm)
    return min(wish.memory_on(device) or device.default_memory_bytes, device.memory_bytes)


def _ask_emulated() -> DriverFacts:
    try:
        return driver_facts(ask_driver(emulated_library(), "0"))
    except OSError:
        return DriverFacts()
