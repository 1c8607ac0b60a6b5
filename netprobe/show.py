"""Shows a survey as a table, as JSON and as sentences."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from netprobe.cost import Workload, cost
from netprobe.explain import contradictions
from netprobe.record import to_plain
from netprobe.schemes import LOCAL, scheme_of
from rgpu_common.tables import fitting
from rgpu_common.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from netprobe.choice import Choice
    from netprobe.estimate import Bandwidth
    from netprobe.netdev import NetDevice
    from netprobe.prober import Measurement
    from netprobe.survey import Survey

_TITLES = ("path", "handshake>", "min>", "median>", "p99>", "jitter>", "up>", "down>", "messages>")
# Columns that a narrow terminal does not show, the first of them first.
_DROPPED = ("handshake", "jitter", "messages", "p99", "min")


def path_table(paths: Sequence[Measurement], workload: Workload, width: int | None = None) -> str:
    """Returns a table with a row per path, including the time of a step of the workload.

    width: that of the terminal, if there is one.
    """
    rows = []
    for path in paths:
        if path.round_trip is None:
            rows.append((path.uri, "does not work", *[""] * 8))
            continue
        trip = path.round_trip
        times = (path.handshake, trip.minimum, trip.median, trip.p99, trip.jitter)
        rows.append(
            (
                path.uri,
                *(format_seconds(seconds) for seconds in times),
                bandwidth_words(path.up),
                bandwidth_words(path.down),
                message_words(path.messages_per_second),
                format_seconds(cost(path, workload).total),
            )
        )
    return fitting((*_TITLES, f"{workload.name} step>"), rows, _DROPPED, width)


def bandwidth_words(value: Bandwidth | None) -> str:
    """Returns "941 Mbit/s", with "~" in front if uncertain and "*" behind if shaped."""
    if value is None:
        return "-"
    sure = "" if value.confidence.value == "high" else "~"
    return f"{sure}{rate_words(value.bytes_per_second)}{'*' if value.shaped else ''}"


def rate_words(bytes_per_second: float) -> str:
    """Returns a bandwidth in bits per second, as is usual for networks."""
    bits = bytes_per_second * 8
    for name, size in (("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3)):
        if bits >= size:
            return f"{bits / size:.3g} {name}" if bits < 100 * size else f"{bits / size:.0f} {name}"
    return f"{bits:.0f} bit/s"


def message_words(rate: float | None) -> str:
    """Returns a message rate like "1.9 M/s"."""
    if rate is None:
        return "-"
    return f"{rate / 1e6:.1f} M/s" if rate >= 1e6 else f"{rate / 1e3:.0f} k/s"


def notes(survey: Survey, proxies: Sequence[str], workload: Workload) -> list[str]:
    """Returns sentences about the result of a survey."""
    lines = []
    found = survey.found
    if found.same_host:
        lines.append("Client and server are on one machine.")
        tried = [path for path in survey.paths if scheme_of(path.uri) in LOCAL]
        offered = [uri for uri in found.offer.endpoints if uri.startswith("unix:")]
        if offered and tried and not any(path.works for path in tried):
            lines.append(f"Its socket {offered[0]} is not visible here: share its folder.")
    lines += [f"{p.uri} does not work: {why_not(p)}." for p in survey.paths if p.error]
    lines += [f"{one.uri} was not measured: {one.reason}." for one in survey.dropped]
    lines += legend(survey.paths)
    lines += [f"A proxy is set, which only grpc: paths use: {proxy}." for proxy in proxies]
    lines.append(verdict(survey.choice))
    why = contradictions(survey.paths, survey.choice, workload, found.same_host)
    lines += [f"{sentence}." for sentence in why]
    return lines


def why_not(path: Measurement) -> str:
    """Returns why a path does not work, without its address in front."""
    return path.error.removeprefix(f"{path.uri}: ")


def legend(paths: Sequence[Measurement]) -> list[str]:
    """Returns what the marks at bandwidths mean, for the marks that occur."""
    rates = [rate for path in paths for rate in (path.up, path.down) if rate is not None]
    lines = []
    if any(rate.confidence.value != "high" for rate in rates):
        lines.append("~ marks a bandwidth whose last two measurements did not agree.")
    if any(rate.shaped for rate in rates):
        lines.append("* marks a path that lets the first bytes through faster than the rest.")
    return lines


def verdict(choice: Choice | None) -> str:
    """Returns the sentence with the choice and its reason."""
    if choice is None:
        return "No path works."
    return f"Chosen: {choice.uri}: {choice.reason}."


def survey_plain(
    survey: Survey,
    workload: Workload,
    proxies: Sequence[str],
    devices: Sequence[NetDevice],
) -> dict[str, Any]:
    """Returns the survey as a JSON object."""
    choice = survey.choice
    return {
        "server": survey.found.uri,
        "server_id": survey.found.offer.server.hex(),
        "same_host": survey.found.same_host,
        "at": survey.at,
        "workload": workload.name,
        "paths": [path_plain(path, workload) for path in survey.paths],
        "dropped": [{"uri": one.uri, "reason": one.reason} for one in survey.dropped],
        "choice": None if choice is None else {"uri": choice.uri, "reason": choice.reason},
        "proxies": list(proxies),
        "devices": [device_plain(device) for device in devices],
    }


def path_plain(path: Measurement, workload: Workload) -> dict[str, Any]:
    """Returns a path as a JSON object, with the expected seconds of a step."""
    step = cost(path, workload).total if path.works else None
    return {**to_plain(path), "step_seconds": step}


def device_plain(device: NetDevice) -> dict[str, Any]:
    """Returns a network device as a JSON object."""
    plain: dict[str, Any] = device._asdict()
    plain["addresses"] = list(device.addresses)
    plain["rdma_ports"] = [port._asdict() for port in device.rdma_ports]
    return plain


def as_json(plain: Mapping[str, Any]) -> str:
    """Returns the object as JSON text."""
    return json.dumps(plain, indent=2)
