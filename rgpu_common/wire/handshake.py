"""The messages that open a session: their opcodes, and limits that several of them share.

Each message has a module (`hello`, `welcome`, `refused`, `attach`, `shm`, `resume`, `preface`) and
a C++ file in `native/wire`. `claim` has no C++ file, because only Python reads and writes claims.
`decode_*` take a head (without the frame header) and raise `WireError`. `encode_*` return a whole
frame.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

SECRET_BYTES: Final = 32
MAX_NAME_BYTES: Final = 256
MAX_SENTENCE_BYTES: Final = 4096
MAX_OPCODES: Final = 4096


class Handshake(IntEnum):
    """Opcodes of frames of kind HANDSHAKE."""

    HELLO = 1
    WELCOME = 2
    REFUSED = 3
    ATTACH = 4
    ATTACHED = 5
    RESUME = 6
    RESUMED = 7
    PREFACE = 8
    SHM = 9
    PROBE = 10
    CLAIMED = 11
    PLACE = 12
