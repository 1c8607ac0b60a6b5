"""Why a request, a report or a change of the pool is refused."""

from __future__ import annotations


class PlacementError(Exception):
    """The root of the errors of this package. Its text says what is so and what to do."""


class RequestError(PlacementError):
    """A request contradicts itself, or asks for something that no pool can have."""


class PoolError(PlacementError):
    """A report about a node or a lease contradicts the pool."""
