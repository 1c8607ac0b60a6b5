"""The metrics page of a running server."""

from __future__ import annotations

import re
import urllib.request

from helpers.server import Server

_LINE = re.compile(r"^(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def address(server: Server) -> str:
    """HOST:PORT of the metrics."""
    line = next(line for line in server.log if "metrics on " in line)
    return line.split("http://")[1].split("/")[0].strip()


def text(server: Server) -> str:
    """The page."""
    with urllib.request.urlopen(f"http://{address(server)}/metrics", timeout=30) as answer:
        return str(answer.read().decode())


def values(page: str, name: str, **labels: str) -> list[float]:
    """All values of a metric whose labels have these values."""
    found = []
    for line in page.splitlines():
        match = _LINE.match(line)
        if match is None or match["name"] != name:
            continue
        has = dict(_LABEL.findall(match["labels"] or ""))
        if labels.items() <= has.items():
            found.append(float(match["value"]))
    return found


def value(page: str, name: str, **labels: str) -> float:
    """The only one."""
    (found,) = values(page, name, **labels)
    return found
