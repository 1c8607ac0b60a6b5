"""SHM: the client's answer to shared-memory rings."""

from cudaspec.message import Message, Part

MESSAGES = [
    Message(
        9,
        "SHM",
        "client",
        "The answer to the rings that came with WELCOME.",
        (
            Part("u8 accepted", "0: both ends stay on the socket; 1: they use the rings", most=1),
            Part(
                "text reason",
                "why the client did not accept",
                most="MAX_SENTENCE_BYTES",
                cleaned=True,
            ),
        ),
    )
]
