"""Graphs.  Data only, sorted by opcode.

A graph is in the client until it is instantiated. Its definition (`wire/graph_definition.h`) travels as an image (`rgpuImagePut`).
`node` is the number of a node in the definition with which the executable graph was instantiated.
"""

from cudaspec.model import Command, Meter, Mode, Work, WorkKind

COMMANDS = [
    # graph: 0, or the graph for which conditional handles were made. flags: of cuGraphInstantiate. A failure names the node.
    Command(0x0710, "rgpuGraphInstantiate", Mode.PARKED,
            request=("new exec exec", "image image", "graph graph", "u64 flags"), reply=("u32 node",),
            reports=True, charges=(Meter.GRAPH_MEMORY,)),
    # The definition has the same nodes, with the same numbers, and the same edges as the one before.
    Command(0x0711, "rgpuGraphUpdate", Mode.PARKED,
            request=("exec exec", "image image"), reply=("u32 node",), reports=True, charges=(Meter.GRAPH_MEMORY,)),
    # The definition reads the conditional handles of that graph, and takes them as an instantiation does.
    Command(0x071A, "rgpuGraphUpdateWith", Mode.PARKED,
            request=("exec exec", "image image", "graph graph"), reply=("u32 node",), reports=True,
            charges=(Meter.GRAPH_MEMORY,)),
    # parameters: one encoded node, without graphs inside.
    Command(0x0712, "rgpuGraphSetNode", Mode.CALL,
            request=("exec exec", "u32 node", "bytes parameters"), reports=True),
    # The same, for a change that the client knows to be possible.
    Command(0x0713, "rgpuGraphSetNodeLater", Mode.POSTED, request=("exec exec", "u32 node", "bytes parameters")),
    Command(0x0714, "rgpuGraphEnableNode", Mode.POSTED, request=("exec exec", "u32 node", "u32 enabled")),
    Command(0x0715, "rgpuGraphUpload", Mode.POSTED,
            request=("exec exec", "stream stream"), charges=(Meter.GRAPH_MEMORY,)),
    # delivers: the graph has host functions or copies with a host side. While it runs, the worker sends GRAPH_CALLBACK, PULL
    # and DELIVERY frames with its sequence number; an empty last DELIVERY says that it is over. The offsets of PULL and
    # DELIVERY count the bytes of all host sides of the graph, in the order of the nodes' numbers.
    Command(0x0716, "rgpuGraphLaunch", Mode.DELIVERED,
            request=("exec exec", "stream stream", "u8 delivers"), bulk="reply",
            charges=(Meter.LAUNCH,), work=Work(WorkKind.GRAPH)),
    Command(0x0717, "rgpuGraphExecDestroy", Mode.POSTED, request=("exec exec",), destroys=True, reaped=True),
    # Makes the handle that device code sets. The first one of a graph makes the worker's `graph`.
    Command(0x0718, "rgpuGraphConditional", Mode.CALL,
            request=("graph graph", "u32 default_value", "u32 flags"), reply=("u64 handle",), reports=True),
    Command(0x0719, "rgpuGraphDestroy", Mode.POSTED, request=("graph graph",), destroys=True),
]
