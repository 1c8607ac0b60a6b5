"""OBSERVE and OBSERVED: what a lease has and uses, for the client's NVML. They open no session.

The connection is for this question alone: the server answers OBSERVE by OBSERVED or REFUSED and
closes. A server of an earlier release answers REFUSED with status 999.
"""

from cudaspec.message import Enumeration, Message, Number, Part, Record

NUMBERS = [
    Number("MAX_PROCESSES", 128, "processes of one lease"),
    Number("MAX_READINGS", 256, "readings of one device"),
]
ENUMERATIONS = [
    Enumeration(
        "ReadingKey",
        "u16",
        {
            "TEMPERATURE_C": 1,
            "SHUTDOWN_C": 2,
            "SLOWDOWN_C": 3,
            "POWER_MW": 4,
            "POWER_LIMIT_MW": 5,
            "FAN_PERCENT": 6,
            "PERFORMANCE_STATE": 7,
            "GRAPHICS_MHZ": 8,
            "SM_MHZ": 9,
            "MEMORY_MHZ": 10,
            "VIDEO_MHZ": 11,
            "MOST_GRAPHICS_MHZ": 12,
            "MOST_SM_MHZ": 13,
            "MOST_MEMORY_MHZ": 14,
            "MOST_VIDEO_MHZ": 15,
            "CLOCK_REASONS": 16,
            "PERSISTENCE": 17,
            "ECC": 18,
            "PCIE_GENERATION": 19,
            "PCIE_WIDTH": 20,
            "MOST_PCIE_GENERATION": 21,
            "MOST_PCIE_WIDTH": 22,
            "CORES": 23,
            "MEMORY_BUS_BITS": 24,
        },
        "The keys of readings. A client ignores keys that it does not know.",
    )
]
RECORDS = [
    Record(
        "ObservedProcess",
        (
            Part("u32 pid", "the process, as it numbers itself"),
            Part("u64 memory_bytes", "memory that it holds"),
            Part("u64 device_ns", "device time that it has used"),
            Part("text program", "its program", most="MAX_NAME_BYTES", cleaned=True),
        ),
        "A process with a session in the lease.",
    ),
    Record(
        "Reading",
        (Part("u16 key", "a ReadingKey"), Part("u64 value")),
        "What the node's management library says of the device.",
    ),
]
MESSAGES = [
    Message(
        13,
        "OBSERVE",
        "client",
        "The question what the lease of this client has and uses. It makes no lease. 0: not asked for.",
        (
            Part("magic magic"),
            Part("u16 major", "wire major", default="WIRE_MAJOR"),
            Part("u16 minor", "wire minor", default="WIRE_MINOR"),
            Part(
                "text access_token",
                "the access token, empty for none",
                most="MAX_ACCESS_TOKEN_BYTES",
                hidden=True,
            ),
            Part("text lease_key", "key of the lease, as in HELLO", most="MAX_NAME_BYTES"),
            Part("text tenant", "the tenant that the client wishes to be", most="MAX_NAME_BYTES"),
            Part("text container", "the client's container", most="MAX_NAME_BYTES"),
            Part("i32 device", "ordinal of the device; -1: any", default=-1),
            Part("u64 memory_bytes", "memory that a lease would be asked for"),
            Part("u32 memory_ppm", "the same in millionths of the device's memory"),
        ),
        contract="Of an OBSERVE with another `major`, only `major` and `minor` are read: refuse it with status 803.",
        stops=("minor", "major", "WIRE_MAJOR"),
    ),
    Message(
        14,
        "OBSERVED",
        "server",
        "The device, and the lease of the client on it. Shares are in millionths.",
        (
            Part(
                "text release", "the server's release of rgpu", most="MAX_NAME_BYTES", cleaned=True
            ),
            Part(
                "text driver",
                "release of the node's driver",
                most="MAX_NAME_BYTES",
                cleaned=True,
            ),
            Part("i32 cuda_version", "the version that cuDriverGetVersion returns; 0: unknown"),
            Part(
                "text lease_id",
                "id of the lease; empty: there is none yet",
                most="MAX_NAME_BYTES",
                cleaned=True,
            ),
            Part("text tenant", "the tenant that is charged", most="MAX_NAME_BYTES", cleaned=True),
            Part("u32 device", "number of the device"),
            Part("text name", "name of the device", most="MAX_NAME_BYTES", cleaned=True),
            Part("text uuid", "as in `GPU-...`", most="MAX_NAME_BYTES", cleaned=True),
            Part(
                "text pci_bus_id",
                "as in `0000:01:00.0`, as in WELCOME",
                most="MAX_NAME_BYTES",
                cleaned=True,
            ),
            Part(
                "text mig",
                "profile of a MIG slice; empty for a whole GPU",
                most="MAX_NAME_BYTES",
                cleaned=True,
            ),
            Part("u32 compute_major", "compute capability"),
            Part("u32 compute_minor", "compute capability"),
            Part("u64 memory_limit_bytes", "memory limit of the lease"),
            Part("u64 memory_used_bytes", "memory that the lease uses"),
            Part("u32 share_request_ppm", "guaranteed share of the lease"),
            Part("u32 share_limit_ppm", "largest share of the lease"),
            Part("u32 share_ppm", "device time of the lease in the last second"),
            Part("u64 clock_ns", "a clock of the server that only grows"),
            Part("ObservedProcess# processes", "in the lease, by pid", most="MAX_PROCESSES"),
            Part("Reading[] readings", "by key", most="MAX_READINGS"),
        ),
    ),
]
