"""The messages that open a session: their opcodes, limits that several share, keys of wishes."""

from cudaspec.message import Enumeration, Number

NUMBERS = [
    Number("SECRET_BYTES", 32, "the secret of a session"),
    Number(
        "MAX_NAME_BYTES",
        256,
        "release, lease id and key, tenant, container, device name, PCI bus id",
    ),
    Number("MAX_ACCESS_TOKEN_BYTES", 8192, "an access token"),
    Number("MAX_SENTENCE_BYTES", 4096, "program, sentence, note"),
    Number("MAX_OPCODES", 4096, "opcodes of one message"),
    Number("MAX_BANDS", 64, "address bands of one kind"),
    Number("MAX_WISHES", 32, "wishes, or grants"),
]
ENUMERATIONS = [
    Enumeration(
        "WishKey",
        "u16",
        {
            "MEMORY_PPM": 1,
            "POLICY": 2,
            "PRIORITY": 3,
            "WEIGHT": 4,
            "RESUMABLE": 5,
            "SHM": 6,
            "COMPRESSION": 7,
            "CLAIM": 8,
            "WAIT": 9,
            "COMPILED": 10,
            "SEAM": 11,
            "MARKS": 12,
        },
        "The keys of wishes. A server ignores keys that it does not know.",
    )
]
