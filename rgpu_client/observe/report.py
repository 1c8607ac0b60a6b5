"""`rgpu quota report`: each tenant's share over time, from the server's own record."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from rgpu_client.observe.chart import Shown, draw
from rgpu_client.observe.usage import usage_of
from rgpu_client.settings import API_SERVER_HELP, configured_server
from rgpu_common.command import OK, Command
from rgpu_common.errors import MissingPartError, RgpuError, UsageError
from rgpu_common.tables import message_json, table
from rgpu_common.units import format_bytes

if TYPE_CHECKING:
    import argparse

    from rgpu_client.observe.usage import Usage

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
    report.add_argument("--server", metavar="ADDRESS", help=API_SERVER_HELP)


def _quota(arguments: argparse.Namespace) -> int:
    from rgpu_client.control import ControlClient

    since = _since(arguments.since)
    out: Path | None = arguments.out
    if out is not None and out.suffix not in (".svg", ".png"):
        raise UsageError(f"--out {str(out)!r} is neither .svg nor .png")
    server = configured_server(arguments.server, os.environ)
    with ControlClient(server) as client:
        steps = 0 if arguments.json else _DRAWN_STEPS
        answer = client.record(since, arguments.tenant, arguments.by_lease, steps)
        names = {device.ordinal: device.name for device in client.devices().devices}
    if arguments.json:
        print(message_json(answer))
        if out is None:
            return OK
    usage = usage_of(answer)
    if out is not None:
        shown = Shown(str(server), arguments.by_lease, arguments.tenant)
        _write(out, draw(usage, shown, names))
        if not arguments.json:
            print(f"the picture is in {out}")
    elif not usage.lines:
        print(f"no lease in the last {arguments.since}")
    else:
        print(_table(usage, "tenant / lease" if arguments.by_lease else "tenant"))
    return OK


def _since(text: str) -> float:
    match = _SINCE.fullmatch(text)
    if match is None or not float(match[1]):
        raise UsageError(f"--since {text!r} is not a time: write 90s, 10m, 2h or 1d")
    return float(match[1]) * _SECONDS[match[2]]


def _table(usage: Usage, who: str) -> str:
    rows = []
    for line in usage.lines:
        there = sum(line.present)
        values = (line.share, line.request, line.limit, line.waiting, line.throttled)
        rows.append(
            (
                str(line.device),
                line.name,
                f"{there * usage.step:.0f} s",
                *[f"{line.mean(some) * 100:.1f}%" for some in values],
                format_bytes(max(line.memory)),
                str(line.launches),
                ", ".join(line.seams) or "-",
            )
        )
    titles = ("device>", who, "there>", "share>", "request>", "limit>", "waiting>", "capped>")
    return table((*titles, "most memory>", "launches>", "seams"), rows)


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
            "a PNG needs CairoSVG: python -m pip install 'rgpu-cuda[report]', and the library "
            "cairo (Debian: libcairo2); or name a file that ends in .svg"
        ) from None
    data: bytes = cairosvg.svg2png(bytestring=svg.encode(), scale=_SCALE)
    return data


quota = Command("quota", "how device time was shared", _configure, _quota)
