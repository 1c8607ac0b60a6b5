"""Which devices a server offers when nobody names any: the GPUs of its machine, else the emulated
device. And which `cuda` stands for: the GPUs, or an error.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from msgspec import Struct

from rgpu_common.errors import DeviceError, MissingPartError
from rgpu_common.installing import install_words
from rgpu_server.config_kinds import MAX_DEVICES
from rgpu_server.driver_probe import ask_driver
from rgpu_server.slices import Gpu, device_words, look_at_gpus
from rgpu_server.workers.binary import cuda_library

MOST_GPUS = MAX_DEVICES
# One entry for each GPU that NVIDIA's kernel module has found.
_KERNEL_LIST = Path("/proc/driver/nvidia/gpus")
_INSTALL = install_words("server,emu")


class Machine(Struct, frozen=True):
    """What a look at the machine found.

    usable: GPUs that NVIDIA's driver library can use.  reason: why there are none, as a sentence's
    end.  seen: GPUs that the machine has, whether or not they can be used.  gpus: those that
    NVIDIA's management library lists.
    """

    usable: int
    reason: str
    seen: int
    has_compiler: bool
    gpus: tuple[Gpu, ...] = ()


class Chosen(Struct, frozen=True):
    """devices: as `--device` takes them.  why: a sentence for the log."""

    devices: tuple[str, ...]
    why: str


def choose_devices(machine: Machine) -> Chosen:
    """Returns what is served.

    Raises:
        DeviceError: there are GPUs and none can be used: an emulated device in their place would
            surprise whoever waits for them.
        MissingPartError: there is no GPU, and nothing that the emulated device could compile with.
    """
    gpus = _gpus(machine)
    if gpus is not None:
        return Chosen(gpus.devices, f"no device is named, so what is served is {gpus.why}")
    if not machine.has_compiler:
        raise MissingPartError(
            f"this machine has no GPU ({machine.reason}), and the emulated device, which would "
            f"take its place, needs llvmlite: {_INSTALL}"
        )
    why = f"no device is named and there is no GPU ({machine.reason})"
    return Chosen(("emulated",), f"{why}, so what is served is an emulated device")


def choose_gpus(machine: Machine) -> Chosen:
    """Returns the GPUs and MIG slices. Never an emulated device: somebody asked for GPUs.

    Raises:
        DeviceError: there is none that can be used.
    """
    gpus = _gpus(machine)
    if gpus is not None:
        return Chosen(gpus.devices, f"`cuda` is {gpus.why}")
    raise DeviceError(
        f"`cuda` asks for the GPUs of this machine, and there is none ({machine.reason}); see "
        "whether `nvidia-smi` works here, in a container whether it has NVIDIA's runtime, or name "
        "an emulated device with --device emulated"
    )


def _gpus(machine: Machine) -> Chosen | None:
    """Returns the GPUs and MIG slices, and what they are; None: the machine has none.

    Raises:
        DeviceError: it has some, and none can be used.
    """
    carved = any(gpu.carved for gpu in machine.gpus)
    words = device_words(machine.gpus) if carved else ()
    if machine.usable and words:
        served = words[:MOST_GPUS]
        count = f"{len(served)}" + (f" of {len(words)}" if len(words) > len(served) else "")
        return Chosen(served, f"the {count} GPUs and MIG slices here")
    if machine.usable:
        devices = tuple(f"cuda:{number}" for number in range(min(machine.usable, MOST_GPUS)))
        return Chosen(devices, f"the {_count(len(devices))} here")
    if machine.seen and carved and not words:
        raise DeviceError(
            "this machine's GPUs are in MIG mode, and none has a slice; make slices with "
            "`nvidia-smi mig`, or serve an emulated device with --device emulated"
        )
    if machine.seen:
        raise DeviceError(
            f"this machine has {_count(machine.seen)}, and NVIDIA's driver cannot use "
            f"{'it' if machine.seen == 1 else 'them'}: {machine.reason}; see whether `nvidia-smi` "
            "works, or serve an emulated device with --device emulated"
        )
    return None


def look_for_devices() -> Chosen:
    """Looks at this machine; errors as `choose_devices`."""
    return choose_devices(_machine())


def look_for_gpus() -> Chosen:
    """Looks at this machine; errors as `choose_gpus`, and as `cuda_library`."""
    cuda_library()
    return choose_gpus(_machine())


def _machine() -> Machine:
    usable, reason = _usable_gpus()
    gpus = look_at_gpus()
    seen = max(usable, _listed_gpus(), len(gpus))
    return Machine(usable, reason, seen, has_compiler(), gpus)


def has_compiler() -> bool:
    """True if what compiles for the emulated device is installed."""
    try:
        return find_spec("llvmlite") is not None
    except ValueError:
        return False


def check_compiler() -> None:
    """MissingPartError unless kernels can be compiled for an emulated device."""
    if not has_compiler():
        raise MissingPartError(f"an emulated device needs llvmlite: {_INSTALL}")


def _usable_gpus() -> tuple[int, str]:
    """How many GPUs NVIDIA's driver library offers, and why there are none."""
    try:
        library = cuda_library()
    except DeviceError:
        return 0, "NVIDIA's driver library libcuda.so.1 was not found"
    answer = ask_driver(library)
    if answer is None:
        return 0, f"{library} does not answer"
    if "error" in answer:
        return 0, str(answer["error"])
    count = int(answer["count"])
    return count, "" if count else f"{library} finds none"


def _listed_gpus() -> int:
    try:
        return sum(1 for _ in _KERNEL_LIST.iterdir())
    except OSError:
        return 0


def _count(gpus: int) -> str:
    return "1 GPU" if gpus == 1 else f"{gpus} GPUs"
