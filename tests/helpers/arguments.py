"""Calls every implemented function of the driver API with bad arguments, alone and in pairs.

The cases depend only on the C declarations, so they stay the same when a row of the specification
changes in any other way. A client process of `tests/shim/test_arguments.py` runs `main`, a process
with the emulated device of `tests/emu/test_arguments.py` runs `codes`.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import re
import struct
from collections.abc import Callable, Iterator, Mapping

from cudaspec import load
from cudaspec.prototype import Parameter
from cudaspec.rows import CallRow
from helpers.driver import Driver

HANDLES = [
    "CUcontext",
    "CUstream",
    "CUevent",
    "CUmodule",
    "CUfunction",
    "CUkernel",
    "CUlibrary",
    "CUmemoryPool",
    "CUlinkState",
    "CUarray",
    "CUmipmappedArray",
]
# These functions end an object, so they never get a living one: later cases need it.
ENDS = ("Destroy", "Unload", "Release", "Reset", "Detach", "Free", "SetCurrent", "PushCurrent")
# A wait for a value that nobody writes would never end; a copy follows a bad host address; a dump of
# the log makes a file, which functions that load files would then find.
LEFT_OUT = re.compile("cuStreamWaitValue|cuMemcpy(?!2D)|cuLogsDumpToFile")
COUNTS = ("count", "len", "num", "size", "bytes", "width", "height", "n", "grid", "block", "shared")
LONG = {"size_t", "cuuint64_t", "CUdeviceptr", "unsigned long long", "CUtexObject", "CUsurfObject"}
# A CUDA_ARRAY3D_DESCRIPTOR of 8 x 8 bytes, for surfaces too, and a CUDA_ARRAY_DESCRIPTOR.
SHAPE = struct.pack("QQQIII", 8, 8, 0, 1, 1, 2)
FLAT_SHAPE = struct.pack("QQII", 8, 8, 1, 1)
SCRATCH_BYTES = 4096
NULL = "null"
WITH, WITHOUT = "with a context", "without a context"
PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry name(.param .u32 value) { ret; }
"""

Case = tuple[str, ...]  # one choice for each parameter


def functions() -> dict[str, CallRow]:
    """Returns the functions that are called, by name."""
    return {
        name: call
        for name, call in sorted(load.load().calls.items())
        if call.implemented and not LEFT_OUT.match(name)
    }


def cases(call: CallRow) -> list[Case]:
    """Returns the good arguments, every single bad one, and every pair of bad ones."""
    choices = [_choices(call.name, p) for p in call.prototype.parameters]
    good = tuple(c[0] for c in choices)
    found = [good]
    for count in (1, 2):
        for places in itertools.combinations(range(len(choices)), count):
            for bad in itertools.product(*(choices[at][1:] for at in places)):
                case = list(good)
                for at, value in zip(places, bad, strict=True):
                    case[at] = value
                found.append(tuple(case))
    return found


def _choices(function: str, parameter: Parameter) -> list[str]:
    """Returns what a parameter is set to: first a good value, then bad ones."""
    kind, name = parameter.type, parameter.name.lower()
    ends = any(word in function for word in ENDS)
    if name in ("extra", "attrs"):
        return [NULL, "buffer"]
    if parameter.is_pointer:
        return ["buffer", NULL]
    if kind in ("CUoccupancyB2DSize", "CUlogsCallback", "CUhostFn", "CUstreamCallback"):
        return [NULL]
    if kind in HANDLES:
        return [NULL, "0x7777"] if ends else ["handle", NULL, "0x7777"]
    if kind == "CUdevice" or name == "ordinal":
        return ["7", "-1"] if ends else ["0", "7", "-1"]
    if kind == "CUdeviceptr":
        return ["0x7777"] if ends else ["memory", "0", "0x7777"]
    if name == "elementsizebytes":
        return ["4", "0", "1"]
    if "options" in name and name.startswith("num"):
        return ["0", "1"]
    if name.startswith(COUNTS) or name.endswith(("count", "size", "bytes")):
        return ["1", "0"] + (["-1"] if kind == "int" else [])
    if "flags" in name:
        return ["0", "1", "16", "0x40000000"]
    if kind == "float":
        return ["0"]
    return ["1", "0", "-1", "1000"]


class Caller:
    """Living objects of every kind, and the calls."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.driver.open()
        make: Mapping[str, Callable[..., None]] = {
            "CUcontext": lambda at: self.driver("cuCtxGetCurrent", at),
            "CUstream": lambda at: self.driver("cuStreamCreate", at, 0),
            "CUevent": lambda at: self.driver("cuEventCreate", at, 0),
            "CUmodule": lambda at: self.driver("cuModuleLoadData", at, PTX),
            "CUlibrary": lambda at: self.driver("cuLibraryLoadData", at, PTX, *[None] * 6),
            "CUmemoryPool": lambda at: self.driver("cuDeviceGetDefaultMemPool", at, 0),
            "CUlinkState": lambda at: self.driver("cuLinkCreate_v2", 0, None, None, at),
            "CUarray": lambda at: self.driver("cuArray3DCreate_v2", at, SHAPE),
            "CUmipmappedArray": lambda at: self.driver("cuMipmappedArrayCreate", at, SHAPE, 2),
        }
        self.handles: dict[str, int] = {}
        for kind, maker in make.items():
            handle = ctypes.c_void_p()
            maker(ctypes.byref(handle))
            self.handles[kind] = handle.value or 0
        for kind, owner, call in (
            ("CUfunction", "CUmodule", "cuModuleGetFunction"),
            ("CUkernel", "CUlibrary", "cuLibraryGetKernel"),
        ):
            handle = ctypes.c_void_p()
            self.driver(call, ctypes.byref(handle), ctypes.c_void_p(self.handles[owner]), b"name")
            self.handles[kind] = handle.value or 0
        self.memory = self.driver.alloc(SCRATCH_BYTES)
        self.buffers = [ctypes.create_string_buffer(SCRATCH_BYTES) for _ in range(12)]

    def call(self, call: CallRow, case: Case) -> int:
        """Returns the CUresult of one case."""
        arguments = [
            self._argument(parameter, choice, place)
            for place, (parameter, choice) in enumerate(
                zip(call.prototype.parameters, case, strict=True)
            )
        ]
        result = self.driver.result(call.name, *arguments)
        if result == 0 and call.name.startswith("cuCtxCreate"):
            made = ctypes.c_void_p.from_buffer(self.buffers[0]).value
            self.driver("cuCtxDestroy_v2", ctypes.c_void_p(made))
        return result

    def current(self, present: bool) -> None:
        """Makes the context current, or none."""
        context = ctypes.c_void_p(self.handles["CUcontext"])
        while self.driver.result("cuCtxPopCurrent_v2", None) == 0:
            pass
        if present:
            self.driver("cuCtxPushCurrent_v2", context)

    def complete(self) -> None:
        """Waits for the work of earlier cases, which a query would find unfinished."""
        self.current(True)
        self.driver.result("cuCtxSynchronize")

    def _argument(self, parameter: Parameter, choice: str, place: int) -> object:
        if choice == NULL:
            return None
        if choice == "buffer":
            data = self._content(parameter)
            ctypes.memset(self.buffers[place], 0, SCRATCH_BYTES)
            ctypes.memmove(self.buffers[place], data, len(data))
            return self.buffers[place]
        if choice == "handle":
            return ctypes.c_void_p(self.handles[parameter.type])
        if choice == "memory":
            return ctypes.c_uint64(self.memory)
        number = int(choice, 0)
        if parameter.type == "float":
            return ctypes.c_float(number)
        wide = parameter.type in LONG or parameter.type in HANDLES
        return ctypes.c_uint64(number) if wide else ctypes.c_int(number)

    def _content(self, parameter: Parameter) -> bytes:
        """Returns the bytes of a good buffer."""
        location = struct.pack("ii", 1, 0)  # CU_MEM_LOCATION_TYPE_DEVICE
        contents = {
            "CUmemLocation": location,
            "CUmemPoolProps": struct.pack("ii", 1, 0) + location,  # CU_MEM_ALLOCATION_TYPE_PINNED
            "CUlaunchConfig": struct.pack("6I", *[1] * 6),
            "char": b"name",
            "CUDA_ARRAY3D_DESCRIPTOR": SHAPE,
            "CUDA_ARRAY_DESCRIPTOR": FLAT_SHAPE,
            "CUDA_RESOURCE_DESC": struct.pack("QQ", 0, self.handles["CUarray"]),  # of an array
            "void *": struct.pack("P", ctypes.addressof(self.buffers[-1])),
        }
        if parameter.pointee == "void" and parameter.name in ("image", "code", "fatCubin", "data"):
            return PTX
        return contents.get(parameter.pointee, b"")


def results(caller: Caller, call: CallRow, present: bool) -> Iterator[int]:
    for case in cases(call):
        caller.current(present)
        yield caller.call(call, case)


def codes(driver: Driver) -> Iterator[tuple[str, list[int]]]:
    """Yields the CUresult of each case: of each function with a current context, then without."""
    caller = Caller(driver)
    for name, call in functions().items():
        if name.endswith("Query"):
            caller.complete()
        for present, key in ((True, WITH), (False, WITHOUT)):
            yield f"{name}, {key}", list(results(caller, call, present))


def main() -> None:
    """Prints `codes` of the driver library, one function a line."""
    for key, found in codes(Driver()):
        print(json.dumps({key: found}), flush=True)


def before_init(driver: Driver) -> dict[str, int]:
    """Returns, for each function, the CUresult with null arguments before cuInit."""
    return {
        name: driver.result(name, *[None] * len(call.prototype.parameters))
        for name, call in functions().items()
        if name != "cuInit"
    }
