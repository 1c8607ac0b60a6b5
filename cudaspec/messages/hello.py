"""HELLO: the first message of a client."""

from cudaspec.message import Message, Number, Part, Record

NUMBERS = [
    Number("WISHES_MINOR", 1, "a HELLO of this minor or later ends with wishes", "u16"),
    Number(
        "GRANTS_MINOR",
        2,
        "the WELCOME to a HELLO of this minor or later may end with grants",
        "u16",
    ),
]
RECORDS = [
    Record(
        "OpcodeHash",
        (Part("u16 opcode"), Part("u32 layout_hash")),
        "An opcode and the CRC-32 of its canonical text.",
    )
]
MESSAGES = [
    Message(
        1,
        "HELLO",
        "client",
        "The first message of a client. Sizes are in bytes, shares in millionths of a device; 0 leaves the choice to the server.",
        (
            Part("magic magic"),
            Part("u16 major", "wire major", default="WIRE_MAJOR"),
            Part(
                "u16 minor",
                "wire minor: the lowest one that holds what the client says",
                default="WIRE_MINOR",
            ),
            Part("text release", "the client's release of rgpu", most="MAX_NAME_BYTES"),
            Part(
                "text access_token",
                "the access token, empty for none",
                most="MAX_ACCESS_TOKEN_BYTES",
                hidden=True,
            ),
            Part(
                "text lease_key",
                "processes with one lease key share one lease",
                most="MAX_NAME_BYTES",
            ),
            Part("text tenant", "the tenant that the client wishes to be", most="MAX_NAME_BYTES"),
            Part("text container", "the client's container", most="MAX_NAME_BYTES"),
            Part("text program", "the client's program", most="MAX_SENTENCE_BYTES"),
            Part("u32 pid", "the client's process"),
            Part("i32 device", "ordinal of the device; -1: any", default=-1),
            Part("u64 memory_bytes", "memory of the lease"),
            Part("u32 share_request_ppm", "guaranteed share of the lease"),
            Part("u32 share_limit_ppm", "largest share of the lease"),
            Part("u64 resume_session", "reserved: 0"),
            Part("u64 resume_seq", "reserved: 0"),
            Part(
                "bands device_bands",
                "where the client could reserve device addresses",
                most="MAX_BANDS",
            ),
            Part(
                "bands pinned_bands",
                "where the client could reserve pinned host memory",
                most="MAX_BANDS",
            ),
            Part(
                "OpcodeHash[] opcodes", "the commands that the client may send", most="MAX_OPCODES"
            ),
            Part(
                "wishes wishes",
                "what the client asks for besides",
                most="MAX_WISHES",
                minor="WISHES_MINOR",
            ),
        ),
        contract="Of a HELLO with another `major`, only `major` and `minor` are read: refuse it with status 803. Refuse what is malformed with status 999.",
        stops=("minor", "major", "WIRE_MAJOR"),
    )
]
