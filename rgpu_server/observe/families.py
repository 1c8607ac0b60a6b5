"""The metrics by name: what each means and where its value comes from.

Of a lease and of a tenant the same counters are shown under `rgpu_` and `rgpu_tenant_`: those of a
lease end with it, those of a tenant stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from rgpu_server.core.model import PPM

if TYPE_CHECKING:
    from collections.abc import Callable

    from rgpu_server.observe.snapshot import DeviceView, LeaseView
    from rgpu_server.observe.totals import Amounts

LEASE_LABELS = ("tenant", "lease", "key", "name", "device")
TENANT_LABELS = ("tenant", "device")


class Counted(Struct, frozen=True):
    """A counter of a lease, and of its tenant.  name: without prefix and `_total`."""

    name: str
    help: str
    value: Callable[[Amounts], float]


class Shown(Struct, frozen=True):
    """A gauge of a lease; of a tenant its sum, unless `of_tenant` is False."""

    name: str
    help: str
    value: Callable[[LeaseView], float]
    of_tenant: bool = True


class OfDevice(Struct, frozen=True):
    """A gauge of a device."""

    name: str
    help: str
    value: Callable[[DeviceView], float]


COUNTED = (
    Counted(
        "device_seconds",
        "Device time used, as it is charged against the share.",
        lambda a: a.device_ns / 1e9,
    ),
    Counted(
        "busy_seconds",
        "Time in which sessions had work on the device, summed over the sessions.",
        lambda a: a.busy_ns / 1e9,
    ),
    Counted(
        "token_wait_seconds",
        "Time in which the lease wanted the device and another lease had it.",
        lambda a: a.waiting_ns / 1e9,
    ),
    Counted(
        "throttled_seconds",
        "Time in which the lease wanted the device and was at its limit.",
        lambda a: a.throttled_ns / 1e9,
    ),
    Counted(
        "held_back_seconds",
        "Time in which sessions held device work back, summed over the sessions.",
        lambda a: a.held_back_ns / 1e9,
    ),
    Counted(
        "token_held_seconds", "Time in which the lease had the device.", lambda a: a.held_ns / 1e9
    ),
    Counted("token_grants", "Times that the lease got the device.", lambda a: a.grants),
    Counted("launches", "Kernels launched.", lambda a: a.launches),
    Counted(
        "copies",
        "Copies to, from and within device memory; a large one counts in pieces.",
        lambda a: a.copies,
    ),
    Counted("copied_bytes", "Bytes copied.", lambda a: a.copied_bytes),
    Counted("memory_refused", "Allocations refused for the memory limit.", lambda a: a.refused),
)

SHOWN = (
    Shown("memory_limit_bytes", "Memory limit.", lambda v: v.lease.quota.memory_bytes),
    Shown("memory_used_bytes", "Device memory held.", lambda v: v.counters.used_bytes),
    Shown(
        "memory_peak_bytes",
        "Most device memory held since the lease began.",
        lambda v: v.counters.peak_bytes,
        of_tenant=False,
    ),
    Shown(
        "share_request_ratio",
        "Share of the device that is guaranteed, now.",
        lambda v: v.lease.quota.share_request_ppm / PPM,
    ),
    Shown(
        "share_limit_ratio",
        "Cap on the share of the device.",
        lambda v: (v.lease.quota.share_limit_ppm or PPM) / PPM,
        of_tenant=False,
    ),
    Shown(
        "share_achieved_1s_ratio",
        "Share of the device over the last second.",
        lambda v: v.time.share_1s_ppm / PPM,
    ),
    Shown(
        "share_achieved_10s_ratio",
        "Share of the device over the last ten seconds.",
        lambda v: v.time.share_10s_ppm / PPM,
    ),
    Shown(
        "lease_sessions", "Sessions under the lease.", lambda v: len(v.lease.slots), of_tenant=False
    ),
    Shown(
        "lease_paused", "1: the lease is paused.", lambda v: float(v.lease.paused), of_tenant=False
    ),
)

DEVICE = (
    OfDevice("rgpu_device_memory_bytes", "Memory of a device.", lambda d: d.facts.memory_bytes),
    OfDevice(
        "rgpu_device_leased_memory_bytes", "Sum of the leases' limits.", lambda d: d.leased_bytes
    ),
    OfDevice("rgpu_device_used_memory_bytes", "Sum of what leases hold.", lambda d: d.used_bytes),
    OfDevice(
        "rgpu_device_leased_share_ratio",
        "Sum of the shares guaranteed.",
        lambda d: d.leased_share_ppm / PPM,
    ),
    OfDevice("rgpu_device_leases", "Leases on a device.", lambda d: d.leases),
)
