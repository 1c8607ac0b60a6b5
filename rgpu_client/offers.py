"""`rgpu_client.devices()`: the devices of a server as Python objects."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec import Struct

from rgpu_client.argument_words import in_words_of_connect
from rgpu_client.settings import configured_server
from rgpu_client.threads import in_thread
from rgpu_common.errors import RgpuError
from rgpu_common.units import PPM

if TYPE_CHECKING:
    from rgpu_common.v1 import device_pb2


class Device(Struct, frozen=True):
    """A device that a server offers.

    Attributes:
        number: its number on the server, for the argument `device` of `connect` and `claim`.
        name: its name.
        kind: "cuda" for a GPU, "emulated" for a device that the server emulates on its processors.
        uuid: its UUID.
        memory_bytes: its memory.
        free_bytes: the memory that no lease has.
        used_bytes: the memory that programs use now.
        free_share: the part of its time that no lease is guaranteed, 0 to 1.
        leases: how many leases are on it.
        sessions: how many programs use it.
        pool: the pool to which it belongs.
        mig: the profile of a MIG slice, as "1g.10gb"; "" for a whole GPU.
    """

    number: int
    name: str
    kind: str
    uuid: str
    memory_bytes: int
    free_bytes: int
    used_bytes: int
    free_share: float
    leases: int
    sessions: int
    pool: str
    mig: str


def devices(server: str | None = None) -> list[Device]:
    """Returns the devices that a server offers.

    Args:
        server: the address, as "gpu-node:7700". None: RGPU_SERVER, then 127.0.0.1:7700.

    Raises:
        UsageError: the address is not accepted.
        ServerError: the server does not answer, or does not believe the access token.
    """
    from netprobe.candidates import is_explicit
    from rgpu_client.control import ControlClient

    try:
        where = configured_server(server, os.environ)
        explicit = is_explicit(server or os.environ.get("RGPU_SERVER", ""))
        with ControlClient(where, explicit=explicit) as client:
            answer = client.devices()
    except RgpuError as error:
        raise in_words_of_connect(error) from None
    return [_device(one) for one in answer.devices]


async def devices_async(server: str | None = None) -> list[Device]:
    """As `devices`, for coroutines."""
    return await in_thread(lambda stop: devices(server))


def _device(one: device_pb2.Device) -> Device:
    from rgpu_common.v1 import device_pb2

    emulated = one.kind == device_pb2.DEVICE_KIND_EMULATED
    return Device(
        number=one.ordinal,
        name=one.name,
        kind="emulated" if emulated else "cuda",
        uuid=one.uuid,
        memory_bytes=one.memory_bytes,
        free_bytes=one.memory_bytes - one.leased_memory_bytes,
        used_bytes=one.used_memory_bytes,
        free_share=max(0.0, 1 - one.leased_share_ppm / PPM),
        leases=one.leases,
        sessions=one.sessions,
        pool=one.pool,
        mig=one.mig,
    )
