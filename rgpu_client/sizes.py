"""Reads the sizes of a requested lease from `RGPU_*` variables, and checks each value."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rgpu_client.device_names import parse_devices
from rgpu_client.variables import variable
from rgpu_common.errors import UsageError
from rgpu_common.sharing import MAX_PRIORITY, MAX_WEIGHT, SharePolicy, parse_policy
from rgpu_common.units import Memory, format_share, parse_memory, parse_share
from rgpu_common.wire.handshake import MAX_NAME_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rgpu_client.device_names import DeviceName

_LEAVE_OUT = "leave it out for the server's default"


class Sizes(NamedTuple):
    """The sizes that a run asks for. For None, 0 and "", the server decides.

    devices: () means any one device of the server. share_ppm, limit_ppm: the
    guaranteed part of the device's time and the cap. key: the name of the lease.
    """

    memory: Memory = Memory()
    devices: tuple[DeviceName, ...] = ()
    share_ppm: int = 0
    limit_ppm: int = 0
    policy: SharePolicy | None = None
    priority: int | None = None
    weight: int | None = None
    tenant: str = ""
    key: str = ""

    @property
    def device(self) -> int | None:
        """The number of the one device asked for, or None for any.

        Raises:
            UsageError: several devices were asked for, or one of a server named with it.
        """
        if len(self.devices) > 1:
            raise UsageError(
                "several devices are for `rgpu run` and `rgpu trace` without --hold: name one"
            )
        if self.devices and self.devices[0].server:
            raise UsageError(
                f"{self.devices[0]} names its server, which is for `rgpu run` and `rgpu trace` "
                "without --hold: name the device by number, and the server as the server"
            )
        return self.devices[0].number if self.devices else None


def sizes_of(environment: Mapping[str, str]) -> Sizes:
    """Returns the sizes that the variables ask for. UsageError names an invalid variable."""
    return Sizes(
        memory=variable(environment, "RGPU_MEMORY", parse_limit_of_memory) or Memory(),
        devices=variable(environment, "RGPU_DEVICE", parse_devices) or (),
        share_ppm=variable(environment, "RGPU_SHARE", parse_guarantee) or 0,
        limit_ppm=variable(environment, "RGPU_LIMIT", parse_cap) or 0,
        policy=variable(environment, "RGPU_POLICY", parse_policy),
        priority=variable(environment, "RGPU_PRIORITY", parse_priority),
        weight=variable(environment, "RGPU_WEIGHT", parse_weight),
        tenant=variable(environment, "RGPU_TENANT", parse_name) or "",
        key=variable(environment, "RGPU_LEASE", parse_name) or "",
    )


def check_share_and_limit(share_ppm: int, limit_ppm: int) -> None:
    """Checks a share against its limit; 0: none was named.

    Raises:
        UsageError: the share is above its limit.
    """
    if share_ppm > limit_ppm > 0:
        raise UsageError(
            f"the share {format_share(share_ppm)} is above its limit {format_share(limit_ppm)}; "
            "raise the limit or ask for a smaller share"
        )


def parse_limit_of_memory(text: str) -> Memory:
    """Returns a memory limit. UsageError if it is not a size above 0."""
    size = parse_memory(text)
    if not size.bytes and not size.ppm:
        raise UsageError(f"memory 0 makes no sense: {_LEAVE_OUT}")
    return size


def parse_guarantee(text: str) -> int:
    """Returns a requested share in ppm. UsageError if it is not a share above 0."""
    ppm = parse_share(text)
    if not ppm:
        raise UsageError(
            f"share 0 makes no sense: {_LEAVE_OUT}, or name --policy best-effort, which "
            "guarantees nothing"
        )
    return ppm


def parse_cap(text: str) -> int:
    """Returns the cap on a share in ppm. UsageError if it is not a share above 0."""
    ppm = parse_share(text)
    if not ppm:
        raise UsageError(f"limit 0 makes no sense: {_LEAVE_OUT}")
    return ppm


def parse_priority(text: str) -> int:
    """Returns a priority. UsageError if it is out of range."""
    return _within("priority", text, 0, MAX_PRIORITY)


def parse_weight(text: str) -> int:
    """Returns a weight. UsageError if it is out of range."""
    return _within("weight", text, 1, MAX_WEIGHT)


def parse_name(text: str) -> str:
    """Returns the name of a lease or a tenant. UsageError if it is not a valid name."""
    if not text or len(text.encode(errors="replace")) > MAX_NAME_BYTES or not text.isprintable():
        raise UsageError(f"a name is 1 to {MAX_NAME_BYTES} printable characters, not {text!r}")
    return text


def _within(what: str, text: str, low: int, high: int) -> int:
    if not _is_whole(text) or not low <= int(text) <= high:
        raise UsageError(f"a {what} is a whole number from {low} to {high}, not {text}")
    return int(text)


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20
