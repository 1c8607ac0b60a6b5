"""Virtual memory management by ctypes, for tests in process and over the wire."""

from __future__ import annotations

import ctypes
from typing import Protocol

GRANULE = 2 << 20
NONE, READ, READ_WRITE = 0, 1, 3


class Location(ctypes.Structure):
    """CUmemLocation."""

    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class Prop(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("handles", ctypes.c_int),
        ("location", Location),
        ("windows", ctypes.c_void_p),
        ("compression", ctypes.c_ubyte),
        ("rdma", ctypes.c_ubyte),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 4),
    )


class Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = (("location", Location), ("flags", ctypes.c_int))


class Driver(Protocol):
    """A library with the driver's ABI."""

    def __call__(self, call: str, *arguments: object) -> None: ...

    def result(self, call: str, *arguments: object) -> int: ...


def props(**changes: object) -> Prop:
    """Pinned memory of device 0, with changes."""
    prop = Prop(type=1, location=Location(1, 0))
    for name, value in changes.items():
        setattr(prop, name, value)
    return prop


class Maps:
    """The calls; a failed call raises the driver's error."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver

    def reserve(self, size: int, alignment: int = 0, hint: int = 0) -> int:
        place = ctypes.c_uint64()
        sizes = (ctypes.c_size_t(size), ctypes.c_size_t(alignment))
        self.driver("cuMemAddressReserve", ctypes.byref(place), *sizes, _u64(hint), _u64(0))
        return place.value

    def unreserve(self, place: int, size: int) -> None:
        self.driver("cuMemAddressFree", _u64(place), ctypes.c_size_t(size))

    def create(self, size: int, **changes: object) -> int:
        handle = ctypes.c_uint64()
        prop = props(**changes)
        self.driver(
            "cuMemCreate",
            ctypes.byref(handle),
            ctypes.c_size_t(size),
            ctypes.byref(prop),
            _u64(0),
        )
        return handle.value

    def release(self, handle: int) -> None:
        self.driver("cuMemRelease", _u64(handle))

    def map(self, place: int, size: int, handle: int, offset: int = 0) -> None:
        sizes = (ctypes.c_size_t(size), ctypes.c_size_t(offset))
        self.driver("cuMemMap", _u64(place), *sizes, _u64(handle), _u64(0))

    def unmap(self, place: int, size: int) -> None:
        self.driver("cuMemUnmap", _u64(place), ctypes.c_size_t(size))

    def allow(self, place: int, size: int, flags: int = READ_WRITE, device: int = 0) -> None:
        desc = Access(Location(1, device), flags)
        at = (_u64(place), ctypes.c_size_t(size))
        self.driver("cuMemSetAccess", *at, ctypes.byref(desc), ctypes.c_size_t(1))

    def access(self, place: int) -> int:
        flags, location = ctypes.c_uint64(), Location(1, 0)
        at = (ctypes.byref(flags), ctypes.byref(location), _u64(place))
        self.driver("cuMemGetAccess", *at)
        return flags.value

    def retain(self, place: int) -> int:
        handle = ctypes.c_uint64()
        self.driver("cuMemRetainAllocationHandle", ctypes.byref(handle), ctypes.c_void_p(place))
        return handle.value

    def granularity(self, option: int = 0) -> int:
        size, prop = ctypes.c_size_t(), props()
        self.driver("cuMemGetAllocationGranularity", ctypes.byref(size), ctypes.byref(prop), option)
        return size.value

    def export(self, handle: int, kind: int = 1) -> int:
        """Returns a file descriptor of shareable memory."""
        descriptor = ctypes.c_int(-1)
        at = (ctypes.byref(descriptor), _u64(handle), kind)
        self.driver("cuMemExportToShareableHandle", *at, _u64(0))
        return descriptor.value

    def import_(self, descriptor: int, kind: int = 1) -> int:
        handle = ctypes.c_uint64()
        at = (ctypes.byref(handle), ctypes.c_void_p(descriptor), kind)
        self.driver("cuMemImportFromShareableHandle", *at)
        return handle.value

    def mapped(self, size: int) -> tuple[int, int]:
        """Returns (address, handle) of new memory that the device may use."""
        handle, place = self.create(size), self.reserve(size)
        self.map(place, size, handle)
        self.allow(place, size)
        return place, handle

    def props_of(self, handle: int) -> Prop:
        prop = Prop()
        self.driver("cuMemGetAllocationPropertiesFromHandle", ctypes.byref(prop), _u64(handle))
        return prop


def _u64(value: int) -> ctypes.c_uint64:
    return ctypes.c_uint64(value)
