"""The version of the wire format. It imports nothing, because `rgpu --version` waits for it."""

from __future__ import annotations

WIRE_MAJOR = 1
WIRE_MINOR = 2
