"""Turns the devices that the operator asked for into what the server serves."""

from __future__ import annotations

import os
import socket
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rgpu_common.errors import DeviceError
from rgpu_common.units import format_bytes
from rgpu_server.config import ServerConfig, default_memory_bytes, pool_of
from rgpu_server.core.model import Device
from rgpu_server.default_devices import check_compiler
from rgpu_server.driver_probe import ask_driver
from rgpu_server.workers.binary import cuda_library, emulated_library, worker_path
from rgpu_server.workers.groups import open_groups
from rgpu_server.workers.process import WorkerOptions

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rgpu_server.config_kinds import DeviceSpec


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What is told about a device.  kind: "emulated" or "cuda"."""

    kind: str
    name: str
    uuid: str
    memory_bytes: int

    def __str__(self) -> str:
        size = format_bytes(self.memory_bytes)
        return f"emulated device ({size})" if self.kind == "emulated" else f"{self.name} ({size})"


@dataclass(frozen=True, slots=True)
class Served:
    """What the shell knows of a device: its ordinal in the library and the environment it needs."""

    library_ordinal: int
    environment: Mapping[str, str]
    emulated: bool


@dataclass(frozen=True, slots=True)
class Inventory:
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
    devices, served, facts = [], {}, {}
    for ordinal, spec in enumerate(config.devices):
        fact = _facts(spec, ordinal, libraries[spec.kind])
        default = default_memory_bytes(config, fact.memory_bytes)
        pool = pool_of(config, ordinal)
        devices.append(
            Device(ordinal, spec.kind, fact.memory_bytes, default, model=fact.name, pool=pool)
        )
        served[ordinal] = _served(spec, ordinal, config)
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


def _served(spec: DeviceSpec, ordinal: int, config: ServerConfig) -> Served:
    if spec.kind == "cuda":
        return Served(spec.ordinal, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, emulated=False)
    environment = {
        "RGPU_EMU_MEMORY": str(spec.memory_bytes),
        "RGPU_EMU_ORDINAL": str(ordinal),
        "RGPU_EMU_TIMING": config.emulated.timing,
        "RGPU_EMU_LAUNCH_TIMEOUT": str(config.emulated.launch_seconds),
        "RGPU_EMU_THREADS": str(len(os.sched_getaffinity(0))),
    }
    return Served(0, environment, emulated=True)


def _facts(spec: DeviceSpec, ordinal: int, library: Path) -> DeviceFacts:
    if spec.kind == "emulated":
        name = "rgpu emulated device"
        return DeviceFacts("emulated", name, emulated_uuid(ordinal), spec.memory_bytes)
    return _probe(library, spec.ordinal)


def emulated_uuid(ordinal: int) -> str:
    """Returns what cuDeviceGetUuid of the emulated device answers: of this machine and number."""
    digest = 0xCBF29CE484222325
    for byte in f"{socket.gethostname()}/{ordinal}".encode():
        digest = (digest ^ byte) * 0x100000001B3 % (1 << 64)
    return f"GPU-{uuid.UUID(bytes=b'rgpu-emu' + digest.to_bytes(8, 'little'))}"


def _probe(library: Path, ordinal: int) -> DeviceFacts:
    answer = ask_driver(library, str(ordinal))
    if answer is None:
        raise DeviceError(
            f"{library} did not answer; see whether `nvidia-smi` works on this machine"
        )
    if "error" in answer:
        raise DeviceError(f"device cuda:{ordinal}: {answer['error']}")
    return DeviceFacts("cuda", answer["name"], answer["uuid"], answer["memory_bytes"])
