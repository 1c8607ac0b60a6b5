"""Counts of what sessions did since the server started."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING

from msgspec import Struct, field

from rgpu_common.units import format_bytes

if TYPE_CHECKING:
    from rgpu_common.wire.worker import Opened, Resumed, Ring

log = logging.getLogger("rgpu.server")


class SessionCounts(Struct):
    """resumes, moves: by lane (0 command, 1 control).  rings: how opened sessions share memory."""

    opened: int = 0
    refused: int = 0
    resumes: Counter[int] = field(default_factory=Counter)
    moves: Counter[int] = field(default_factory=Counter)
    resent_bytes: int = 0
    rings: Counter[Ring] = field(default_factory=Counter)

    def note_opened(self, message: Opened) -> None:
        """Counts a session that a worker has opened."""
        self.opened += 1
        self.rings[message.ring] += 1

    def note_resumed(self, session: int, message: Resumed) -> None:
        """Counts and logs that a lane of a session has another connection."""
        counts = self.moves if message.moved else self.resumes
        counts[message.lane] += 1
        self.resent_bytes += message.resent_bytes
        log.info(
            "session %d %s its %s lane: connection %d, %s sent again",
            session,
            "moved" if message.moved else "resumed",
            "control" if message.lane else "command",
            message.epoch,
            format_bytes(message.resent_bytes),
        )
