"""What a gateway has counted, over all processes that followed each other: for the metrics."""

from __future__ import annotations

from collections import Counter

# Why somebody did not get in, as gateways name it (figures.h).  The set is closed: what a gateway
# says beside it is passed over.
REFUSALS = ("late", "not_tls", "certificate", "handshake", "too_many", "no_server")
_BYTES = ("received", "sent")
_MAX_DIGITS = 19


class Figures:
    """Fed with what the gateway says; a process that ends begins anew, the totals do not."""

    def __init__(self) -> None:
        self.up = False
        self.restarts = 0
        self.open = 0
        self._ended: Counter[str] = Counter()
        self._running: dict[str, int] = {}

    def started(self) -> None:
        """A process is there."""
        self.up = True

    def heard(self, text: str) -> None:
        """The process says `NAME=NUMBER ...`."""
        for word in text.split(" "):
            name, _, digits = word.partition("=")
            if not (digits.isascii() and digits.isdigit() and len(digits) <= _MAX_DIGITS):
                continue
            if name == "open":
                self.open = int(digits)
            elif name in _BYTES or name in REFUSALS:
                # Its totals only grow.
                self._running[name] = max(self._running.get(name, 0), int(digits))

    def ended(self) -> None:
        """The process is gone; what it has counted stays."""
        self._ended.update(self._running)
        self._running = {}
        self.open = 0
        self.up = False

    @property
    def received_bytes(self) -> int:
        """From clients."""
        return self._total("received")

    @property
    def sent_bytes(self) -> int:
        """To clients."""
        return self._total("sent")

    def refused(self, reason: str) -> int:
        """How often; one of REFUSALS."""
        return self._total(reason)

    def _total(self, name: str) -> int:
        return self._ended[name] + self._running.get(name, 0)
