"""What daemon and worker say to each other on the worker's control socket.

A PTX compiler says READY in the same way when it has started.
"""

from cudaspec.message import Channel, Enumeration, Fd, Message, Number, Part

CHANNEL = Channel("worker", "the control socket of a worker", packets=True)
NUMBERS = [
    Number("MAX_MESSAGE_BYTES", 196608, "a message of the control socket"),
    Number("MAX_LINE_BYTES", 8192, "a reason, a sentence, a report of isolation"),
    Number("MAX_ENVIRONMENT_BYTES", 65536, "the environment of a worker"),
    Number("MAX_CLIENT_HEAD_BYTES", 65536, "the head of a client's message"),
    Number(
        "MAX_IPC_HANDLE_BYTES", 64, "the driver's handle of memory or an event for another process"
    ),
]
ENUMERATIONS = [
    Enumeration(
        "Ring",
        "u8",
        {"NOT_WISHED": 0, "USED": 1, "NOT_LOCAL": 2, "NOT_MADE": 3, "DECLINED": 4},
        "Whether the session uses the ring in shared memory that a client may ask for. NOT_LOCAL: the command lane is not a Unix socket. NOT_MADE: the system gave no memory. DECLINED: the client refused the ring. In these cases the session stays on the socket.",
    ),
    Enumeration(
        "Shared",
        "u8",
        {"MEMORY": 0, "EVENT": 1, "MAPPABLE": 2},
        "What a worker exports to other workers of its lease.",
    ),
]
MESSAGES = [
    Message(
        1,
        "ASSIGN",
        "daemon",
        "The worker's one session. Sizes are in bytes.",
        (
            Part("u64 session", "number of the session"),
            Part("secret secret", "a connection that shows it may attach", hidden=True),
            Part("u32 slot", "the session's slot in the lease page"),
            Part("u64 memory_limit_bytes", "memory limit of the lease"),
            Part("u32 stream_credits", "launches and async copies per stream", default=512),
            Part("u64 stream_credit_bytes", "their payload per stream", default=16777216),
            Part("i32 device", "ordinal of the device in the library"),
            Part("text tenant", "the tenant that is charged", most="MAX_NAME_BYTES", cleaned=True),
            Part(
                "strings environment",
                "`K=V`, set before cuInit",
                most="MAX_ENVIRONMENT_BYTES",
            ),
            Part(
                "bytes hello",
                "the head of the client's HELLO, as received",
                most="MAX_CLIENT_HEAD_BYTES",
                hidden=True,
            ),
            Part(
                "u32 resume_grace_ms",
                "how long a lane may have no connection; 0: the session cannot be resumed",
            ),
            Part("bool compression", "compression may be granted"),
        ),
        fds=(
            Fd("lane", "the client's command connection"),
            Fd("grants", "the lease page's file of grants, read-only"),
            Fd("usage", "the lease page's file of usage"),
            Fd("signal", "the lease's eventfd"),
            Fd("compiler", "a compiler's socket, for the emulated device", optional=True),
            Fd("places", "where an array worker locks a byte while it compiles", optional=True),
        ),
    ),
    Message(
        2,
        "ATTACH",
        "daemon",
        "The session has its control lane.",
        fds=(Fd("lane", "the client's control connection"),),
    ),
    Message(
        3,
        "END",
        "daemon",
        "The worker tells the client (a sticky error) and ends.",
        (
            Part("i32 status", "a CUresult"),
            Part("line sentence", "why the session ends", most="MAX_LINE_BYTES"),
        ),
    ),
    Message(
        4,
        "RESUME",
        "daemon",
        "A client resumes a lane. The daemon has checked the secret; the worker checks it again and answers.",
        (
            Part(
                "bytes head",
                "the head of the client's RESUME",
                most="MAX_CLIENT_HEAD_BYTES",
                hidden=True,
            ),
        ),
        fds=(Fd("link", "the new connection"),),
    ),
    Message(
        5,
        "EXPORT_WANTED",
        "daemon",
        "Another session of the lease opens an export of this worker. Answered with EXPORT_GIVEN.",
        (
            Part("u64 ticket", "for the answer"),
            Part("u64 number", "number of the export"),
            Part("Shared shared", "0 memory, 1 an event, 2 memory of cuMemCreate"),
            Part("secret secret", "shows that the other session has the token", hidden=True),
        ),
    ),
    Message(
        6,
        "EXPORT_OPENED",
        "daemon",
        "The answer to OPEN_EXPORT.",
        (
            Part("u64 request", "from OPEN_EXPORT"),
            Part("i32 status", "a CUresult; if it is not 0, the rest means nothing"),
            Part("u64 size", "bytes of the memory; 0 for an event"),
            Part("bytes handle", "the driver's handle", most="MAX_IPC_HANDLE_BYTES", hidden=True),
        ),
        fds=(Fd("file", "the memory, or of an emulated device the event", optional=True),),
    ),
    Message(
        7,
        "EXPORT_RELEASED",
        "daemon",
        "A session that had opened an export of this worker has closed it, or has ended.",
        (Part("u64 number", "number of the export"),),
    ),
    Message(
        8,
        "WARN",
        "daemon",
        "The worker sends this sentence to the program, which goes on.",
        (Part("line sentence", "what the program is to know", most="MAX_LINE_BYTES"),),
    ),
    Message(
        16,
        "READY",
        "worker",
        "The process has started, and waits for its first message.",
        (
            Part(
                "line report",
                "the isolation that this machine did not allow, as `MEASURE: reason; ...` (`rgpu_common/native/confine/rights.h`)",
                most="MAX_LINE_BYTES",
            ),
        ),
    ),
    Message(
        17,
        "OPENED",
        "worker",
        "The worker has sent WELCOME to the client.",
        (
            Part("band band", "the session's device addresses"),
            Part(
                "Ring ring",
                "0 not asked for, 1 used, 2 the command lane is not a Unix socket, 3 the system gave no memory, 4 the client declined",
            ),
        ),
    ),
    Message(
        18,
        "REFUSED",
        "worker",
        "The worker has sent REFUSED to the client.",
        (
            Part("i32 status", "a CUresult"),
            Part("line sentence", "the reason", most="MAX_LINE_BYTES"),
        ),
    ),
    Message(
        19,
        "ENDED",
        "worker",
        "The session is over; the worker's last message.",
        (Part("line reason", "why it ended", most="MAX_LINE_BYTES"),),
    ),
    Message(
        20,
        "RESUMED",
        "worker",
        "A lane has a new connection.",
        (
            Part("Lane lane", "0 command, 1 control"),
            Part("u32 epoch", "number of this connection of the lane"),
            Part("bool moved", "the old connection still worked"),
            Part("u64 resent_bytes", "bytes that were sent again"),
        ),
    ),
    Message(
        21,
        "OPEN_EXPORT",
        "worker",
        "The session opens what another session of the lease has exported.",
        (
            Part("u64 request", "for the answer"),
            Part("u64 exporter", "the other session"),
            Part("u64 number", "number of the export"),
            Part("Shared shared", "0 memory, 1 an event, 2 memory of cuMemCreate"),
            Part("secret secret", "from the token", hidden=True),
        ),
    ),
    Message(
        22,
        "EXPORT_GIVEN",
        "worker",
        "The answer to EXPORT_WANTED. With status 0 the export counts as opened by one more session.",
        (
            Part("u64 ticket", "from EXPORT_WANTED"),
            Part("i32 status", "a CUresult; if it is not 0, the rest means nothing"),
            Part("u64 size", "bytes of the memory; 0 for an event"),
            Part("u64 charged", "what the lease is charged for the memory"),
            Part("bytes handle", "the driver's handle", most="MAX_IPC_HANDLE_BYTES", hidden=True),
        ),
        fds=(Fd("file", "the memory, or of an emulated device the event", optional=True),),
    ),
    Message(
        23,
        "EXPORT_CLOSED",
        "worker",
        "The session has closed an export that it had opened.",
        (
            Part("u64 exporter", "the other session"),
            Part("u64 number", "number of the export"),
        ),
    ),
]
