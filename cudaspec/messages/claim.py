"""CLAIMED and PLACE: the answers to a HELLO that asks for a lease and no session.

The server answers a HELLO with the wish CLAIM by CLAIMED or REFUSED. If the HELLO also has the wish
WAIT (milliseconds), the server first sends PLACE each time the claim's place in line changes. The
lease is held as long as the connection exists. A server of an earlier release ignores the wish and
answers WELCOME.
"""

from cudaspec.message import Enumeration, Message, Part

ENUMERATIONS = [
    Enumeration(
        "Claim",
        "u64",
        {"WANTED": 1, "OWN": 2},
        "The bits of the wish's value. OWN: the lease is for this run alone and ends with it.",
        flags=True,
    )
]
MESSAGES = [
    Message(
        11,
        "CLAIMED",
        "server",
        "The claim has its lease: the device and the limits. Shares are in millionths.",
        (
            Part(
                "text release", "the server's release of rgpu", most="MAX_NAME_BYTES", cleaned=True
            ),
            Part("text lease_id", "id of the lease", most="MAX_NAME_BYTES", cleaned=True),
            Part("text key", "key of the lease", most="MAX_NAME_BYTES", cleaned=True),
            Part("text tenant", "the tenant that is charged", most="MAX_NAME_BYTES", cleaned=True),
            Part("text device_name", "name of the device", most="MAX_NAME_BYTES", cleaned=True),
            Part("u32 device", "number of the device"),
            Part("u64 device_bytes", "memory of the device"),
            Part("u64 memory_bytes", "memory limit of the lease"),
            Part("u32 share_request_ppm", "guaranteed share of the lease"),
            Part("u32 share_limit_ppm", "largest share of the lease"),
        ),
        python=True,
    ),
    Message(
        12,
        "PLACE",
        "server",
        "The claim waits in line.",
        (
            Part("u32 place", "place in the line, from 1"),
            Part("u32 waiting", "number of claims in the line"),
            Part(
                "text sentence", "what the claim waits for", most="MAX_SENTENCE_BYTES", cleaned=True
            ),
        ),
        python=True,
    ),
]
