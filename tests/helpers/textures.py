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


def create(driver: Driver, resource: Resource, wanted: Texture, view: View | None = None) -> int:
    status, made = result(driver, resource, wanted, view)
    assert status == 0, status
    return made


def surface(driver: Driver, array: int) -> tuple[int, int]:
    """Makes a surface object; its CUresult and the object."""
    made = c_ulonglong(7)
    resource = in_array(array)
    return driver.result("cuSurfObjectCreate", byref(made), byref(resource)), made.value


# Each kernel has one thread for a texel: x is the thread, y the block in x, z the block in y.
PTX = """
.version 7.0
.target sm_70
.address_size 64
"""
_HEAD = """
.visible .entry NAME(.param .u64 object, .param .u64 out)
{
  .reg .b64 %object, %out, %at; .reg .b32 %x, %y, %z, %w, %n, %r, %g, %b, %a;
  .reg .f32 %fx, %fy, %fz, %fr, %fg, %fb, %fa;
  ld.param.u64 %object, [object];
  ld.param.u64 %out, [out];
  mov.u32 %x, %tid.x;
  mov.u32 %y, %ctaid.x;
  mov.u32 %z, %ctaid.y;
  mov.u32 %w, %ntid.x;
  mov.u32 %n, %nctaid.x;
  mad.lo.u32 %n, %z, %n, %y;
  mad.lo.u32 %n, %n, %w, %x;
  mul.wide.u32 %at, %n, 16;
  add.u64 %at, %at, %out;
  cvt.rn.f32.u32 %fx, %x;
  cvt.rn.f32.u32 %fy, %y;
  cvt.rn.f32.u32 %fz, %z;
  add.f32 %fx, %fx, 0f3F000000;
  add.f32 %fy, %fy, 0f3F000000;
  add.f32 %fz, %fz, 0f3F000000;
"""
_WORDS = "  st.global.v4.b32 [%at], {%r, %g, %b, %a};\n  ret;\n}\n"
_FLOATS = "  st.global.v4.f32 [%at], {%fr, %fg, %fb, %fa};\n  ret;\n}\n"
_BODIES = {
    "words_1d": ("tex.1d.v4.u32.s32 {%r, %g, %b, %a}, [%object, {%x}];", _WORDS),
    "words_2d": ("tex.2d.v4.u32.f32 {%r, %g, %b, %a}, [%object, {%fx, %fy}];", _WORDS),
    "words_3d": ("tex.3d.v4.u32.f32 {%r, %g, %b, %a}, [%object, {%fx, %fy, %fz, %fz}];", _WORDS),
    "words_layers": (
        "tex.a2d.v4.u32.f32 {%r, %g, %b, %a}, [%object, {%z, %fx, %fy, %fy}];",
        _WORDS,
    ),
    "floats_2d": ("tex.2d.v4.f32.f32 {%fr, %fg, %fb, %fa}, [%object, {%fx, %fy}];", _FLOATS),
    # Through memory: the object is what `object` points to.
    "words_2d_from_memory": (
        "ld.global.u64 %object, [%object];\n"
        "  tex.2d.v4.u32.f32 {%r, %g, %b, %a}, [%object, {%fx, %fy}];",
        _WORDS,
    ),
    # z is the level.
    "words_level": (
        "sub.f32 %fz, %fz, 0f3F000000; cvt.rn.f32.u32 %fa, %w; div.rn.f32 %fx, %fx, %fa;\n"
        "  mov.u32 %w, %nctaid.x; cvt.rn.f32.u32 %fa, %w; div.rn.f32 %fy, %fy, %fa;\n"
        "  tex.level.2d.v4.u32.f32 {%r, %g, %b, %a}, [%object, {%fx, %fy}], %fz;",
        _WORDS,
    ),
    "size": (
        "txq.width.b32 %r, [%object]; txq.height.b32 %g, [%object];\n"
        "  txq.depth.b32 %b, [%object]; mov.u32 %a, 0;",
        _WORDS,
    ),
    # Adds 1 to each word of a surface.
    "bump": (
        "shl.b32 %x, %x, 2; suld.b.2d.b32.trap {%r}, [%object, {%x, %y}];\n"
        "  add.u32 %r, %r, 1; sust.b.2d.b32.trap [%object, {%x, %y}], {%r}; ret;",
        "}\n",
    ),
}
PTX += "".join(
    _HEAD.replace("NAME", name) + "  " + body + "\n" + end for name, (body, end) in _BODIES.items()
)


class Kernels:
    """The kernels, loaded into the current context, and memory for what they read."""

    def __init__(self, driver: Driver, most: int = 1 << 16) -> None:
        self.driver = driver
        module, out = c_void_p(), c_uint64()
        driver("cuModuleLoadData", byref(module), PTX.encode() + b"\0")
        driver("cuMemAlloc_v2", byref(out), c_size_t(most))
        self.module, self.out = module, out

    def launch(
        self, name: str, value: int, size: tuple[int, int, int], stream: object = None
    ) -> None:
        """`size`: threads, blocks in x and in y."""
        function = c_void_p()
        self.driver("cuModuleGetFunction", byref(function), self.module, name.encode())
        arguments = [c_uint64(value), self.out]
        pointers = (c_void_p * 2)(*[ctypes.addressof(a) for a in arguments])
        width, height, depth = (c_uint(n) for n in size)
        one = c_uint(1)
        self.driver(
            "cuLaunchKernel",
            function, height, depth, one, width, one, one, c_uint(0), stream, pointers, None,
        )  # fmt: skip

    def read(self, name: str, value: int, size: tuple[int, int, int]) -> bytes:
        """Runs a kernel: 16 bytes for each of its threads."""
        self.launch(name, value, size)
        count = 16 * size[0] * size[1] * size[2]
        data = ctypes.create_string_buffer(count)
        self.driver("cuMemcpyDtoH_v2", data, self.out, c_size_t(count))
        return data.raw
