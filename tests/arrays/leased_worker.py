"""An array worker under a lease: `leased_worker.py GRANTS_FD USAGE_FD SIGNAL_FD SLOT LINE_FD`.

Its library has one operation, `hold`, which holds the device for a time without using a processor.
`runs` answers when each of them ran, by the clock of the machine, as the kernels of
`quota.tenant` do.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from rgpu_common.arrays.line import Line, LineError
from rgpu_server.arrays.engine import Engine
from rgpu_server.arrays.library import NotOfferedError, Operation, plain_words
from rgpu_server.arrays.turns import Turns
from rgpu_server.workers.pages import map_page


class Holder:
    """A library that only holds the device."""

    name, version = "holder", "1"

    def __init__(self) -> None:
        self.runs: list[tuple[int, int]] = []

    def define(
        self, operation: str, arguments: Sequence[Any], keywords: Mapping[str, Any]
    ) -> Operation:
        if operation != "hold":
            raise NotOfferedError(f"there is no operation {operation}")
        return Operation(self._hold)

    def _hold(self, ns: int) -> None:
        begin = time.time_ns()
        while (left := begin + ns - time.time_ns()) > 0:
            time.sleep(min(left, 100_000) / 1e9)
        self.runs.append((begin, time.time_ns()))

    def answer(self, question: str, details: Sequence[Any]) -> Any:
        # An answer must fit a message.
        at, count = details
        return self.runs[at : at + count]

    def room(self, size: int, beside: int) -> int:
        return 1 << 60

    def words(self, error: Exception) -> str:
        return plain_words(error)

    def sync(self) -> None:
        """Everything is done."""


def serve() -> None:
    grants, usage, signal, slot, line = map(int, sys.argv[1:])
    client = Line.adopted(line)
    page = map_page(grants, usage, write_grants=False)
    gate = Turns(page, slot, signal, held=client.check)
    engine = Engine(client, Holder(), gate)  # type: ignore[arg-type]
    try:
        engine.serve()
    except LineError:
        gate.close()


if __name__ == "__main__":
    serve()
