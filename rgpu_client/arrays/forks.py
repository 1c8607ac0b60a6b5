"""Sessions that a forked child does not have: each is told in the child that it has been left."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Left(Protocol):
    """What belongs to the process that made it."""

    def forget_in_child(self) -> None:
        """Called in a forked child."""


_every: weakref.WeakSet[Left] = weakref.WeakSet()


def add(one: Left) -> None:
    """From now on children are told."""
    _every.add(one)


def discard(one: Left) -> None:
    """It has ended: children need not be told any more."""
    _every.discard(one)


def _in_child() -> None:
    for one in list(_every):
        one.forget_in_child()


os.register_at_fork(after_in_child=_in_child)
