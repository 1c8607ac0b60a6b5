"""Copies of rows and slices against NumPy models of the memory: for tests in process and over the
wire.
"""

from __future__ import annotations

import ctypes
import random
from ctypes import byref, c_size_t, c_uint, c_uint64, c_ulonglong, c_void_p
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from helpers.boxes import (
    ARRAY,
    BYTES,
    CUBEMAP,
    DEVICE,
    F32,
    HOST,
    LAYERED,
    U16,
    U32,
    UNIFIED,
    BatchOp,
    Box,
    InArray,
    Operand,
    PeerBox,
    Plane,
    Pointer,
    Shape,
    create,
    create_mipmapped,
    level,
    shape,
)
from helpers.maps import Driver


@dataclass
class Place:
    """Memory of some kind and what it holds, as bytes: slices, rows, bytes of a row."""

    kind: int
    model: np.ndarray[Any, np.dtype[np.uint8]]
    element: int = 1
    address: int = 0
    array: int = 0
    context: int = 0
    keep: object = None

    @property
    def extent(self) -> tuple[int, int, int]:
        slices, rows, row_bytes = self.model.shape
        return row_bytes // self.element, rows, slices

    def fields(self, side: str, at: tuple[int, int, int], element: int) -> dict[str, int]:
        """The fields of one side of a copy that begins at `at` (elements, rows, slices)."""
        x, y, z = at
        values = {"type": self.kind, "x": x * element, "y": y, "z": z}
        if self.array:
            values |= {"array": self.array}
        else:
            _, rows, row_bytes = self.model.shape
            values |= {"pitch": row_bytes, "rows": rows, "host": self.address}
            values |= {"device": self.address}
            if self.kind != HOST:
                del values["host"]
        return {side + name: value for name, value in values.items()}

    def operand(self, at: tuple[int, int, int], element: int) -> Operand:
        x, y, z = at
        operand = Operand(type=2 if self.array else 1)
        if self.array:
            operand.op.array = InArray(self.array, x, y, z)
            return operand
        _, rows, row_bytes = self.model.shape
        begin = (z * rows + y) * row_bytes + x * element
        operand.op.ptr = Pointer(self.address + begin, row_bytes // element, rows)
        return operand

    def part(self, at: tuple[int, int, int], size: tuple[int, int, int], element: int) -> Any:
        (x, y, z), (w, h, d) = at, size
        return self.model[z : z + d, y : y + h, x * element : (x + w) * element]


class Places:
    """Arrays, device memory and host memory with random contents, and copies between them."""

    def __init__(self, driver: Driver, context: int, seed: int, element: int = 4) -> None:
        self.driver, self.context, self.element = driver, context, element
        self.random, self.bytes = random.Random(seed), np.random.default_rng(seed)
        self.places: list[Place] = []
        self.stream = c_void_p()
        driver("cuStreamCreate", byref(self.stream), c_uint(1))

    def fresh(self, slices: int, rows: int, row_bytes: int) -> Any:
        """Random bytes, which words of eight bytes make five times faster than single bytes."""
        count = slices * rows * row_bytes
        words = self.bytes.integers(0, 1 << 64, count // 8 + 1, np.uint64)
        return words.view(np.uint8)[:count].reshape(slices, rows, row_bytes)

    def add_array(self, wanted: Shape) -> Place:
        """An array whose elements have the size that all copies here have."""
        assert BYTES[wanted.format] * wanted.channels == self.element
        return self.adopt(create(self.driver, wanted), wanted)

    def adopt(self, handle: int, wanted: Shape) -> Place:
        slices, rows = max(1, wanted.depth), max(1, wanted.height)
        fresh = self.fresh(slices, rows, wanted.width * self.element)
        place = Place(ARRAY, fresh, self.element, array=handle, context=self.context)
        self._fill(place)
        self.places.append(place)
        return place

    def add_memory(self, slices: int, rows: int, row_bytes: int, kind: int = DEVICE) -> Place:
        fresh = self.fresh(slices, rows, row_bytes)
        address = c_uint64()
        self.driver("cuMemAlloc_v2", byref(address), c_size_t(fresh.nbytes))
        place = Place(kind, fresh, self.element, address.value, context=self.context)
        self.driver("cuMemcpyHtoD_v2", address, fresh.tobytes(), c_size_t(fresh.nbytes))
        self.places.append(place)
        return place

    def add_host(self, slices: int, rows: int, row_bytes: int, pinned: bool) -> Place:
        fresh = self.fresh(slices, rows, row_bytes)
        pointer = c_void_p()
        keep: object = None
        if pinned:
            self.driver("cuMemHostAlloc", byref(pointer), c_size_t(fresh.nbytes), c_uint(0))
            address = pointer.value or 0
        else:
            keep = ctypes.create_string_buffer(fresh.nbytes)
            address = ctypes.addressof(keep)
        ctypes.memmove(address, fresh.tobytes(), fresh.nbytes)
        place = Place(HOST, fresh, self.element, address, context=self.context, keep=keep)
        self.places.append(place)
        return place

    def _fill(self, place: Place) -> None:
        data = place.model.tobytes()
        slices, rows, row_bytes = place.model.shape
        box = Box(width=row_bytes, height=rows, depth=slices, srctype=HOST, dsttype=ARRAY)
        box.srcpitch, box.srcrows = row_bytes, rows
        box.srchost = ctypes.cast(data, c_void_p)
        box.dstarray = place.array
        self.driver("cuMemcpy3D_v2", byref(box))

    def write(self, place: Place) -> None:
        """Writes what the model says."""
        data = place.model.tobytes()
        if place.kind == HOST:
            ctypes.memmove(place.address, data, len(data))
        elif place.array:
            self._fill(place)
        else:
            self.driver("cuMemcpyHtoD_v2", c_uint64(place.address), data, c_size_t(len(data)))

    def read(self, place: Place) -> Any:
        """What the memory holds now."""
        count = place.model.nbytes
        buffer = ctypes.create_string_buffer(count)
        if place.kind == HOST:
            ctypes.memmove(buffer, place.address, count)
        elif not place.array:
            self.driver("cuMemcpyDtoH_v2", buffer, c_uint64(place.address), c_size_t(count))
        else:
            slices, rows, row_bytes = place.model.shape
            box = Box(width=row_bytes, height=rows, depth=slices, srctype=ARRAY, dsttype=HOST)
            box.srcarray, box.dsthost = place.array, ctypes.addressof(buffer)
            box.dstpitch, box.dstrows = row_bytes, rows
            self.driver("cuMemcpy3D_v2", byref(box))
        return np.frombuffer(buffer.raw, np.uint8).reshape(place.model.shape)

    def check(self) -> None:
        """Every byte of every place is what the model says."""
        self.driver("cuCtxSynchronize")
        for number, place in enumerate(self.places):
            found = self.read(place)
            wrong = np.argwhere(found != place.model)
            assert not len(wrong), (number, place.kind, place.model.shape, wrong[:4].tolist())

    def draw(self, source: Place | None = None, target: Place | None = None) -> Drawn:
        """A random copy between two places."""
        pick = self.random.randrange
        if source is None or target is None:
            source, target = self.random.sample(self.places, 2)
        common = [min(a, b) for a, b in zip(source.extent, target.extent, strict=True)]
        size = tuple(1 + pick(most) for most in common)
        begin = [
            tuple(pick(most - count + 1) for most, count in zip(p.extent, size, strict=True))
            for p in (source, target)
        ]
        size3 = cast("tuple[int, int, int]", size)
        src_at, dst_at = (cast("tuple[int, int, int]", at) for at in begin)
        # Pointers among themselves may begin at any byte.
        element = self.element if source.array or target.array else self.random.choice((1, 4))
        if element == 1:
            grow = [1 if i else self.element for i in range(3)]
            size3 = cast(
                "tuple[int, int, int]", tuple(c * g for c, g in zip(size3, grow, strict=True))
            )
            src_at = (src_at[0] * self.element, *src_at[1:])
            dst_at = (dst_at[0] * self.element, *dst_at[1:])
            size3 = (max(1, size3[0] - pick(self.element)), *size3[1:])
        return Drawn(source, target, src_at, dst_at, size3, element)

    def step(self) -> str:
        """One random copy. Returns a text that tells what it was."""
        drawn = self.draw()
        call = self.issue(drawn, WAITING + QUEUED)
        self.driver("cuStreamSynchronize", self.stream)
        self.driver("cuStreamSynchronize", c_void_p(0))
        drawn.apply()
        return f"{call} {drawn.source.kind}->{drawn.target.kind} {drawn.size}"

    def issue(self, drawn: Drawn, names: tuple[str, ...]) -> str:
        """Makes the copy by one of these calls, the asynchronous ones in the stream."""
        fields, element = drawn.fields, drawn.element
        width, height, depth = drawn.size[0] * element, *drawn.size[1:]
        flat = depth == 1 and drawn.src_at[2] == drawn.dst_at[2] == 0
        call = self.random.choice([name for name in names if flat or "2D" not in name])
        parameters: Any
        if "2D" in call:
            parameters = Plane(width=width, height=height)
            fields = {k: v for k, v in fields.items() if k[3:] not in ("z", "rows")}
        elif "Peer" in call:
            parameters = PeerBox(width=width, height=height, depth=depth)
            fields |= {"srccontext": self.context, "dstcontext": self.context}
        else:
            parameters = Box(width=width, height=height, depth=depth)
        for name, value in fields.items():
            setattr(parameters, name, value)
        if "Batch" in call:
            op = drawn.operation()
            op.order = self.random.choice((1, 2, 3))
            self.driver(call, c_size_t(1), byref(op), c_ulonglong(0), self.stream)
        elif "Async" in call:
            self.driver(call, byref(parameters), self.stream)
        else:
            self.driver(call, byref(parameters))
        return call


WAITING = ("cuMemcpy3D_v2", "cuMemcpy3DPeer", "cuMemcpy2D_v2", "cuMemcpy2DUnaligned_v2")
QUEUED = (
    "cuMemcpy3DAsync_v2", "cuMemcpy3DBatchAsync_v2", "cuMemcpy3DPeerAsync", "cuMemcpy2DAsync_v2",
)  # fmt: skip


@dataclass
class Drawn:
    """A copy. Where it begins and its size: elements of so many bytes, rows, slices."""

    source: Place
    target: Place
    src_at: tuple[int, int, int]
    dst_at: tuple[int, int, int]
    size: tuple[int, int, int]
    element: int

    @property
    def fields(self) -> dict[str, int]:
        source = self.source.fields("src", self.src_at, self.element)
        return source | self.target.fields("dst", self.dst_at, self.element)

    def box(self) -> Box:
        width, height, depth = self.size
        box = Box(width=width * self.element, height=height, depth=depth)
        for name, value in self.fields.items():
            setattr(box, name, value)
        return box

    def operation(self) -> BatchOp:
        src_at, dst_at, size, element = self.src_at, self.dst_at, self.size, self.element
        if not self.source.array and not self.target.array:  # elements of one byte
            src_at, dst_at, size = ((at[0] * element, *at[1:]) for at in (src_at, dst_at, size))
            element = 1
        op = BatchOp(
            src=self.source.operand(src_at, element), dst=self.target.operand(dst_at, element)
        )
        op.width, op.height, op.depth = size
        return op

    def apply(self) -> None:
        """Makes the copy in the models."""
        source = self.source.part(self.src_at, self.size, self.element)
        self.target.part(self.dst_at, self.size, self.element)[:] = source


def assorted(driver: Driver, context: int, seed: int) -> Places:
    """Arrays of all kinds, and memory of all kinds."""
    places = Places(driver, context, seed)
    for wanted in (
        shape(37, format=F32),
        shape(37, 19, channels=4),
        shape(16, 9, 7, format=U16, channels=2),
        shape(21, 0, 5, format=U32, flags=LAYERED),
        shape(12, 13, 6, format=F32, flags=LAYERED),
        shape(8, 8, 6, format=F32, flags=CUBEMAP),
        shape(8, 8, 12, channels=4, flags=CUBEMAP | LAYERED),
    ):
        places.add_array(wanted)
    mipmapped = create_mipmapped(driver, shape(32, 17, 5, format=F32), 4)
    places.adopt(level(driver, mipmapped, 0), shape(32, 17, 5))
    places.adopt(level(driver, mipmapped, 2), shape(8, 4, 1))
    places.add_memory(5, 20, 160)
    places.add_memory(1, 40, 256, UNIFIED)
    places.add_host(6, 14, 132, pinned=False)
    places.add_host(4, 21, 200, pinned=True)
    return places


def random_copies(driver: Driver, context: int, seed: int, rounds: int) -> None:
    """Copies of random extents between memory of all kinds, against the models."""
    places = assorted(driver, context, seed)
    for _ in range(rounds):
        places.step()
    places.check()


def big_copies(driver: Driver, context: int, seed: int) -> None:
    """Boxes that need many frames: long rows, many slices, and rows with gaps."""
    places = Places(driver, context, seed)
    volume = places.add_array(shape(300, 200, 20, format=F32))
    tall = places.add_array(shape(16, 8, 3000, format=F32))
    wide = places.add_array(shape(60_000, 12, format=U16, channels=2))
    slices = places.add_memory(3000, 8, 64)
    for place in (volume, tall, wide, slices):
        width, rows, slices = place.extent
        for pinned in (False, True):
            host = places.add_host(slices, rows + 1, width * 4 + 12, pinned)
            for source, target in ((host, place), (place, host)):
                for call in ("cuMemcpy3D_v2", "cuMemcpy3DAsync_v2"):
                    box = Box(width=width * 4, height=rows, depth=slices)
                    fields = source.fields("src", (0, 0, 0), 1) | target.fields("dst", (0, 0, 0), 1)
                    for name, value in fields.items():
                        setattr(box, name, value)
                    more = (places.stream,) if "Async" in call else ()
                    driver(call, byref(box), *more)
                    size = (width * 4, rows, slices)
                    target.part((0, 0, 0), size, 1)[:] = source.part((0, 0, 0), size, 1)
                    driver("cuStreamSynchronize", places.stream)
                    # So that the next copy in this direction changes bytes.
                    source.model[:] = places.fresh(*source.model.shape)
                    places.write(source)
    places.check()


def linear_copies(driver: Driver, context: int, seed: int) -> None:
    """The copies of one row, in all directions."""
    del context
    bytes_of = np.random.default_rng(seed)
    first, second = (create(driver, shape(64, format=F32)) for _ in range(2))
    data = bytes_of.integers(0, 256, 256, np.uint8).tobytes()
    memory, stream = c_uint64(), c_void_p()
    driver("cuMemAlloc_v2", byref(memory), c_size_t(256))
    driver("cuStreamCreate", byref(stream), c_uint(1))
    one, two = c_void_p(first), c_void_p(second)
    back = ctypes.create_string_buffer(256)
    driver("cuMemcpyHtoA_v2", one, c_size_t(0), data, c_size_t(256))
    driver("cuMemcpyAtoA_v2", two, c_size_t(64), one, c_size_t(128), c_size_t(128))
    driver("cuMemcpyAtoA_v2", two, c_size_t(0), one, c_size_t(0), c_size_t(64))
    driver("cuMemcpyAtoD_v2", memory, two, c_size_t(0), c_size_t(192))
    driver("cuMemcpyDtoA_v2", one, c_size_t(4), memory, c_size_t(188))
    driver("cuMemcpyAtoH_v2", back, one, c_size_t(0), c_size_t(256))
    expected = data[:64] + data[128:256]
    assert back.raw == data[:4] + expected[:188] + data[192:], "copies that wait"
    driver("cuMemcpyHtoAAsync_v2", two, c_size_t(12), data, c_size_t(244), stream)
    driver("cuMemcpyAtoHAsync_v2", back, two, c_size_t(12), c_size_t(244), stream)
    driver("cuStreamSynchronize", stream)
    assert back.raw[:244] == data[:244]
    for array in (one, two):
        driver("cuArrayDestroy", array)
