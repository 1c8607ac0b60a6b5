"""An array session with PyTorch, in a process of its own."""

from __future__ import annotations

import contextlib
import multiprocessing
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from helpers import torch_node
from rgpu_client.arrays.issuer import Issuer
from rgpu_client.torch.session import session as current
from rgpu_common.arrays.line import Line
from rgpu_common.arrays.messages import Op

TOTAL_BYTES = 4 << 30
# Nodes are forked from a process that has imported PyTorch, which takes seconds.
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["torch"])


@contextlib.contextmanager
def torch_session(total: int = TOTAL_BYTES) -> Iterator[Issuer]:
    """An open session, which is that of this process. Its lease has `total` bytes."""
    from rgpu_client.torch.errors import raised

    ours, theirs = socket.socketpair()
    node = _FORKS.Process(target=torch_node.serve, args=(theirs, total))
    node.start()
    theirs.close()
    issuer = Issuer(Line.adopted(ours.detach()), raised)
    before = current.issuer
    current.use(issuer)
    try:
        yield issuer
    finally:
        current.use(before)
        issuer.close()
        node.join(30)
        assert node.exitcode == 0
        node.close()


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
