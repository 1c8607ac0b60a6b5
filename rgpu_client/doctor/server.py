"""The checks that ask the server: port, path, version, clock, and the room that it has."""

from __future__ import annotations

import math
import os
import time
from typing import TYPE_CHECKING

from netprobe.candidates import completed, is_explicit
from netprobe.prober import ProbeBudget
from netprobe.show import why_not
from netprobe.survey import survey
from rgpu_client.doctor.here import named_servers
from rgpu_client.session.command import tunnel_to
from rgpu_client.sizes import Sizes, sizes_of
from rgpu_common import release
from rgpu_common.credentials import configured_access_token
from rgpu_common.doctor.findings import failed, note, ok, warning, wrong
from rgpu_common.endpoints import UcxEndpoint, parse_endpoint
from rgpu_common.errors import RgpuError, UsageError
from rgpu_common.units import PPM, counted, format_bytes, format_seconds, format_share
from rgpu_common.wire.frame import WIRE_MAJOR, WIRE_MINOR

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from netprobe.survey import Survey
    from rgpu_client.control import ControlClient
    from rgpu_common.doctor.findings import Finding
    from rgpu_common.endpoints import Endpoint
    from rgpu_common.v1.device_pb2 import Device, ListDevicesResponse

# Shows which path works; `rgpu probe` measures how fast each is.
_BUDGET = ProbeBudget(seconds=0.02, bytes=1 << 20)
# Clocks further apart make access tokens and certificates end early or late.
_APART_SECONDS = 5.0
_START = (
    "start `rgpu serve` there, correct --server or RGPU_SERVER, or open the port of its firewall"
)
# An operator sees every tenant; `rgpu tenants` lists them all.
_MOST_TENANTS = 8
_ROOM = "ask for less (--memory), or wait in line: `rgpu run --wait`"


def server(arguments: argparse.Namespace) -> Iterator[Finding]:
    """Yields what is found out about each server that is named."""
    for name in named_servers(arguments):
        yield from looked_at(name)


def looked_at(name: str, seconds: float = math.inf) -> Iterator[Finding]:
    """Yields what is found out about a server. An RgpuError ends the look at it. seconds: how long
    its API has for all answers.
    """
    begun = time.monotonic()
    try:
        found = survey(completed(name), budget=_BUDGET, tunnel=tunnel_to)
    except RgpuError as error:
        yield failed("port", error, _START)
        return
    took = format_seconds(found.found.handshake)
    yield ok("port", f"an rgpu server answers at {name} within {took}")
    yield from _paths(found)
    if _has_readable_token():
        yield from _asked(name, found, max(begun + seconds - time.monotonic(), 0.0))


def _has_readable_token() -> bool:
    """Returns whether the server can be asked. The check of the token says why not."""
    try:
        configured_access_token(os.environ)
    except UsageError:
        return False
    return True


def _paths(found: Survey) -> Iterator[Finding]:
    for path in found.paths:
        if path.error:
            yield note(
                "path", f"{path.uri} does not work: {why_not(path)}",
                "nothing, unless you want this path: `rgpu help transports` says what it needs",
            )  # fmt: skip
    if found.choice is None:
        yield wrong("path", "none of the server's paths works", "`rgpu probe` shows each of them")
        return
    chosen = next(path for path in found.paths if path.uri == found.choice.uri)
    trip = "" if chosen.round_trip is None else format_seconds(chosen.round_trip.median)
    yield ok("path", f"{chosen.uri}, round trip {trip}: {found.choice.reason}")


def _asked(name: str, found: Survey, seconds: float) -> Iterator[Finding]:
    from rgpu_client.control import ControlClient

    try:
        with ControlClient(_api(name, found), explicit=is_explicit(name)) as client:
            client.give_up_after(seconds)
            answer = client.devices()
            yield from _version(answer)
            yield from _clock(client)
            yield from _room(answer)
            yield from _quota(client)
    except RgpuError as error:
        yield failed("token", error, "RGPU_TOKEN_FILE names the file with your access token")


def _api(name: str, found: Survey) -> Endpoint:
    """Returns where the API is: at the named address, or where UCX is not the transport."""
    endpoint = parse_endpoint(name)
    others = [parse_endpoint(path.uri) for path in found.paths if path.works]
    known = [one for one in (endpoint, *others) if not isinstance(one, UcxEndpoint)]
    return known[0] if known else endpoint


def _version(answer: ListDevicesResponse) -> Iterator[Finding]:
    theirs = f"rgpu {answer.server_release}, wire version {answer.wire_major}.{answer.wire_minor}"
    if answer.wire_major != WIRE_MAJOR:
        yield wrong(
            "versions", f"the server has {theirs}, and this client wire version "
            f"{WIRE_MAJOR}.{WIRE_MINOR}", "install the same release of rgpu-cuda on both",
        )  # fmt: skip
    elif answer.server_release != release():
        yield warning(
            "versions", f"the server has {theirs}, and this client rgpu {release()}: what one of "
            "them lacks is reported as not found", "install the same release on both",
        )  # fmt: skip
    else:
        yield ok("versions", f"the server has {theirs}")


def _clock(client: ControlClient) -> Iterator[Finding]:
    before = time.time()
    theirs = client.now().time_seconds
    after = time.time()
    # Their clock was read at some moment in between.
    apart = max(theirs - after, before - theirs, 0.0)
    if apart > _APART_SECONDS:
        yield warning(
            "clock", f"the server's clock and this one are {format_seconds(apart)} apart, so "
            "access tokens and certificates end early or late",
            "set both clocks: timedatectl set-ntp true",
        )  # fmt: skip
    else:
        yield ok("clock", "this clock and the server's agree")


def _room(answer: ListDevicesResponse) -> Iterator[Finding]:
    if answer.draining:
        yield warning(
            "quota", "the server is drained: it takes no new lease",
            "wait for its operator (`rgpu undrain`), or use another server",
        )  # fmt: skip
    if not answer.devices:
        yield wrong("quota", "the server offers you no device", "ask its operator for a pool")
        return
    sizes = _wished_sizes()
    wished = {device.number for device in sizes.devices}
    devices = [one for one in answer.devices if not wished or one.ordinal in wished]
    for device in devices:
        yield ok("quota", _device_words(device))
    if not any(_fits(device, sizes) for device in devices):
        memory = format_bytes(sizes.memory.bytes) if sizes.memory.bytes else "any memory"
        share = f", share {format_share(sizes.share_ppm)}" if sizes.share_ppm else ""
        yield warning("quota", f"no device has room for {memory}{share} now", _ROOM)


def _wished_sizes() -> Sizes:
    """Returns the sizes of the variables. Wrong ones are found by the check of the variables."""
    try:
        return sizes_of(os.environ)
    except UsageError:
        return Sizes()


def _device_words(device: Device) -> str:
    free = format_bytes(device.memory_bytes - device.leased_memory_bytes)
    promised = format_share(device.leased_share_ppm)
    return (
        f"device {device.ordinal}, {device.name}: {free} of {format_bytes(device.memory_bytes)} "
        f"free, {promised} guaranteed to {counted(device.leases, 'lease')}"
    )


def _fits(device: Device, sizes: Sizes) -> bool:
    memory = max(sizes.memory.bytes, device.memory_bytes * sizes.memory.ppm // PPM, 1)
    free = device.memory_bytes - device.leased_memory_bytes
    return memory <= free and device.leased_share_ppm + sizes.share_ppm <= PPM


def _quota(client: ControlClient) -> Iterator[Finding]:
    for quota in client.tenants()[:_MOST_TENANTS]:
        held = f"{format_share(quota.held.share_ppm)} and {format_bytes(quota.held.memory_bytes)}"
        if not quota.HasField("owned"):
            yield ok("quota", f"tenant {quota.tenant} holds {held} of {quota.model}")
            continue
        owned = quota.owned
        yield ok(
            "quota", f"tenant {quota.tenant} holds {held} of {quota.model}, and owns "
            f"{format_share(owned.share_ppm)} and {format_bytes(owned.memory_bytes)}",
        )  # fmt: skip
