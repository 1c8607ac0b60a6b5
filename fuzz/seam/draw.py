"""Draws messages: templates and runs of a library's operations, and what no client sends."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from typing import Any

import msgpack

from rgpu_common.arrays.messages import UNKNOWN_OUTPUTS, Op, Tag
from rgpu_common.wire.frame import Kind

A, V = [Tag.SLOT_OBJECT], [Tag.SLOT_VALUE]
NUMBERS = (-1, 0, 0, 1, 1, 1, 2, 2, 3, 4, 7, -2, 100, 1 << 20, (1 << 31) - 1, 1 << 31, -(1 << 31),
           1 << 40, 1 << 62, -(1 << 62), (1 << 63) - 1, -(1 << 63))  # fmt: skip
FLOATS = (0.0, 0.5, 1.0, -1.0, 3.7, float("nan"), float("inf"), 1e300, -1e-300)
WILD = (-1, 5, 1000, -1000, 1 << 30, -(1 << 30), 1 << 40, 1 << 62, -(1 << 63), (1 << 63) - 1)
SHAPES: tuple[tuple[int, ...], ...] = (
    (), (0,), (1,), (2,), (3,), (4,), (2, 3), (3, 3), (4, 4), (1, 4), (2, 2, 3), (2, 3, 4),
    (1, 2, 4, 4), (2, 3, 4, 4), (1, 1, 2, 4, 4), (64,), (16, 16),
)  # fmt: skip
_RECENT = 6
_KINDS = (*[Kind.COMMAND] * 9, *Kind)


def words(text: str) -> list[str]:
    """Returns the words of a text."""
    return text.split()


class Draw(ABC):
    """A client that draws its messages; it knows which objects it has."""

    names: list[str]

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.following = 1000
        self.pool: list[int] = []
        self._recent: list[int] = []

    def begin(self) -> tuple[list[Any], bytes]:
        """Returns the operations that make the first objects, and their elements."""
        self.pool, self._recent, self.following = [], [], 1000
        operations, body = [], b""
        for shape in SHAPES:
            for dtype in ("float32", "int64", self.random.choice(self.dtypes())):
                size = self.itemsize(dtype)
                for n in shape:
                    size *= n
                data = self._elements(dtype, size)
                self.pool.append(self.new())
                operations.append([Op.PUT, self.pool[-1], dtype, list(shape), size])
                body += data
        return operations, body

    def case(self) -> list[Any]:
        """Returns the operations of one case: a template, a run of it, and a look at the result."""
        template, made, request = self.new(), self.new(), self.new()
        name, arguments, keywords, slots = self.operation()
        frees = []
        if len(self._recent) > _RECENT:
            frees = [[Op.FREE, [self._recent.pop(0)]]]
        self._recent.append(made)
        look: list[Any] = [Op.DESCRIBE, request, [made]]
        if self.random.random() < 0.1:
            look = [Op.READ, request, made]
        elif self.random.random() < 0.02:
            # Such a digest nothing has.
            shape = list(self.random.choice(SHAPES))
            look = [Op.COPY, request, self.new(), self.object(), "float32", shape, b"0" * 32]
        elif self.random.random() < 0.02:
            look = [Op.MARK, request, self.random.choice((0, 1, 1 << 62)), 0]
        return [
            *frees,
            [Op.DEFINE, template, name, arguments, keywords, UNKNOWN_OUTPUTS],
            [Op.RUN, template, slots, [made]],
            [Op.FORGET, template],
            look,
        ]

    def damaged(self) -> tuple[bytes, bytes, int]:
        """Returns a head, a body and the kind of a message that is not as it should be."""
        draw = self.random
        head = bytearray(msgpack.packb(self.case()))
        for _ in range(draw.choice((1, 1, 2, 8))):
            head[draw.randrange(len(head))] = draw.randrange(256)
        if draw.random() < 0.3:
            del head[draw.randrange(len(head)) :]
        if draw.random() < 0.1:
            head = bytearray(draw.randbytes(draw.choice((0, 1, 100, 60000))))
        if draw.random() < 0.1:
            head = bytearray(draw.choice((b"\x91", b"\x81", b"\xdd\xff\xff\xff\xff")) * 10000)
        body = draw.randbytes(draw.choice((0, 0, 8, 1000)))
        return bytes(head), body, draw.choice(_KINDS)

    def new(self) -> int:
        """Returns an id that is free."""
        self.following += 1
        return self.following

    def object(self) -> int:
        """Returns the id of an array, of a recent result, or rarely of nothing."""
        if self._recent and self.random.random() < 0.25:
            return self.random.choice(self._recent)
        return self.random.choice(self.pool)

    @abstractmethod
    def operation(self) -> tuple[str, list[Any], dict[str, Any], list[Any]]:
        """Returns the name, the arguments and the keywords of a template, and values of its slots,
        in the order of the template.
        """

    @abstractmethod
    def dtypes(self) -> list[str]:
        """Returns the dtypes that arrays have."""

    @abstractmethod
    def itemsize(self, dtype: str) -> int:
        """Returns the bytes of an element."""

    def _elements(self, dtype: str, size: int) -> bytes:
        """Returns elements: small numbers, a wild one among integers now and then."""
        draw, item = self.random, self.itemsize(dtype)
        if dtype in ("int64", "int32"):
            numbers = [draw.randrange(5) for _ in range(size // item)]
            if numbers and draw.random() < 0.3:
                wild = draw.choice(WILD) % (1 << (8 * item - 1))
                numbers[draw.randrange(len(numbers))] = wild
            return b"".join(n.to_bytes(item, "little", signed=True) for n in numbers)
        if draw.random() < 0.5:
            return draw.randbytes(size)
        return b"\0" * size
