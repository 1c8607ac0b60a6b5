"""`cupy.cuda.device`: the device on the node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rgpu_client.cupy import errors
from rgpu_client.cupy._session import session
from rgpu_client.cupy.cuda.memory import figures

if TYPE_CHECKING:
    from typing_extensions import Self

# What all devices have that CUDA 13 serves.
LIMITS = {"MaxThreadsPerBlock": 1024, "WarpSize": 32}


def properties() -> tuple[str, int, int, int]:
    """Returns name, compute capability in two numbers and multiprocessors. Waits."""
    name, major, minor, processors = session().issuer.ask("device")
    return str(name), int(major), int(minor), int(processors)


class Device:
    """The device on the node. A session has one."""

    def __init__(self, device: Any = None) -> None:
        number = 0 if device is None else int(getattr(device, "id", device))
        if number != 0:
            raise errors.CUDARuntimeError(
                "cudaErrorInvalidDevice: a session has one device, whose number is 0"
            )
        self.id = number

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __int__(self) -> int:
        return self.id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<CUDA Device {self.id}>"

    def use(self) -> None:
        """Is in use already."""

    def synchronize(self) -> None:
        """Waits until the node has done everything that was issued."""
        session().issuer.sync()

    @property
    def compute_capability(self) -> str:
        """The compute capability of the node's device, as "90". Waits."""
        _, major, minor, _ = properties()
        return f"{major}{minor}"

    @property
    def attributes(self) -> dict[str, int]:
        """The attributes that a program can use here. Waits."""
        _, major, minor, processors = properties()
        return {
            "ComputeCapabilityMajor": major, "ComputeCapabilityMinor": minor,
            "MultiProcessorCount": processors, **LIMITS,
        }  # fmt: skip

    @property
    def mem_info(self) -> tuple[int, int]:
        """Free and total bytes, as the lease allows them."""
        used, _, most = figures()
        return max(0, most - used), most
