"""The form of the specification: what a row may say.  Rows live in `calls/` and `commands/`.

A **Call** is a function of the CUDA driver API as an application calls it.  A **Command** is what
travels: one opcode, one request layout, one reply layout.  Several calls may send the same command
(every copy to the device sends `rgpuCopyHtoD`); a call that is answered in the client sends none.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class Mode(enum.Enum):
    """The class of a call or command (the letters of the published class table)."""

    LOCAL = "L"
    POSTED = "P"
    DELIVERED = "PD"
    CALL = "C"
    PARKED = "CW"
    UNSUPPORTED = "N"
    PLANNED = "planned"


class Meter(enum.Enum):
    """What a command is charged or gated for."""

    VRAM = "vram"
    POOL = "pool"
    MODULE = "module"
    CONTEXT = "context"
    LOCAL_MEMORY = "local_memory"
    ARRAY = "array"
    VMM = "vmm"
    MANAGED = "managed"
    GRAPH_MEMORY = "graph_memory"
    LAUNCH = "launch"
    COPY = "copy"


DEVICE_TIME = frozenset({Meter.LAUNCH, Meter.COPY})
"""The meters of time: a command that names one waits for its lease's turn on the device."""

DEVICE_MEMORY = frozenset(set(Meter) - DEVICE_TIME)
"""The meters of memory: a command that names one is charged to its lease before or right after the
driver is asked (docs/explanation/quotas-memory.md)."""


@dataclass(frozen=True, slots=True)
class In:
    """A pointer read by the call: one element of its type, or `len` bytes, or `count` elements.

    Lengths are expressions over parameter names with `+ *` and integers.
    text: ended by a zero byte.
    """

    len: str | None = None
    count: str | None = None
    nullable: bool = False
    text: bool = False


@dataclass(frozen=True, slots=True)
class Out:
    """A pointer written by the call; lengths as in `In`.

    creates: the kind of handle it returns.
    """

    len: str | None = None
    count: str | None = None
    nullable: bool = False
    text: bool = False
    creates: str | None = None


@dataclass(frozen=True, slots=True)
class InOut:
    """A pointer read and written by the call; lengths as in `In`."""

    len: str | None = None
    count: str | None = None
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class Value:
    """A pointer that the call takes as a number, not followed: user data, a host address."""


@dataclass(frozen=True, slots=True)
class Image:
    """A pointer to a module image: its length is in its header, or it is a string (PTX)."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A pointer whose length is decided elsewhere: by an attribute, a kernel, a count in memory."""

    nullable: bool = False


Arg = In | Out | InOut | Value | Image | Layout


@dataclass(frozen=True, slots=True)
class Call:
    """A function of the driver API.

    prototype: C declaration, verbatim, with the exported symbol's name.
    mode: its class.
    args: direction and length of every pointer parameter.
    sends: names of the commands its client code may send (none for LOCAL and UNSUPPORTED).
    state: the client table that answers or checks it (Dev Ctx Mod Adr Str Evt Link Table).
    reports: may return an earlier asynchronous error (`\\notefnerr`).
    twins: also exported with this suffix, `_ptds` or `_ptsz` (per-thread default stream).
    alias: an older symbol with the same C signature, answered by the body of this newer one.
    waits: a LOCAL call that may all the same wait (for the session to open, for deliveries).
    early: legal before cuInit.
    explains: UNSUPPORTED, but found by name and with a body in the shim, which says why.
    reason: for UNSUPPORTED and PLANNED, why, in a few words.
    error: what an unsupported call returns, by name.
    """

    prototype: str
    mode: Mode
    args: Mapping[str, Arg] = field(default_factory=dict)
    sends: tuple[str, ...] = ()
    state: str = ""
    reports: bool = False
    twins: str = ""
    alias: str = ""
    waits: bool = False
    early: bool = False
    explains: bool = False
    reason: str = ""
    error: str = "CUDA_ERROR_NOT_SUPPORTED"


@dataclass(frozen=True, slots=True)
class Command:
    """What travels: one opcode.

    request, reply: fields in wire order, each "type name".  Types: u8 u16 u32 i32 u64 i64 f32 f64
        address bytes, and the handle kinds context stream event module library kernel function
        pool link image;
        "new event event" is a handle minted by the client with this command.
    bulk: the frame carries bulk bytes after the head ("request" or "reply").
    reports: gets the thread's deferred error as its answer (only calls).
    destroys: is executed all the same when it gets one.
    drains: waits for the whole context, so it gets the slots of all threads.
    charges: meters; a command that allocates or runs device work without one does not generate.
    reaped: takes effect in order in the tables, carried out by the reaper when its fences are
        complete.
    passes_gate: only asks, so it need not stay behind device work that waits for its turn.
    """

    opcode: int
    name: str
    mode: Mode
    request: tuple[str, ...] = ()
    reply: tuple[str, ...] = ()
    bulk: str = ""
    reports: bool = False
    destroys: bool = False
    drains: bool = False
    charges: tuple[Meter, ...] = ()
    reaped: bool = False
    passes_gate: bool = False
    since: int = 1


@dataclass(frozen=True, slots=True)
class Error:
    """A value of CUresult with the string of cuGetErrorString."""

    value: int
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Enum:
    """An enumeration of cuda.h.  `tag`: its C tag where that is not NAME_enum."""

    name: str
    values: Mapping[str, int]
    tag: str = ""


@dataclass(frozen=True, slots=True)
class Handle:
    """An opaque object: `typedef struct TAG *NAME`."""

    name: str
    tag: str


@dataclass(frozen=True, slots=True)
class Alias:
    """`typedef TYPE NAME`."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Callback:
    """A pointer to a client's function.  `declaration`: what follows `typedef`."""

    name: str
    declaration: str


@dataclass(frozen=True, slots=True)
class Struct:
    """A structure or union.  `fields`: C declarations without the semicolon, in order."""

    name: str
    tag: str
    fields: tuple[str, ...]
    union: bool = False


@dataclass(frozen=True, slots=True)
class Opaque:
    """A type that only calls of later releases use: named, not laid out."""

    name: str


@dataclass(frozen=True, slots=True)
class Constant:
    """`#define NAME TEXT`."""

    name: str
    text: str


Type = Enum | Handle | Alias | Callback | Struct | Opaque


@dataclass(frozen=True, slots=True)
class Symbols:
    """The exported symbols of one documented name, oldest first.

    versions: (CUDA version from which cuGetProcAddress answers it, symbol).
    twins: the per-thread twins that exist, each a symbol of `versions` with `_ptds` or `_ptsz`.
    """

    name: str
    versions: tuple[tuple[int, str], ...]
    twins: tuple[str, ...] = ()
