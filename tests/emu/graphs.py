"""Graphs of the emulated device: the structures of cuda.h and a small wrapper."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, Union, byref, c_size_t, c_uint32, c_uint64, c_ushort
from typing import Any

from emu.device import Device

KERNEL, MEMCPY, MEMSET, HOST, GRAPH, EMPTY, WAIT, RECORD = range(8)
ALLOC, FREE, BATCH, CONDITIONAL = 10, 11, 12, 13
ON_HOST, ON_DEVICE, UNIFIED = 1, 2, 4
GLOBAL, THREAD_LOCAL, RELAXED = range(3)
HostFn = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class KernelNode(Structure):
    _fields_ = (
        ("func", c_uint64),
        ("grid", c_uint32 * 3),
        ("block", c_uint32 * 3),
        ("shared", c_uint32),
        ("params", POINTER(ctypes.c_void_p)),
        ("extra", ctypes.c_void_p),
        ("kern", c_uint64),
        ("ctx", c_uint64),
    )


class _Side(Structure):
    _fields_ = (
        ("x", c_size_t),
        ("y", c_size_t),
        ("z", c_size_t),
        ("lod", c_size_t),
        ("type", c_uint32),
        ("host", ctypes.c_void_p),
        ("device", c_uint64),
        ("array", c_uint64),
        ("reserved", c_uint64),
        ("pitch", c_size_t),
        ("height", c_size_t),
    )


class Copy(Structure):
    _fields_ = (
        ("src", _Side),
        ("dst", _Side),
        ("width", c_size_t),
        ("height", c_size_t),
        ("depth", c_size_t),
    )


class Set(Structure):
    _fields_ = (
        ("dst", c_uint64),
        ("pitch", c_size_t),
        ("value", c_uint32),
        ("element", c_uint32),
        ("width", c_size_t),
        ("height", c_size_t),
    )


class HostNode(Structure):
    _fields_ = (("fn", HostFn), ("data", ctypes.c_void_p))


class Operation(Structure):
    """A wait for a value or a write of one."""

    _fields_ = (
        ("operation", c_uint32),
        ("address", c_uint64),
        ("value", c_uint64),
        ("flags", c_uint32),
        ("alias", c_uint64),
        ("pad", c_uint64),
    )


class Batch(Structure):
    _fields_ = (
        ("ctx", c_uint64),
        ("count", c_uint32),
        ("operations", POINTER(Operation)),
        ("flags", c_uint32),
    )


class Alloc(Structure):
    _fields_ = (
        ("kind", c_uint32),
        ("handles", c_uint32),
        ("where", c_uint32),
        ("device", c_uint32),
        ("security", ctypes.c_void_p),
        ("most", c_size_t),
        ("usage", c_ushort),
        ("reserved", ctypes.c_ubyte * 54),
        ("access", ctypes.c_void_p),
        ("access_count", c_size_t),
        ("bytes", c_size_t),
        ("dptr", c_uint64),
    )


class Conditional(Structure):
    _fields_ = (
        ("handle", c_uint64),
        ("type", c_uint32),
        ("size", c_uint32),
        ("graphs", POINTER(c_uint64)),
        ("ctx", c_uint64),
    )


class Child(Structure):
    _fields_ = (("graph", c_uint64), ("ownership", c_uint32))


class _Any(Union):
    _fields_ = (
        ("reserved", c_uint64 * 29),
        ("kernel", KernelNode),
        ("conditional", Conditional),
        ("child", Child),
        ("alloc", Alloc),
        ("event", c_uint64),
        ("dptr", c_uint64),
    )


class NodeParams(Structure):
    _fields_ = (
        ("type", c_uint32),
        ("reserved0", c_uint32 * 3),
        ("of", _Any),
        ("reserved2", c_uint64),
    )


class EdgeData(Structure):
    _fields_ = (
        ("from_port", ctypes.c_ubyte),
        ("to_port", ctypes.c_ubyte),
        ("type", ctypes.c_ubyte),
        ("reserved", ctypes.c_ubyte * 5),
    )


class UpdateResult(Structure):
    _fields_ = (("result", c_uint32), ("node", c_uint64), ("source", c_uint64))


class InstantiateParams(Structure):
    _fields_ = (
        ("flags", c_uint64),
        ("stream", c_uint64),
        ("node", c_uint64),
        ("result", c_uint32),
    )


def handles(values: list[int]) -> Any:
    return (c_uint64 * max(1, len(values)))(*values)


def pointers(values: list[Any]) -> Any:
    return (ctypes.c_void_p * max(1, len(values)))(*(ctypes.addressof(v) for v in values))


def copy_1d(dst: int, src: int, count: int, kinds: tuple[int, int] = (ON_DEVICE, ON_DEVICE)) -> Copy:
    """A linear copy; `kinds` of destination and source."""
    made = Copy(width=count, height=1, depth=1)
    for side, address, kind in ((made.dst, dst, kinds[0]), (made.src, src, kinds[1])):
        side.type = kind
        if kind == ON_HOST:
            side.host = address
        else:
            side.device = address
    return made


def kernel_node(
    function: int, parameters: list[Any], grid: int = 1, block: int = 1, shared: int = 0
) -> KernelNode:
    made = KernelNode(func=function, shared=shared)
    made.grid[:] = (grid, 1, 1)
    made.block[:] = (block, 1, 1)
    made.values = parameters  # alive as long as the pointers to them
    made.keep = pointers(parameters)
    made.params = made.keep
    return made


class Graph:
    """A graph; the adding methods return the new node's handle."""

    def __init__(self, cuda: Device, handle: int | None = None) -> None:
        self.cuda = cuda
        self.handle: int = cuda.out("cuGraphCreate", 0) if handle is None else handle
        self.kept: list[object] = []

    def _add(self, call: str, after: tuple[int, ...], *rest: object) -> int:
        node: int = self.cuda.out(call, self.handle, handles(list(after)), len(after), *rest)
        return node

    def kernel(
        self, function: int, parameters: list[Any], *after: int, grid: int = 1, block: int = 1
    ) -> int:
        node = kernel_node(function, parameters, grid, block)
        return self._add("cuGraphAddKernelNode_v2", after, byref(node))

    def copy(self, copy: Copy, *after: int, ctx: int = 0) -> int:
        return self._add("cuGraphAddMemcpyNode", after, byref(copy), ctx)

    def set(self, dst: int, value: int, count: int, *after: int, element: int = 4) -> int:
        node = Set(dst=dst, value=value, element=element, width=count, height=1)
        return self._add("cuGraphAddMemsetNode", after, byref(node), 0)

    def host(self, function: Any, *after: int, data: int = 0) -> int:
        wrapped = function if isinstance(function, HostFn) else HostFn(function)
        self.kept.append(wrapped)
        return self._add("cuGraphAddHostNode", after, byref(HostNode(wrapped, data)))

    def child(self, graph: Graph, *after: int) -> int:
        return self._add("cuGraphAddChildGraphNode", after, graph.handle)

    def empty(self, *after: int) -> int:
        return self._add("cuGraphAddEmptyNode", after)

    def record(self, event: int, *after: int) -> int:
        return self._add("cuGraphAddEventRecordNode", after, event)

    def wait(self, event: int, *after: int) -> int:
        return self._add("cuGraphAddEventWaitNode", after, event)

    def batch(self, operations: list[Operation], *after: int) -> int:
        array = (Operation * len(operations))(*operations)
        return self._add("cuGraphAddBatchMemOpNode", after, byref(Batch(0, len(array), array, 0)))

    def alloc(self, count: int, *after: int) -> tuple[int, int]:
        """Returns node and address."""
        node = Alloc(kind=1, where=1, bytes=count)
        return self._add("cuGraphAddMemAllocNode", after, byref(node)), node.dptr

    def free(self, address: int, *after: int) -> int:
        return self._add("cuGraphAddMemFreeNode", after, address)

    def add(self, params: NodeParams, *after: int, data: Any = None) -> int:
        node: int = self.cuda.out(
            "cuGraphAddNode_v2", self.handle, handles(list(after)), data, len(after), byref(params)
        )
        return node

    def conditional(self, handle: int, kind: int, size: int, *after: int) -> list[Graph]:
        """Returns the bodies."""
        params = NodeParams(type=CONDITIONAL)
        params.of.conditional = Conditional(handle=handle, type=kind, size=size)
        self.add(params, *after)
        return [Graph(self.cuda, params.of.conditional.graphs[i]) for i in range(size)]

    def value(self, initial: int = 0, flags: int = 1) -> int:
        handle: int = self.cuda.out(
            "cuGraphConditionalHandleCreate", self.handle, 0, initial, flags
        )
        return handle

    def nodes(self) -> list[int]:
        count = c_size_t()
        self.cuda("cuGraphGetNodes", self.handle, None, byref(count))
        array = handles([0] * count.value)
        self.cuda("cuGraphGetNodes", self.handle, array, byref(count))
        return list(array)[: count.value]

    def edges(self) -> list[tuple[int, int]]:
        count = c_size_t()
        self.cuda("cuGraphGetEdges_v2", self.handle, None, None, None, byref(count))
        first, second = handles([0] * count.value), handles([0] * count.value)
        self.cuda("cuGraphGetEdges_v2", self.handle, first, second, None, byref(count))
        return list(zip(first, second, strict=True))[: count.value]

    def instantiate(self, flags: int = 0) -> int:
        exec_: int = self.cuda.out("cuGraphInstantiateWithFlags", self.handle, flags)
        return exec_

    def run(self, stream: int = 0) -> None:
        """Instantiates, launches, waits, destroys."""
        exec_ = self.instantiate()
        self.cuda("cuGraphLaunch", exec_, stream)
        self.cuda("cuStreamSynchronize", stream)
        self.cuda("cuGraphExecDestroy", exec_)

    def destroy(self) -> None:
        self.cuda("cuGraphDestroy", self.handle)


def node_type(cuda: Device, node: int) -> int:
    kind = c_uint32(99)
    cuda("cuGraphNodeGetType", node, byref(kind))
    return kind.value


def words(cuda: Device, address: int, count: int) -> list[int]:
    raw = cuda.read(address, 4 * count)
    return list((c_uint32 * count).from_buffer_copy(raw))


def put(cuda: Device, address: int, values: list[int]) -> None:
    cuda.write(address, bytes((c_uint32 * len(values))(*values)))
