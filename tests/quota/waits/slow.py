"""A tenant whose client is slow to answer, and one that works meanwhile."""

from __future__ import annotations

import time

from quota.tenant import MS, Tenant
from rgpu_common.wire.messages import Control, Notice, encode_message

MIB = 1 << 20
HALF = {"share_request_ppm": 500_000, "memory_bytes": 128 * MIB}
VICTIM = {"lease_key": "v", **HALF}
SLOW = {"lease_key": "s", **HALF}
HOLDS = 10


def works(tenant: Tenant, seconds: float) -> int:
    """Launches for so long, but at least once; how many kernels have run."""
    before = len(tenant.runs())
    until = time.monotonic() + seconds
    while True:
        for _ in range(20):
            tenant.hold(MS)
        tenant.synchronize()
        if time.monotonic() >= until:
            return len(tenant.runs()) - before


def holds(slow: Tenant, stream: int, count: int = HOLDS) -> None:
    """Kernels of a millisecond."""
    for _ in range(count):
        slow.hold(MS, stream=stream)


def ask_for_bytes(slow: Tenant, at: int, stream: int, size: int = MIB) -> int:
    """Posts a copy from pinned memory whose bytes the worker asks the client for; returns its
    number.
    """
    return slow.post(
        "rgpuCopyHtoDPull", dst=at, pitch=0, width=size, height=1, stream=stream
    )  # fmt: skip


def answer(slow: Tenant, data: bytes, copy: int | None = None) -> None:
    """Sends the bytes of one copy, as a client does whose network was slow."""
    left = len(data)
    others = []
    while left:
        fields, frame = slow.notice(Notice.PULL)
        if copy is not None and frame.header.seq != copy:
            others.append((Notice.PULL, fields, frame))
            continue
        offset, size = int(fields["offset"]), int(fields["bytes"])
        left -= size
        slow.control.send(
            encode_message(
                Control.PULL_DATA,
                {"pull": fields["pull"], "offset": offset},
                bulk=data[offset : offset + size],
            )
        )
    slow.notices.extend(others)
