"""Sentences that say why a lease does not fit: what was asked for, what is free, what helps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_common.units import format_bytes, format_share
from rgpu_server.core.bars import WAIT_HINT
from rgpu_server.core.model import Code, RefusedError
from rgpu_server.core.plans import disturbance

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rgpu_server.core.model import Device
    from rgpu_server.core.plans import Ask, Plan

UNTIL_A_LEASE_ENDS = "wait until a lease ends"


def full(plan: Plan, others: Sequence[Plan]) -> RefusedError:
    """Returns the error for a device with too little room. `others`: the plans for other
    devices.
    """
    code = Code.NO_MEMORY if plan.missing.memory_bytes else Code.NO_SHARE
    return RefusedError(code, _missing(plan) + (elsewhere(others) or _wait_hint(plan)))


def never_fits(ask: Ask, devices: Sequence[Device], larger: Sequence[Device]) -> RefusedError:
    """Returns the error for a lease that needs more memory than any allowed device has in all.

    larger: devices that have enough memory, and that the ask does not name.
    """
    most = max(devices, key=lambda device: (device.memory_bytes, -device.ordinal))
    asked, has = format_bytes(ask.quota_on(most).memory_bytes), format_bytes(most.memory_bytes)
    if len(devices) == 1:
        why = f"does not fit on device {most.ordinal}, which has {has} in all"
    else:
        why = f"fits on no device: the largest, device {most.ordinal}, has {has} in all"
    remedy = "ask for less memory"
    if larger and ask.ordinal is not None:
        remedy += f" or for device {larger[0].ordinal}"
    return RefusedError(
        Code.NO_MEMORY, f"a lease of {asked} {why}, so waiting does not help; {remedy}"
    )


def barred(devices: Sequence[Device]) -> RefusedError:
    """Returns the error for an ask whose room on all these devices is kept for claims in line."""
    numbers = ", ".join(str(device.ordinal) for device in devices)
    return RefusedError(
        Code.IN_LINE,
        f"others wait in line for room on device {numbers}, and room that becomes free there is "
        f"kept for them{WAIT_HINT}",
    )


def _missing(plan: Plan) -> str:
    quota, free, missing = plan.quota, plan.free, plan.missing
    asked, parts = [], []
    if missing.memory_bytes:
        asked.append(f"a lease of {format_bytes(quota.memory_bytes)}")
        parts.append(
            f"{format_bytes(free.memory_bytes)} of its {format_bytes(plan.device.memory_bytes)} "
            f"are free, {format_bytes(missing.memory_bytes)} too little"
        )
    if missing.share_ppm:
        asked.append(f"a share of {format_share(quota.share_request_ppm)}")
        parts.append(
            f"{format_share(free.share_ppm)} of its time is not promised yet, "
            f"{format_share(missing.share_ppm)} too little"
        )
    return f"{' and '.join(asked)} does not fit on device {plan.device.ordinal}: " + " and ".join(
        parts
    )


def _wait_hint(plan: Plan) -> str:
    what = "memory" if plan.missing.memory_bytes else "share"
    if plan.missing.memory_bytes and plan.missing.share_ppm:
        what = "of both"
    return f"; ask for less {what} or {UNTIL_A_LEASE_ENDS}"


def elsewhere(plans: Sequence[Plan]) -> str:
    """Returns the end of a sentence that names a device with more room; "" if there is none."""
    if not plans:
        return ""
    fitting = [plan for plan in plans if plan.fits]
    if fitting:
        best = min(fitting, key=disturbance)
        return f"; it fits on device {best.device.ordinal}"
    most = max(plans, key=lambda p: (p.free.memory_bytes, p.free.share_ppm, -p.device.ordinal))
    return (
        f"; device {most.device.ordinal} has {format_bytes(most.free.memory_bytes)} and a share of "
        f"{format_share(most.free.share_ppm)} free: ask for less or {UNTIL_A_LEASE_ENDS}"
    )
