"""Counts what a session sends."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rgpu_client.arrays.issuer import Issuer
from rgpu_common.wire.frame import HEADER_BYTES


@dataclass
class Sent:
    """What was sent meanwhile. operations: but frees and questions. waits: questions."""

    operations: int = 0
    messages: int = 0
    bytes: int = 0
    waits: int = 0

    @property
    def each(self) -> float:
        """Bytes of an operation, with its part of headers, frees and questions."""
        return self.bytes / self.operations


@contextlib.contextmanager
def counted(issuer: Issuer) -> Iterator[Sent]:
    """Counts from the beginning of the block to its end, when everything is sent."""
    issuer.flush()
    seen, before = Sent(), issuer.waiting[1]
    line, send, ask = issuer._line, issuer._line.send, issuer._ask

    def sending(kind: int, opcode: int, head: bytes, body: Any = (), *rest: Any) -> None:
        seen.messages += 1
        seen.bytes += HEADER_BYTES + len(head) + sum(HEADER_BYTES + one.nbytes for one in body)
        send(kind, opcode, head, body, *rest)

    def asking(*arguments: Any) -> Any:
        seen.waits += 1
        return ask(*arguments)

    line.send, issuer._ask = sending, asking  # type: ignore[assignment,method-assign]
    try:
        yield seen
        issuer.flush()
        seen.operations = issuer.waiting[1] - before
    finally:
        line.send, issuer._ask = send, ask  # type: ignore[method-assign]
