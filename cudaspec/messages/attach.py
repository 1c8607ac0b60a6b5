"""ATTACH and ATTACHED: they make a connection the control lane of a session."""

from cudaspec.message import Message, Part

MESSAGES = [
    Message(
        4,
        "ATTACH",
        "client",
        "This connection is the control lane of `session`.",
        (
            Part("magic magic"),
            Part("u64 session", "the session of WELCOME"),
            Part("secret secret", "the secret of WELCOME", hidden=True),
        ),
        contract="Compare the secret with `hmac.compare_digest`.",
    ),
    Message(5, "ATTACHED", "server", "The answer to an accepted ATTACH."),
]
