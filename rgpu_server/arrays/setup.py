"""What a worker is assigned: one session, and the lease that it is charged to."""

from __future__ import annotations

from msgspec import Struct


class Setup(Struct, frozen=True):
    """The session of a worker.

    ordinal: of the device in its library. grants_fd, usage_fd: the two files of the lease's page;
    slot: the session's in it. signal_fd: the lease's eventfd. memory_limit_bytes: of the lease.
    places_fd: as `AssignFds.places`.
    """

    ordinal: int
    grants_fd: int
    usage_fd: int
    slot: int
    signal_fd: int
    memory_limit_bytes: int
    places_fd: int
