"""Definitions of graphs, as a client encodes them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum

from worker.client import Client

MAGIC = b"GRF2"
NO_NODE = 0xFFFFFFFF


class Kind(IntEnum):
    """What a node does, by its number on the wire."""

    EMPTY = 0
    KERNEL = 1
    COPY = 2
    SET = 3
    HOST = 4
    RECORD = 5
    WAIT = 6
    OPERATIONS = 7
    CHILD = 8
    CONDITIONAL = 9


Node = tuple[Kind, bytes]
Edge = tuple[int, int]


def node(one: Node, enabled: int = 1) -> bytes:
    """One node, also as a change sends it."""
    kind, part = one
    return struct.pack("<BB", kind, enabled) + part


def graph(nodes: Sequence[Node], edges: Sequence[Edge] = ()) -> bytes:
    """A graph, as it lies in a definition or in a node."""
    body = b"".join(node(one) for one in nodes)
    ends = b"".join(struct.pack("<IIBBB", *edge, 0, 0, 0) for edge in edges)
    return struct.pack("<I", len(nodes)) + body + struct.pack("<I", len(edges)) + ends


def chain(*nodes: Node) -> bytes:
    """A definition whose nodes run one after the other."""
    return MAGIC + graph(nodes, [(i, i + 1) for i in range(len(nodes) - 1)])


EMPTY: Node = (Kind.EMPTY, b"")
HOST: Node = (Kind.HOST, b"")


def kernel(function: int = 0, *, kernel: int = 0, params: bytes = b"", threads: int = 1) -> Node:
    head = struct.pack("<QQI7IB", function, kernel, 0, 1, 1, 1, threads, 1, 1, 0, 0)
    return Kind.KERNEL, head + struct.pack("<I", len(params)) + params


HOST_SIDE = b"\0"


def linear(address: int, pitch: int = 0, rows: int = 0) -> bytes:
    """The side of a copy in the device's memory."""
    return struct.pack("<BQQQ", 1, address, pitch, rows)


def in_array(array: int, x: int = 0, y: int = 0, z: int = 0) -> bytes:
    """The side of a copy in an array."""
    return struct.pack("<BQQQQ", 2, array, x, y, z)


def box(to: bytes, source: bytes, width: int, height: int = 1, depth: int = 1) -> Node:
    """A copy between two sides, in the graph's context."""
    return Kind.COPY, struct.pack("<I", 0) + to + source + struct.pack("<QQQ", width, height, depth)


def copy(to: int, source: int, width: int, height: int = 1) -> Node:
    """A copy of rows without gaps; address 0: the host side."""
    to_side, from_side = (linear(at, width) if at else HOST_SIDE for at in (to, source))
    return box(to_side, from_side, width, height)


def fill(to: int, value: int, words: int, *, context: int = 0) -> Node:
    return Kind.SET, struct.pack("<IQQIIQQ", context, to, 0, 4, value, words, 1)


def record(event: int) -> Node:
    return Kind.RECORD, struct.pack("<Q", event)


def wait(event: int) -> Node:
    return Kind.WAIT, struct.pack("<Q", event)


def write_value(address: int, value: int) -> Node:
    return Kind.OPERATIONS, struct.pack("<IIIIQQ", 0, 1, 2, 0, address, value)


def wait_value(address: int, value: int) -> Node:
    return Kind.OPERATIONS, struct.pack("<IIIIQQ", 0, 1, 1, 1, address, value)


def child(nodes: Sequence[Node]) -> Node:
    return Kind.CHILD, graph(nodes)


def conditional(handle: int, bodies: Sequence[Sequence[Node]], kind: int = 0) -> Node:
    head = struct.pack("<IQII", 0, handle, kind, len(bodies))
    return Kind.CONDITIONAL, head + b"".join(graph(body) for body in bodies)


def put(client: Client, image: int, definition: bytes) -> None:
    """Sends a definition under the number of an image."""
    piece = 1 << 20
    for begin in range(0, len(definition), piece):
        bulk = definition[begin : begin + piece]
        client.post("rgpuImagePut", image=image, offset=begin, total=len(definition), bulk=bulk)


def instantiate(client: Client, exec_: int, definition: bytes, graph_: int = 0) -> int:
    """Returns the result."""
    put(client, exec_ + 1000, definition)
    values = {"exec": exec_, "image": exec_ + 1000, "graph": graph_, "flags": 0}
    return client.result("rgpuGraphInstantiate", **values).status  # type: ignore[arg-type]
