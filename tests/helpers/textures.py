"""Texture and surface objects by ctypes, for tests in process and over the wire."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_float, c_int, c_size_t, c_uint, c_uint64, c_ulonglong, c_void_p

from helpers.maps import Driver

IN_ARRAY, IN_MIPMAPPED_ARRAY, LINEAR, PITCHED = range(4)
WRAP, CLAMP, MIRROR, BORDER = range(4)
POINT, LINEAR_FILTER = 0, 1
AS_INTEGER, NORMALIZED, SRGB, SEAMLESS = 1, 2, 0x10, 0x40


class _Linear(ctypes.Structure):
    _fields_ = (("dptr", c_uint64), ("format", c_uint), ("channels", c_uint), ("bytes", c_size_t))


class _Pitched(ctypes.Structure):
    _fields_ = (
        ("dptr", c_uint64),
        ("format", c_uint),
        ("channels", c_uint),
        ("width", c_size_t),
        ("height", c_size_t),
        ("pitch", c_size_t),
    )


class _Of(ctypes.Union):
    _fields_ = (
        ("array", c_void_p),
        ("linear", _Linear),
        ("pitched", _Pitched),
        ("reserved", c_int * 32),
    )


class Resource(ctypes.Structure):
    """CUDA_RESOURCE_DESC."""

    _fields_ = (("kind", c_uint), ("of", _Of), ("flags", c_uint))


class Texture(ctypes.Structure):
    """CUDA_TEXTURE_DESC."""

    _fields_ = (
        ("address", c_uint * 3),
        ("filter", c_uint),
        ("flags", c_uint),
        ("anisotropy", c_uint),
        ("mip_filter", c_uint),
        ("bias", c_float),
        ("least", c_float),
        ("most", c_float),
        ("border", c_float * 4),
        ("reserved", c_int * 12),
    )


class View(ctypes.Structure):
    """CUDA_RESOURCE_VIEW_DESC."""

    _fields_ = (
        ("format", c_uint),
        ("width", c_size_t),
        ("height", c_size_t),
        ("depth", c_size_t),
        ("first_level", c_uint),
        ("last_level", c_uint),
        ("first_layer", c_uint),
        ("last_layer", c_uint),
        ("reserved", c_uint * 16),
    )


def in_array(handle: int, kind: int = IN_ARRAY) -> Resource:
    resource = Resource(kind=kind)
    resource.of.array = handle
    return resource


def linear(dptr: int, size: int, texel: int, channels: int = 1) -> Resource:
    """`texel`: a CUarray_format."""
    resource = Resource(kind=LINEAR)
    resource.of.linear = _Linear(dptr, texel, channels, size)
    return resource


def pitched(dptr: int, size: tuple[int, int, int], texel: int, channels: int = 1) -> Resource:
    """`size`: width, height and pitch."""
    resource = Resource(kind=PITCHED)
    resource.of.pitched = _Pitched(dptr, texel, channels, *size)
    return resource


def texture(flags: int = AS_INTEGER, **fields: int) -> Texture:
    made = Texture(flags=flags, address=(CLAMP, CLAMP, CLAMP))
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def result(
    driver: Driver, resource: Resource, wanted: Texture, view: View | None = None
) -> tuple[int, int]:
    """Makes a texture object; its CUresult and the object."""
    made = c_ulonglong(7)
    given = None if view is None else byref(view)
    status = driver.result("cuTexObjectCreate", byref(made), byref(resource), byref(wanted), given)
    return status, made.value


def create(
    driver: Driver, resource: Resource, wanted: Texture, view: View | None = None
) -> int:
    status, made = result(driver, resource, wanted, view)
    assert status == 0, status
    return made


def surface(driver: Driver, array: int) -> tuple[int, int]:
    """Makes a surface object; its CUresult and the object."""
    made = c_ulonglong(7)
    resource = in_array(array)
    return driver.result("cuSurfObjectCreate", byref(made), byref(resource)), made.value
