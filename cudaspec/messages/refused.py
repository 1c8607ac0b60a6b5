"""REFUSED: a server's answer that gives no session."""

from cudaspec.message import Message, Part

MESSAGES = [
    Message(
        3,
        "REFUSED",
        "server",
        "There is no session. The header's `status` is 46 (no lease), 803 (another wire major) or 999.",
        (
            Part(
                "text sentence",
                "the reason, and the remedy",
                most="MAX_SENTENCE_BYTES",
                cleaned=True,
            ),
        ),
        status=True,
    )
]
