"""The form of the specification: what a row contains. The rows are in `calls/` and `commands/`.

A **Call** is a function of the CUDA driver API as an application calls it. A **Command** is what
the client sends: one opcode, one request layout, one reply layout. Several calls may send the same
command (every copy to the device sends `rgpuCopyHtoD`). A call that the client answers itself sends
none.
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
    """The resource for which a command is charged or gated."""

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
"""Meters of device time: a command that names one waits until its lease may use the device."""

DEVICE_MEMORY = frozenset(set(Meter) - DEVICE_TIME)
"""Meters of device memory. A command that names one is charged to its lease, before or directly
after the driver is asked (docs/explanation/quotas-memory.md).
"""


class WorkKind(enum.Enum):
    """The measurements from which the executor predicts the device time of a command."""

    LAUNCH = "launch"
    COPY_IN = "copy in"
    COPY_OUT = "copy out"
    COPY_WITHIN = "copy within"
    SET = "set"
    GRAPH = "graph"


class WorkBound(enum.Enum):
    """The most bytes that one prediction counts. A client may ask for any number of bytes."""

    LEASE = "lease"  # the memory of the lease: a longer copy is refused later
    FIXED = "fixed"  # a constant of the executor
    PIECE = "piece"  # one piece: the copy asks the gate again for each piece


@dataclass(frozen=True, slots=True)
class Work:
    """The device work of a command, for the prediction of its device time.

    bytes: the length of a copy or set, an expression over the request's fields. The name `bulk`
        means the number of bulk bytes of the frame. A launch has none: its fields `function` and
        `kernel` name what runs. Nor has the launch of a graph: its field `exec` names the graph.
    """

    kind: WorkKind
    bytes: str = ""
    bound: WorkBound = WorkBound.LEASE


@dataclass(frozen=True, slots=True)
class In:
    """A pointer that the call reads: one element of its type, or `len` bytes, or `count` elements.

    Lengths are expressions over parameter names with `+ *` and integers.

    nullable: null is legal.
    empty: null is legal if the length is 0.
    text: terminated by a zero byte.
    late: why the generated guard does not check the pointer: the function checks it, after
        something else.
    """

    len: str | None = None
    count: str | None = None
    nullable: bool = False
    empty: bool = False
    text: bool = False
    late: str = ""


@dataclass(frozen=True, slots=True)
class Out:
    """A pointer that the call writes; the fields are those of `In`.

    creates: the kind of handle that is returned.
    """

    len: str | None = None
    count: str | None = None
    nullable: bool = False
    text: bool = False
    creates: str | None = None
    late: str = ""


@dataclass(frozen=True, slots=True)
class InOut:
    """A pointer that the call reads and writes; the fields are those of `In`."""

    len: str | None = None
    count: str | None = None
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class Value:
    """A pointer that the call treats as a number and does not follow: user data, a host address."""

    nullable: bool = True


@dataclass(frozen=True, slots=True)
class Image:
    """A pointer to a module image. Its length is in its header, or it is a string (PTX)."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A pointer whose length is given elsewhere: by an attribute, a kernel, or a count in
    memory.
    """

    nullable: bool = False
    late: str = ""


@dataclass(frozen=True, slots=True)
class Device:
    """A number that names a device; CUDA_ERROR_INVALID_DEVICE if the lease has no such device."""


@dataclass(frozen=True, slots=True)
class Flags:
    """A number of which only the bits of these enumerators may be set."""

    bits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Range:
    """A number from `least` to `most`, each an integer or an enumerator; None: no limit."""

    least: int | str | None = None
    most: int | str | None = None


@dataclass(frozen=True, slots=True)
class NotZero:
    """A number that must not be 0."""


Pointer = In | Out | InOut | Value | Image | Layout
Number = Device | Flags | Range | NotZero
Arg = Pointer | Number


@dataclass(frozen=True, slots=True)
class Forward:
    """The call is one request and one reply, without a table of the client or the worker.

    opcode: a new command with this number is made from the row: its name is that of the function
        with `rgpu` for `cu`, and its fields are the parameters. The worker's handler calls the
        driver's function of the same name.
    command: instead, the existing command that is sent. Its fields have the parameters' names.
    context: the call needs a current context.
    charges: the meters of the new command.
    """

    opcode: int = 0
    command: str = ""
    context: bool = False
    charges: tuple[Meter, ...] = ()


@dataclass(frozen=True, slots=True)
class Call:
    """A function of the driver API.

    prototype: C declaration, verbatim, with the exported symbol's name.
    mode: the class.
    args: direction and length of every pointer parameter, and the numbers that have limits. The
        exports of the shim and the emulated device check them in this order before the function
        runs: CUDA_ERROR_INVALID_VALUE, or CUDA_ERROR_INVALID_DEVICE for a `Device`.
    sends: names of the commands that its client code may send (none for LOCAL and UNSUPPORTED).
    forward: the functions of client and worker are generated; then `sends` is not given.
    state: the client table that answers or checks the call (Dev Ctx Mod Adr Arr Tex Str Evt Gra
        Link Log Table).
    reports: the call may return an earlier asynchronous error (`\\notefnerr`).
    twins: the call is also exported with this suffix, `_ptds` or `_ptsz` (per-thread default
        stream).
    alias: this row is an older symbol with the same C signature; the named newer function
        implements it.
    waits: a LOCAL call that may nevertheless wait (for the session to open, for deliveries).
    early: the call is legal before cuInit.
    current: the driver looks for the thread's current context before it looks at the arguments:
        without one a bad argument gives CUDA_ERROR_INVALID_CONTEXT.
    explains: UNSUPPORTED, but found by name; its function in the shim says why it fails.
    reason: why an UNSUPPORTED or PLANNED call is not implemented, in a few words.
    error: the name of the error that an unsupported call returns.
    """

    prototype: str
    mode: Mode
    args: Mapping[str, Arg] = field(default_factory=dict)
    sends: tuple[str, ...] = ()
    forward: Forward | None = None
    state: str = ""
    reports: bool = False
    twins: str = ""
    alias: str = ""
    waits: bool = False
    early: bool = False
    current: bool = False
    explains: bool = False
    reason: str = ""
    error: str = "CUDA_ERROR_NOT_SUPPORTED"


@dataclass(frozen=True, slots=True)
class Command:
    """A message that the client sends: one opcode.

    request, reply: fields in wire order, each "type name". Types: u8 u16 u32 i32 u64 i64 f32 f64
        address bytes, and the handle kinds context stream event module library kernel function
        pool link image memory array mipmap; "new event event" is a handle that the client creates
        with this command.
    bulk: the frame has bulk bytes after the head ("request" or "reply").
    reports: the command returns the thread's deferred error if there is one (only calls).
    destroys: the command is executed even if it returns a deferred error.
    drains: the command waits for the whole context, so it returns deferred errors of all threads.
    charges: meters; a command that allocates or runs device work must name one.
    reaped: the command takes effect in the tables in order; the reaper carries it out when its
        fences are complete.
    passes_gate: the command only asks, so it may pass device work that waits for its turn. It does
        not pass a waiting command that concerns the same event.
    concerns: the event field that the command creates, changes or asks for, or "none". Every
        command with an event field says one or the other.
    work: the device work; exactly the commands that are charged for device time have it.
    names: constants of an integer field: {field: {constant: value}}.
    optional: the client does without the command where the server lacks it. A function that sends
        it is found all the same.
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
    concerns: str = ""
    work: Work | None = None
    names: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Error:
    """A value of CUresult with the string of cuGetErrorString."""

    value: int
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Enum:
    """An enumeration of cuda.h. `tag`: its C tag if that is not NAME_enum."""

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
    """A pointer to a function of the client. `declaration`: the text after `typedef`."""

    name: str
    declaration: str


@dataclass(frozen=True, slots=True)
class Struct:
    """A structure or union.

    `fields`: C declarations without semicolons, in order. A union without a name is one field.
    `grows`: fields that are larger in headers after CUDA 13.0, and the structure's own name if it
    is larger itself.
    """

    name: str
    tag: str
    fields: tuple[str, ...]
    union: bool = False
    grows: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Opaque:
    """A type that only calls of later releases use: it has a name but no layout."""

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

    versions: (first CUDA version for which cuGetProcAddress returns the symbol, symbol).
    twins: the per-thread twins that exist, each a symbol of `versions` with `_ptds` or `_ptsz`.
    """

    name: str
    versions: tuple[tuple[int, str], ...]
    twins: tuple[str, ...] = ()
