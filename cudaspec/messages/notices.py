"""Notices, which the worker sends unasked on the command lane."""

from cudaspec.message import Message, Part

NOTICES = [
    Message(
        1,
        "CREDIT",
        "worker",
        "`completed` launches and async copies of this stream are complete.",
        (Part("u64 stream"), Part("u64 completed")),
    ),
    Message(
        2,
        "COMPLETED",
        "worker",
        "The event or stream that a query asked to be notified of is complete; time 0: ask `rgpuEventElapsedTime`.",
        (Part("u64 object"), Part("u64 version"), Part("u64 time_ns")),
    ),
    Message(
        3,
        "STICKY",
        "worker",
        "Every call of the session fails with `status` from now on.",
        (Part("u32 context"), Part("printable sentence")),
    ),
    Message(
        4,
        "PULL",
        "worker",
        "The stream has come to command `seq`, which needs these host bytes; the client answers with PULL_DATA.",
        (Part("u64 pull"), Part("u64 offset"), Part("u64 bytes")),
    ),
    Message(
        5,
        "CALLBACK",
        "worker",
        "The stream has come to command `seq`, an `rgpuHostFunction`; the client runs its function and answers with CALLBACK_DONE.",
        (Part("u64 callback"),),
    ),
    Message(
        6,
        "LOG",
        "worker",
        "Level 0: text that kernels print, for stdout; 1: the reason of an error, for stderr; 2: a warning, for stderr; 3: lines of asserts that have failed in kernels, for stderr as they are.",
        (Part("u32 level"), Part("printable text")),
    ),
    Message(7, "ACK", "worker", "Every command up to `seq` is decoded."),
    Message(
        8,
        "COMPILED",
        "worker",
        "The driver took `ns` to load, and perhaps compile, this kernel, or a module (no name); sent only to a client that wished it.",
        (Part("u64 ns"), Part("printable name")),
    ),
    Message(
        9,
        "MEMORY_CREDIT",
        "worker",
        "The session has been granted `granted` bytes of memory credit in all; every free of backed memory up to command `freed` is carried out; wanted 1: the client returns what it has not used.",
        (Part("u64 granted"), Part("u64 freed"), Part("u8 wanted")),
    ),
    Message(
        10,
        "GRAPH_CALLBACK",
        "worker",
        "The graph that command `seq` launched has come to this host node; the client runs its function and answers with CALLBACK_DONE.",
        (Part("u64 callback"), Part("u32 node")),
    ),
]
CONTROLS = [
    Message(1, "BYE", "client", "The application has ended: free everything."),
    Message(2, "CANCEL", "client", "Stop waiting in this call.", (Part("u64 seq"),)),
    Message(
        3,
        "PULL_DATA",
        "client",
        "The bytes that PULL asked for.",
        (Part("u64 pull"), Part("u64 offset")),
        bulk=True,
    ),
    Message(
        4,
        "CALLBACK_DONE",
        "client",
        "The host function of this CALLBACK has returned.",
        (Part("u64 callback"),),
    ),
    Message(5, "KEEP_ALIVE", "client", "Nothing has happened."),
    Message(
        6,
        "COPY_DONE",
        "client",
        "The bytes of this `rgpuCopyInDirect` or `rgpuCopyOutDirect` are copied: its stream goes on.",
        (Part("u64 ticket"),),
    ),
    Message(
        7,
        "CREDIT_RETURN",
        "client",
        "The client has returned `returned` bytes of memory credit in all.",
        (Part("u64 returned"),),
    ),
]
