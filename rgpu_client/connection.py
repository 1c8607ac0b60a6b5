"""The result of `rgpu_client.connect()`: the device of this process, and the path to it."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from rgpu_common.units import PPM, format_bytes, format_share

if TYPE_CHECKING:
    from rgpu_client.session.claim import Held


@dataclass(frozen=True, slots=True)
class Connection:
    """A lease on a device of a server, for this process and its children.

    device, device_number: the device's name, and its number on the server. memory_bytes: the memory
    limit of the lease. share, limit: the guaranteed part of the device's time and the cap, 0 to 1.
    path: the address to which sessions connect. lease: the key of the lease. release: the release
    of the server.
    """

    device: str
    device_number: int
    memory_bytes: int
    share: float
    limit: float
    path: str
    lease: str
    tenant: str
    release: str

    def __repr__(self) -> str:
        parts = [f"{name} {value}" for name, value in self._rows()[1:]]
        return f"<rgpu: {self._rows()[0][1]}, {', '.join(parts)}>"

    def _repr_html_(self) -> str:
        rows = "".join(
            f'<tr><th style="text-align:left">{escape(name)}</th>'
            f'<td style="text-align:left">{escape(value)}</td></tr>'
            for name, value in self._rows()
        )
        return f"<table>{rows}</table>"

    def _rows(self) -> list[tuple[str, str]]:
        shares = f"{format_share(round(self.share * PPM))}, at most "
        shares += format_share(round(self.limit * PPM))
        return [
            ("device", f"{self.device} (device {self.device_number})"),
            ("memory", format_bytes(self.memory_bytes)),
            ("share", shares),
            ("path", self.path),
            ("lease", self.lease),
        ]


def connection_of(held: Held) -> Connection:
    """Returns the connection that a granted claim gives."""
    claimed = held.claimed
    return Connection(
        device=claimed.device_name,
        device_number=claimed.device,
        memory_bytes=claimed.memory_bytes,
        share=claimed.share_request_ppm / PPM,
        limit=(claimed.share_limit_ppm or PPM) / PPM,
        path=held.server,
        lease=held.key,
        tenant=claimed.tenant,
        release=claimed.release,
    )
