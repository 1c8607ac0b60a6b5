"""`rgpu quota report`: each tenant's share over time, from the server's own record."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rgpu_client.cluster.servers import add_servers, only_server, servers_of
from rgpu_client.observe.chart import Shown, draw
from rgpu_client.observe.usage import usage_of
from rgpu_common.command import Command
from rgpu_common.errors import MissingPartError, RgpuError, UsageError
from rgpu_common.installing import install_words
from rgpu_common.tables import plain_message, table
from rgpu_common.units import format_bytes

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from rgpu_client.cluster.servers import Server, Servers
    from rgpu_client.control import ControlClient
    from rgpu_client.observe.usage import Line, Usage
    from rgpu_common.v1.observe_pb2 import GetRecordResponse

_SINCE = re.compile(r"([0-9]+(?:\.[0-9]+)?)(s|m|h|d)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_SCALE = 2.0
# The most steps in a picture. More steps would only show how slices fall into seconds.
_DRAWN_STEPS = 240


def _configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    report = verbs.add_parser("report", help="each tenant's share over time")
    report.add_argument("--since", default="10m", metavar="TIME", help="90s, 10m, 2h, 1d")
    report.add_argument("--tenant", default="", metavar="NAME", help="only this tenant")
    report.add_argument("--by-lease", action="store_true", help="a line for each lease")
    report.add_argument("--out", type=Path, metavar="FILE", help="a picture: .svg or .png")
    report.add_argument("--json", action="store_true", help="print JSON instead of a table")
    add_servers(report)


class _Record(NamedTuple):
    """What one server has recorded. names: of its devices, by number."""

    record: GetRecordResponse
    names: dict[int, str]


def _quota(arguments: argparse.Namespace) -> int:
    since = _since(arguments.since)
    out: Path | None = arguments.out
    if out is not None and out.suffix not in (".svg", ".png"):
        raise UsageError(f"--out {str(out)!r} is neither .svg nor .png")
    servers = servers_of(arguments)
    server = None if out is None else only_server(servers, "draw")

    def recorded(client: ControlClient) -> _Record:
        steps = 0 if arguments.json else _DRAWN_STEPS
        record = client.record(since, arguments.tenant, arguments.by_lease, steps)
        return _Record(record, {device.ordinal: device.name for device in client.devices().devices})

    answers = servers.ask(recorded)
    if arguments.json:
        print(json.dumps(answers.plain(lambda one: plain_message(one.record)), indent=2))
    if out is not None and server is not None:
        for _, one in answers:
            title = Shown(str(server), arguments.by_lease, arguments.tenant)
            _write(out, draw(usage_of(one.record), title, one.names))
        if not arguments.json:
            print(f"the picture is in {out}")
    elif not arguments.json:
        print(_table(servers, [(where, usage_of(one.record)) for where, one in answers], arguments))
    return answers.complain()


def _since(text: str) -> float:
    match = _SINCE.fullmatch(text)
    if match is None or not float(match[1]):
        raise UsageError(f"--since {text!r} is not a time: write 90s, 10m, 2h or 1d")
    return float(match[1]) * _SECONDS[match[2]]


def _table(
    servers: Servers, found: Sequence[tuple[Server, Usage]], arguments: argparse.Namespace
) -> str:
    rows = [
        servers.cells(server, _row(line, usage)) for server, usage in found for line in usage.lines
    ]
    if not rows:
        return f"no lease in the last {arguments.since}"
    who = "tenant / lease" if arguments.by_lease else "tenant"
    titles = ("device>", who, "there>", "share>", "request>", "limit>", "waiting>", "capped>")
    return table(servers.titles((*titles, "most memory>", "launches>", "seams")), rows)


def _row(line: Line, usage: Usage) -> tuple[str, ...]:
    values = (line.share, line.request, line.limit, line.waiting, line.throttled)
    return (
        str(line.device),
        line.name,
        f"{sum(line.present) * usage.step:.0f} s",
        *[f"{line.mean(some) * 100:.1f}%" for some in values],
        format_bytes(max(line.memory)),
        str(line.launches),
        ", ".join(line.seams) or "-",
    )


def _write(path: Path, svg: str) -> None:
    data = svg.encode() if path.suffix == ".svg" else _png(svg)
    try:
        path.write_bytes(data)
    except OSError as error:
        raise RgpuError(
            f"{str(path)!r} cannot be written: {error.strerror}; name a file that you may write "
            "to, in a folder that exists"
        ) from None


def _png(svg: str) -> bytes:
    try:
        import cairosvg
    except (ImportError, OSError):  # OSError: the C library beneath it is missing
        raise MissingPartError(
            f"a PNG needs CairoSVG: {install_words('report')}, and the library cairo (Debian: "
            "libcairo2); or name a file that ends in .svg"
        ) from None
    data: bytes = cairosvg.svg2png(bytestring=svg.encode(), scale=_SCALE)
    return data


quota = Command("quota", "how device time was shared", _configure, _quota)
