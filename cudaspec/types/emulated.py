"""What the emulated device implements: every call that the shim implements, and ALSO, without NOT.  Data only."""

# Called by the executor or by programs in process, not through the shim.
ALSO = [
    "cuLaunchHostFunc",
]

# Implemented by the shim from its own tables only.
NOT: list[str] = []
