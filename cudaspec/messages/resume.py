"""RESUME and RESUMED: they attach a new link to a lane that was cut or that changes its path."""

from cudaspec.message import Enumeration, Message, Number, Part

NUMBERS = [
    Number("LANES", 2, "lanes of a session"),
    Number(
        "TRY_AGAIN",
        600,
        "the status of a REFUSED after which another RESUME may succeed (CUDA_ERROR_NOT_READY)",
        "i32",
    ),
]
ENUMERATIONS = [
    Enumeration(
        "Lane", "u8", {"COMMAND": 0, "CONTROL": 1}, "The two lanes of a session.", cpp="LaneName"
    ),
]
MESSAGES = [
    Message(
        6,
        "RESUME",
        "client",
        "A request to attach a new link to a lane.",
        (
            Part("magic magic"),
            Part("u64 session", "the session of WELCOME"),
            Part("secret secret", "the secret of WELCOME", hidden=True),
            Part("Lane lane", "0 command, 1 control"),
            Part("u8 link", "place of the link in a striped lane: 0", most=15),
            Part("u32 epoch", "number of this link of the lane, from 1", default=1, least=1),
            Part("u64 received", "bytes of the worker's stream that the client's reader has taken"),
        ),
        contract="Compare the secret with `hmac.compare_digest`.",
    ),
    Message(
        7,
        "RESUMED",
        "worker",
        "The answer to an accepted RESUME.",
        (Part("u64 received", "bytes of the client's stream that the worker's reader has taken"),),
    ),
]
