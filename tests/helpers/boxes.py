"""Arrays and copies of rows and slices by ctypes, for tests in process and over the wire."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

from helpers.maps import Driver, Location

HOST, DEVICE, ARRAY, UNIFIED = 1, 2, 3, 4
LAYERED, SURFACE, CUBEMAP, GATHER, SPARSE, DEFERRED = 1, 2, 4, 8, 0x40, 0x80
U8, U16, U32, F16, F32, NV12, BC1 = 1, 2, 3, 0x10, 0x20, 0xB0, 0x91
BYTES = {U8: 1, U16: 2, U32: 4, F16: 2, F32: 4}


class Shape(ctypes.Structure):
    """CUDA_ARRAY3D_DESCRIPTOR."""

    _fields_ = (
        ("width", c_size_t),
        ("height", c_size_t),
        ("depth", c_size_t),
        ("format", c_uint),
        ("channels", c_uint),
        ("flags", c_uint),
    )


class Flat(ctypes.Structure):
    """CUDA_ARRAY_DESCRIPTOR."""

    _fields_ = (
        ("width", c_size_t),
        ("height", c_size_t),
        ("format", c_uint),
        ("channels", c_uint),
    )


def _side(name: str, context: bool) -> list[tuple[str, Any]]:
    return [
        (name + "x", c_size_t),
        (name + "y", c_size_t),
        (name + "z", c_size_t),
        (name + "level", c_size_t),
        (name + "type", c_uint),
        (name + "host", c_void_p),
        (name + "device", c_uint64),
        (name + "array", c_void_p),
        (name + ("context" if context else "reserved"), c_void_p),
        (name + "pitch", c_size_t),
        (name + "rows", c_size_t),
    ]


_SIZE = [("width", c_size_t), ("height", c_size_t), ("depth", c_size_t)]


class Box(ctypes.Structure):
    """CUDA_MEMCPY3D."""

    _fields_ = [*_side("src", False), *_side("dst", False), *_SIZE]


class PeerBox(ctypes.Structure):
    """CUDA_MEMCPY3D_PEER."""

    _fields_ = [*_side("src", True), *_side("dst", True), *_SIZE]


class Plane(ctypes.Structure):
    """CUDA_MEMCPY2D."""

    _fields_ = [
        (side + name, kind)
        for side in ("src", "dst")
        for name, kind in (
            ("x", c_size_t),
            ("y", c_size_t),
            ("type", c_uint),
            ("host", c_void_p),
            ("device", c_uint64),
            ("array", c_void_p),
            ("pitch", c_size_t),
        )
    ] + [("width", c_size_t), ("height", c_size_t)]


class Pointer(ctypes.Structure):
    """The pointer of a CUmemcpy3DOperand."""

    _fields_ = (
        ("ptr", c_uint64),
        ("row_length", c_size_t),
        ("layer_height", c_size_t),
        ("hint", Location),
    )


class InArray(ctypes.Structure):
    """The array of a CUmemcpy3DOperand, and a place in it."""

    _fields_ = (("array", c_void_p), ("x", c_size_t), ("y", c_size_t), ("z", c_size_t))


class _Operand(ctypes.Union):
    _fields_ = (("ptr", Pointer), ("array", InArray))


class Operand(ctypes.Structure):
    """CUmemcpy3DOperand."""

    _fields_ = (("type", c_uint), ("op", _Operand))


class BatchOp(ctypes.Structure):
    """CUDA_MEMCPY3D_BATCH_OP."""

    _fields_ = (
        ("src", Operand),
        ("dst", Operand),
        ("width", c_size_t),
        ("height", c_size_t),
        ("depth", c_size_t),
        ("order", c_uint),
        ("flags", c_uint),
    )


def shape(width: int, height: int = 0, depth: int = 0, **more: int) -> Shape:
    """The description of an array of bytes, with changes."""
    fields = {"format": U8, "channels": 1, "flags": 0, **more}
    return Shape(width=width, height=height, depth=depth, **fields)


def create(driver: Driver, wanted: Shape) -> int:
    """Makes an array and returns its handle."""
    handle = c_void_p()
    driver("cuArray3DCreate_v2", byref(handle), byref(wanted))
    return handle.value or 0


def create_mipmapped(driver: Driver, wanted: Shape, levels: int) -> int:
    handle = c_void_p()
    driver("cuMipmappedArrayCreate", byref(handle), byref(wanted), c_uint(levels))
    return handle.value or 0


def level(driver: Driver, mipmapped: int, number: int) -> int:
    handle = c_void_p()
    driver("cuMipmappedArrayGetLevel", byref(handle), c_void_p(mipmapped), c_uint(number))
    return handle.value or 0


def describe(driver: Driver, array: int) -> tuple[int, ...]:
    """Width, height, depth, format, channels and flags of an array."""
    found = Shape()
    driver("cuArray3DGetDescriptor_v2", byref(found), c_void_p(array))
    return tuple(getattr(found, name) for name, _ in Shape._fields_)
