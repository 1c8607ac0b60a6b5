"""The screen of `rgpu top`. Pure code: a message of the server goes in, lines of text come out."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rgpu_client.observe.ink import Ink, clip, cut, pad, visible
from rgpu_common.texts import one_line
from rgpu_common.units import PPM

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rgpu_common.v1.observe_pb2 import DeviceNow, GetNowResponse, LeaseNow

# From this width on, a terminal has two blanks between columns, and more columns.
_WIDE = 96
_UNITS = ((1 << 40, "T"), (1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K"))
# Below this width, less is shown for each device.
_NARROW = 60
# A lease that waits for less than this part of the time is not short of its share.
_WAITS_PPM = 20_000
_BELOW = 0.95
# If a lease uses less of the device than this and compiles code, it is shown as compiling.
_IDLE_PPM = 20_000
_MIN_BAR = 12


@dataclass(frozen=True, slots=True)
class View:
    """How the screen is drawn.

    server: the server's address. sort: one of SORTS. notice: a sentence in place of the help line,
    such as the reason for a missing answer.
    """

    width: int
    height: int
    ink: Ink
    server: str
    sort: str = "share"
    notice: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table.

    cells: its width; 0: the bar, which takes the rest. from_width: the terminal's least width for
    which it is shown.
    """

    title: str
    cells: int
    show: Callable[[LeaseNow, Ink, int], str]
    right: bool = True
    from_width: int = 0


SORTS: dict[str, Callable[[LeaseNow], tuple[object, ...]]] = {
    "share": lambda x: (-x.share_1s_ppm, x.tenant, x.key),
    "tenant": lambda x: (x.tenant, x.key),
    "memory": lambda x: (-x.memory_used_bytes, x.tenant, x.key),
    "waiting": lambda x: (-x.waiting_ppm, x.tenant, x.key),
}


def frame(now: GetNowResponse | None, view: View) -> list[str]:
    """Returns at most view.height lines of at most view.width cells."""
    lines = [_head(now, view)]
    if now is not None:
        lines += [_device(device, view) for device in now.devices[: max(view.height // 3, 1)]]
        lines += ["", *_table(now, view, view.height - len(lines) - 3)]
    room = view.height - len(lines) - 1
    lines += [""] * room
    return [cut(line, view.width) for line in (*lines[: view.height - 1], _foot(view))]


def report(now: GetNowResponse, view: View) -> list[str]:
    """Returns the same content once: all leases, and without the help line of a screen."""
    lines = [_head(now, view), *[_device(device, view) for device in now.devices], ""]
    lines += _table(now, view, len(now.leases) + 2)
    return [cut(line, view.width) for line in lines]


def _head(now: GetNowResponse | None, view: View) -> str:
    left = view.ink.paint("rgpu top", "bold") + "  " + clip(view.server, view.width // 3)
    if now is None:
        return left
    sessions = sum(lease.sessions for lease in now.leases)
    words = [_count(len(now.leases), "lease"), _count(sessions, "session") + _seams(now)]
    compiling = sum(lease.compiling for lease in now.leases)
    if compiling:
        words.append(view.ink.paint(f"{compiling} compiling", "cyan"))
    if not now.enforced:
        words.append(view.ink.paint("shares are not enforced", "yellow"))
    if now.draining:
        words.append(view.ink.paint("draining", "yellow"))
    left += "  " + ", ".join(words)
    clock = time.strftime("%H:%M:%S", time.localtime(now.time_seconds))
    room = view.width - visible(left) - len(clock)
    return left + " " * room + clock if room > 1 else left


def _seams(now: GetNowResponse) -> str:
    """Returns how many sessions are at the array seam, by library; "" if none is."""
    seams = Counter(one_line(seam, 16) for lease in now.leases for seam in lease.seams)
    del seams["driver"]
    return f" ({', '.join(f'{seams[one]} {one}' for one in sorted(seams))})" if seams else ""


def _device(device: DeviceNow, view: View) -> str:
    ink = view.ink
    used = _bytes(device.used_memory_bytes) + "/" + _bytes(device.memory_bytes)
    name = clip(device.name, max(view.width - 59, 8), ink.fine)
    left = f"device {device.ordinal}  {ink.paint(name, 'cyan')}  "
    share = min(device.share_1s_ppm, PPM)
    right = f" {_percent(share):>4}  mem {used}"
    if view.width >= _NARROW:
        right += f"  granted {_percent(device.leased_share_ppm)}"
    if view.width >= _WIDE:
        right += f"  {device.switches_per_second:.0f} switches/s"
    room = view.width - visible(left) - len(right)
    return left + ink.bar(room, share, "green", (None, None)) + right if room >= 4 else left + right


def _table(now: GetNowResponse, view: View, room: int) -> list[str]:
    if not now.leases:
        return [view.ink.paint("no leases yet: `rgpu run -- PROGRAM` makes one", "dim")]
    leases = sorted(now.leases, key=SORTS[view.sort])
    names = _names(leases, view)
    gap = 2 if view.width >= _WIDE else 1
    columns, bar = _fitting(view.width - sum(cells + gap for cells in names), gap, view.width)
    lines = [_titles(columns, names, bar, view)]
    shown = leases if len(leases) < room else leases[: max(room - 2, 1)]
    for lease in shown:
        cells = [
            pad(clip(text, width, view.ink.fine), width)
            for text, width in zip((lease.tenant, lease.key), names, strict=True)
        ]
        for column in columns:
            width = column.cells or bar
            cells.append(pad(column.show(lease, view.ink, width), width, column.right))
        lines.append((" " * gap).join(cells).rstrip())
    if len(shown) < len(leases):
        lines.append(view.ink.paint(f"and {len(leases) - len(shown)} more", "dim"))
    return lines


def _fitting(room: int, gap: int, width: int) -> tuple[list[Column], int]:
    """Returns the columns that fit a terminal of this width, and the width of the bar."""
    columns = [column for column in _COLUMNS if width >= column.from_width]

    def left() -> int:
        return room - sum(column.cells + gap for column in columns if column.cells > 0)

    for title in _FIRST_TO_GO:
        if left() >= _MIN_BAR:
            break
        columns = [column for column in columns if column.title != title]
    return columns, max(left(), _MIN_BAR)


def _titles(columns: Sequence[Column], names: tuple[int, int], bar: int, view: View) -> str:
    cells = [pad("TENANT", names[0]), pad("LEASE", names[1])]
    for column in columns:
        width = column.cells or bar
        title = column.title
        if column.cells == 0:
            title = "SHARE " + ("─" if view.ink.fine else "-") * max(width - 11, 0) + " 100%"
        cells.append(pad(title, width, column.right))
    gap = " " * (2 if view.width >= _WIDE else 1)
    return view.ink.paint(gap.join(cells).rstrip(), "dim")


def _names(leases: Sequence[LeaseNow], view: View) -> tuple[int, int]:
    """Returns the widths of the columns for tenant and key, limited to a part of the screen."""
    tenants = max(6, *(len(lease.tenant) for lease in leases))
    keys = max(5, *(len(lease.key) for lease in leases))
    return min(tenants, max(view.width // 10, 6)), min(keys, max(view.width // 7, 5))


def _foot(view: View) -> str:
    ink = view.ink
    if view.notice:
        return ink.paint(clip(view.notice, view.width, ink.fine), "red")
    full, request, limit = ("█", "┃", "│") if ink.fine else ("#", "!", "|")
    legend = f"{full} last second  {request} guaranteed  {limit} limit"
    keys = f"q quit  s sort: {view.sort}"
    if view.width < len(legend) + len(keys) + 2:
        return ink.paint(keys[: view.width], "dim")
    room = view.width - len(legend) - len(keys)
    return ink.paint(legend + " " * max(room, 2) + keys, "dim")[
        : None if ink.colour else view.width
    ]


def _share_bar(lease: LeaseNow, ink: Ink, width: int) -> str:
    request = lease.share_request_ppm or None
    limit = lease.share_limit_ppm if lease.share_limit_ppm < PPM else None
    return ink.bar(width, lease.share_1s_ppm, _style(lease), (request, limit))


def _style(lease: LeaseNow) -> str:
    """Returns red if the lease waits and has less than its guaranteed share, yellow if it is held
    at its limit, and else green.
    """
    short = lease.share_1s_ppm < _BELOW * lease.share_request_ppm
    if short and lease.waiting_ppm > _WAITS_PPM:
        return "red"
    return "yellow" if lease.throttled_ppm > _WAITS_PPM else "green"


def _now(lease: LeaseNow, ink: Ink, _width: int) -> str:
    if lease.compiling and not lease.paused and lease.share_1s_ppm < _IDLE_PPM:
        return ink.paint("compile", "cyan")
    text = "paused" if lease.paused else _percent(lease.share_1s_ppm)
    return ink.paint(text, "yellow" if lease.paused else _style(lease))


def _granted(lease: LeaseNow, ink: Ink, _width: int) -> str:
    dash = "–" if ink.fine else "-"  # noqa: RUF001
    request = f"{lease.share_request_ppm / PPM * 100:.0f}"
    return f"{request}{dash}{_percent(lease.share_limit_ppm)}"


def _memory(lease: LeaseNow, ink: Ink, width: int) -> str:
    text = f"{_bytes(lease.memory_used_bytes)}/{_bytes(lease.memory_limit_bytes)}".rjust(9)
    limit = max(lease.memory_limit_bytes, 1)
    ppm = min(lease.memory_used_bytes * PPM // limit, PPM)
    style = "red" if ppm > 0.95 * PPM or lease.refused_allocations else "cyan"
    return ink.bar(width - len(text) - 1, ppm, style, (None, None)) + " " + text


def _part(ppm: int, ink: Ink) -> str:
    return _percent(ppm) if ppm >= 5000 else ink.paint("-", "dim")


def _percent(ppm: int) -> str:
    return f"{ppm / PPM * 100:.0f}%"


def _bytes(count: float) -> str:
    """Formats a number of bytes in at most four cells: 512M, 1.5G, 12K."""
    for size, name in _UNITS:
        if count * 1024 >= size * 1000:  # 1014M is 1G
            value = count / size
            return (
                f"{value:.1f}{name}" if value < 9.95 and value % 1 >= 0.05 else f"{value:.0f}{name}"
            )
    return f"{count:.0f}"


def _rate(value: float) -> str:
    if value < 10:
        return f"{value:.1f}" if value >= 0.05 else "0"
    for size, name in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= size:
            return f"{value / (1000 if name == 'k' else size):.1f}{name}"
    return f"{value:.0f}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


_COLUMNS = (
    Column("", 0, _share_bar, right=False),
    Column("NOW", 7, _now),
    Column("10 S", 4, lambda x, _i, _w: _percent(x.share_10s_ppm), from_width=_WIDE),
    Column("GRANTED", 7, _granted),
    Column("WAIT", 4, lambda x, ink, _w: _part(x.waiting_ppm, ink)),
    Column("CAPPED", 6, lambda x, ink, _w: _part(x.throttled_ppm, ink), from_width=110),
    Column("MEMORY", 9 + 5, _memory, right=False),
    Column("LAUNCH/S", 8, lambda x, _i, _w: _rate(x.launches_per_second)),
    Column("COPY/S", 6, lambda x, _i, _w: _bytes(x.copied_bytes_per_second), from_width=128),
)
# The columns that are left out on a narrow terminal, in this order.
_FIRST_TO_GO = ("COPY/S", "CAPPED", "10 S", "LAUNCH/S", "WAIT", "MEMORY", "GRANTED", "NOW")
