"""A share of one device's time."""

from __future__ import annotations

from msgspec import Struct

from rgpu_server.core.model import PPM


class Share(Struct, frozen=True):
    """What a lease may have of one device.

    request_ppm: guaranteed, 0 is best effort.  limit_ppm: never more, 1_000_000 is no cap.
    weight, priority: who gets what is idle: the higher priority first, then by weight.  Neither
    takes anything from another's request.
    """

    request_ppm: int = 0
    limit_ppm: int = PPM
    weight: int = 1
    priority: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.request_ppm <= self.limit_ppm:
            raise ValueError(f"a request of {self.request_ppm} ppm is not within 0 and the limit")
        if not 0 < self.limit_ppm <= PPM:
            raise ValueError(f"a limit of {self.limit_ppm} ppm is not within 1 and {PPM}")
        if not 0 < self.weight <= PPM:
            raise ValueError(f"a weight of {self.weight} is not within 1 and {PPM}")
