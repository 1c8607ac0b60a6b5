"""`cupy.cuda`: device, streams, events and memory pools of the node, as far as they can be here.

Operations of a session are executed in the order in which they were issued, so streams and events
order nothing more. A stream's `synchronize` waits until the node has done everything before it.
"""

from __future__ import annotations

from rgpu_client.cupy._current import session
from rgpu_client.cupy.cuda import compiler, device, memory, runtime, stream
from rgpu_client.cupy.cuda.device import Device
from rgpu_client.cupy.cuda.memory import (
    MemoryPool,
    OutOfMemoryError,
    PinnedMemoryPool,
    alloc_pinned_memory,
    get_default_memory_pool,
    get_default_pinned_memory_pool,
    set_allocator,
    set_pinned_memory_allocator,
    using_allocator,
)
from rgpu_client.cupy.cuda.stream import (
    Event,
    ExternalStream,
    Stream,
    get_current_stream,
    get_elapsed_time,
)

__all__ = [
    "Device", "Event", "ExternalStream", "MemoryPool", "OutOfMemoryError", "PinnedMemoryPool",
    "Stream", "alloc_pinned_memory", "compiler", "device", "get_current_stream",
    "get_default_memory_pool",
    "get_default_pinned_memory_pool", "get_elapsed_time", "is_available", "memory", "runtime",
    "set_allocator", "set_pinned_memory_allocator", "stream", "using_allocator",
]  # fmt: skip


def is_available() -> bool:
    """Returns whether there is a session. Where there is none, a warning says why, once."""
    return session.available(warning=True)
