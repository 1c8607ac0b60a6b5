"""The version of the wire format. It imports nothing, because `rgpu --version` waits for it."""

from __future__ import annotations

from typing import Final

WIRE_MAJOR: Final = 1
WIRE_MINOR: Final = 2
