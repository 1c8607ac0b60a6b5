"""An array session with PyTorch, in a process of its own."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from helpers.ends import ended
from rgpu_client.arrays.issuer import Issuer
from rgpu_client.torch.session import session as current
from rgpu_common.arrays.line import Line
from rgpu_common.arrays.messages import Op

_NODE = Path(__file__).parent / "torch_node.py"
TOTAL_BYTES = 4 << 30


@contextlib.contextmanager
def torch_session(total: int = TOTAL_BYTES) -> Iterator[Issuer]:
    """An open session, which is that of this process. Its lease has `total` bytes."""
    from rgpu_client.torch.errors import raised

    ours, theirs = socket.socketpair()
    node = subprocess.Popen(
        [sys.executable, str(_NODE), str(theirs.fileno()), str(total)], pass_fds=[theirs.fileno()]
    )
    theirs.close()
    issuer = Issuer(Line.adopted(ours.detach()), raised)
    before = current.issuer
    current.use(issuer)
    try:
        yield issuer
    finally:
        current.use(before)
        issuer.close()
        ended(node)


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    """A session of a module's tests, which has asked for the node's release already."""
    with torch_session() as made:
        (sent(1) + 1).cpu()
        yield made


def sent(*shape: int) -> Any:
    """A tensor on the node: the numbers 0, 1, 2... in this shape."""
    return torch.arange(float(torch.Size(shape).numel())).reshape(shape).to("rgpu")


@dataclass
class Counted:
    """What a session did meanwhile. templates: how many were new."""

    waits: int = 0
    templates: int = 0


@contextlib.contextmanager
def counted(issuer: Issuer) -> Iterator[Counted]:
    """Counts how often the client waits for the node, and how many templates it defines."""
    seen, ask, append = Counted(), issuer._ask, issuer._append

    def asked(*arguments: Any) -> Any:
        seen.waits += 1
        return ask(*arguments)

    def appended(operation: Any, counts: bool = False) -> None:
        seen.templates += operation[0] == Op.DEFINE
        append(operation, counts)

    issuer._ask, issuer._append = asked, appended  # type: ignore[method-assign]
    try:
        yield seen
    finally:
        issuer._ask, issuer._append = ask, append  # type: ignore[method-assign]
