"""Turns the devices that the operator asked for into what the server serves."""

from __future__ import annotations

import os
import socket
import uuid
from typing import TYPE_CHECKING

from msgspec import Struct

from rgpu_common.errors import DeviceError
from rgpu_common.mig import bare_name, full_name, part_of
from rgpu_common.units import PPM, format_bytes
from rgpu_server.config import ServerConfig, default_memory_bytes, pool_of
from rgpu_server.core.model import Device
from rgpu_server.default_devices import check_compiler
from rgpu_server.driver_probe import DriverFacts, ask_driver, driver_facts
from rgpu_server.slices import Hardware, hardware_of, look_at_gpus
from rgpu_server.workers.array_workers import array_workers
from rgpu_server.workers.binary import cuda_library, emulated_library, worker_path
from rgpu_server.workers.groups import open_groups
from rgpu_server.workers.process import WorkerOptions

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rgpu_server.config_kinds import DeviceSpec


class DeviceFacts(Struct, frozen=True):
    """What is told about a device.  kind: "emulated" or "cuda".  mig: the profile of a MIG slice;
    "" for a GPU.  part_ppm: what part of a GPU it is.  driver: what the driver library says of it;
    None: it has not been asked.
    """

    kind: str
    name: str
    uuid: str
    memory_bytes: int
    mig: str = ""
    part_ppm: int = PPM
    driver: DriverFacts | None = None

    def __str__(self) -> str:
        size = format_bytes(self.memory_bytes)
        name = full_name("emulated device", self.mig) if self.kind == "emulated" else self.name
        return f"{name} ({size})"


class Served(Struct, frozen=True):
    """What the shell knows of a device: its ordinal in the library and the environment it needs."""

    library_ordinal: int
    environment: Mapping[str, str]
    emulated: bool


class Inventory(Struct, frozen=True):
    """All that is served: for the node, for the shell, for the worker pools, for reports."""

    devices: tuple[Device, ...]
    served: Mapping[int, Served]
    options: Mapping[str, WorkerOptions]
    facts: Mapping[int, DeviceFacts]


def take_inventory(config: ServerConfig) -> Inventory:
    """Finds libraries and devices.

    Raises:
        DeviceError: a device is not there.
        MissingPartError: a compiled part, or what compiles for emulated devices, is not installed.
    """
    if any(spec.kind == "emulated" for spec in config.devices):
        check_compiler()
    libraries = {spec.kind: _library(spec.kind) for spec in config.devices}
    program = [str(worker_path())]
    groups = open_groups(config.cgroup)
    options = {}
    for kind, library in libraries.items():
        emulated = kind == "emulated"
        options[kind] = WorkerOptions(
            program, library, config.sandbox, config.log_bytes, groups, emulated
        )
    options.update(array_workers(options))
    gpus = look_at_gpus() if "cuda" in libraries else ()
    devices, served, facts = [], {}, {}
    for ordinal, spec in enumerate(config.devices):
        hardware = hardware_of(gpus, spec.ordinal, spec.uuid) if spec.kind == "cuda" else None
        if hardware is None:
            fact = _emulated(spec, ordinal)
            served[ordinal] = _served_emulated(spec, ordinal, config)
        else:
            fact = _probe(libraries[spec.kind], hardware)
            served[ordinal] = _served(hardware)
        default = default_memory_bytes(config, fact.memory_bytes)
        pool = pool_of(config, ordinal)
        devices.append(
            Device(ordinal, spec.kind, fact.memory_bytes, default, model=fact.name, pool=pool)
        )
        facts[ordinal] = fact
    return Inventory(tuple(devices), served, options, facts)


def strange_models(config: ServerConfig, inventory: Inventory) -> list[str]:
    """Returns a sentence for each quota of a model that no device here has.

    It is no error: one configuration may serve several nodes.
    """
    there = sorted({device.model for device in inventory.devices})
    return [
        f"tenants.{name}.quota: no device of this server is a {model!r}; its models are "
        f"{', '.join(map(repr, there))}"
        for name, tenant in config.tenants.items()
        for model in tenant.quota or ()
        if model not in there
    ]


def _library(kind: str) -> Path:
    return emulated_library() if kind == "emulated" else cuda_library()


def _served(hardware: Hardware) -> Served:
    # Streams that share a connection wait for each other's halts (executor/halts.h).
    environment = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_DEVICE_MAX_CONNECTIONS": "32"}
    if hardware.visible:
        environment["CUDA_VISIBLE_DEVICES"] = hardware.visible
    return Served(hardware.ordinal, environment, emulated=False)


def _served_emulated(spec: DeviceSpec, ordinal: int, config: ServerConfig) -> Served:
    environment = {
        "RGPU_EMU_MEMORY": str(spec.memory_bytes),
        "RGPU_EMU_ORDINAL": str(ordinal),
        "RGPU_EMU_TIMING": config.emulated.timing,
        "RGPU_EMU_LAUNCH_TIMEOUT": str(config.emulated.launch_seconds),
        "RGPU_EMU_THREADS": str(len(os.sched_getaffinity(0))),
    }
    return Served(0, environment, emulated=True)


def _emulated(spec: DeviceSpec, ordinal: int) -> DeviceFacts:
    name, uuid_of = full_name("rgpu emulated device", spec.mig), emulated_uuid(ordinal)
    part = part_of(spec.mig)
    return DeviceFacts("emulated", name, uuid_of, spec.memory_bytes, spec.mig, part)


def synthetic_bus_id(of: str) -> str:
    """Returns the PCI address that programs see of the device with this UUID. Workers make it
    (executor/device_table.cc), because the true ones of two servers may be the same.
    """
    number = uuid.UUID(of.partition("-")[2])
    digest = _digest(socket.gethostname().encode() + number.bytes)
    return f"{0x1000 + (digest >> 40) % 0xE000:04x}:{1 + (digest >> 8) % 255:02x}:00.0"


def _digest(data: bytes) -> int:
    """Returns the hash FNV-1a of 64 bits."""
    digest = 0xCBF29CE484222325
    for byte in data:
        digest = (digest ^ byte) * 0x100000001B3 % (1 << 64)
    return digest


def emulated_uuid(ordinal: int) -> str:
    """Returns what cuDeviceGetUuid of the emulated device answers: of this machine and number."""
    digest = _digest(f"{socket.gethostname()}/{ordinal}".encode())
    return f"GPU-{uuid.UUID(bytes=b'rgpu-emu' + digest.to_bytes(8, 'little'))}"


def _probe(library: Path, hardware: Hardware) -> DeviceFacts:
    answer = ask_driver(library, str(hardware.ordinal), visible=hardware.visible)
    if answer is None:
        raise DeviceError(
            f"{library} did not answer; see whether `nvidia-smi` works on this machine"
        )
    if "error" in answer:
        word = hardware.visible or str(hardware.ordinal)
        raise DeviceError(f"device cuda:{word}: {answer['error']}")
    name, memory, one = answer["name"], answer["memory_bytes"], hardware.slice
    driver = driver_facts(answer)
    if one is None:
        return DeviceFacts("cuda", name, answer["uuid"], memory, driver=driver)
    name = full_name(bare_name(name), one.profile)
    return DeviceFacts("cuda", name, one.uuid, memory, one.profile, one.part_ppm, driver)
