"""WELCOME: the answer that opens a session."""

from cudaspec.message import Message, Number, Part, Record

NUMBERS = [
    Number("MAX_DEVICES", 16, "devices of one session"),
    Number("MAX_ATTRIBUTES", 400, "attributes of one device"),
]
RECORDS = [
    Record("Attribute", (Part("i32 id"), Part("i32 value")), "A CUdevice_attribute and its value."),
    Record(
        "DeviceInfo",
        (
            Part("text name", "the name that the program sees", most="MAX_NAME_BYTES"),
            Part("uuid uuid", "the device's UUID"),
            Part("u64 total_bytes", "memory of the device"),
            Part("text pci_bus_id", "as in `0000:01:00.0`", most="MAX_NAME_BYTES"),
            Part(
                "Attribute[] attributes",
                "the values of cuDeviceGetAttribute",
                most="MAX_ATTRIBUTES",
            ),
            Part("u64 default_pool", "handle of the default memory pool"),
            Part("i32 least_priority", "least priority of a stream"),
            Part("i32 greatest_priority", "greatest priority of a stream"),
        ),
        "A device of a session.",
    ),
]
MESSAGES = [
    Message(
        2,
        "WELCOME",
        "worker",
        "The worker's answer to HELLO, which opens the session.",
        (
            Part("u64 session", "number of the session"),
            Part(
                "secret secret",
                "a connection that shows it may attach and resume lanes",
                hidden=True,
            ),
            Part("text release", "the server's release of rgpu", most="MAX_NAME_BYTES"),
            Part("band band", "device addresses; of size 0: the device library chooses them"),
            Part("band pinned", "addresses of pinned host memory"),
            Part("u32 stream_credits", "launches and async copies in flight per stream"),
            Part("u64 stream_credit_bytes", "their payload in flight per stream"),
            Part("u64 memory_limit_bytes", "memory limit of the lease"),
            Part("i32 driver_version", "the version that cuDriverGetVersion returns"),
            Part(
                "u16[] missing",
                "opcodes of HELLO that the worker lacks or knows with another hash",
                most="MAX_OPCODES",
            ),
            Part("DeviceInfo# devices", "the devices of the session", most="MAX_DEVICES"),
            Part(
                "text note",
                "a sentence about the device library, for the client's log",
                most="MAX_SENTENCE_BYTES",
            ),
            Part(
                "wishes grants",
                "what the server grants of the wishes with the same keys; at least one, and only to a HELLO of minor 2 or later",
                most="MAX_WISHES",
                optional=True,
            ),
        ),
    )
]
