"""Marks the assertions that judge a measured figure: a share, a rate, a round trip.

Only such an assertion may be judged again in another run of its test, where other programs or the
host of the machine took the processors away (`helpers.undisturbed`).  Counts, contents and the rule that no two
leases have the device together are right on every machine, and one failure of them is final.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class OffFigure(AssertionError):
    """A measured figure is out of its bounds."""


@contextmanager
def figures() -> Iterator[None]:
    """The assertions within judge measured figures.

    In a test they come last, so that everything else is judged in every run.
    """
    try:
        yield
    except AssertionError as error:
        raise OffFigure(str(error)) from error
