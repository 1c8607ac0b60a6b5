"""The screen of `rgpu top`. Pure code: messages of servers go in, lines of text come out.

`Nows` has the answer of each node of a cluster by its name, or that of one server by the name "".
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from rgpu_client.observe.ink import Ink, clip, cut, pad, visible
from rgpu_common.tables import format_time
from rgpu_common.texts import one_line
from rgpu_common.units import PPM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rgpu_common.v1.observe_pb2 import DeviceNow, GetNowResponse, LeaseNow

    Nows = Mapping[str, GetNowResponse]
    Row = tuple[str, LeaseNow]

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


class View(Struct, frozen=True):
    """How the screen is drawn.

    server: the address of the server, or of the cluster's manager. sort: one of SORTS. notice: a
    sentence in place of the help line, such as the reason for a missing answer.
    """

    width: int
    height: int
    ink: Ink
    server: str
    sort: str = "share"
    notice: str = ""


class Column(Struct, frozen=True):
    """A column of the table.

    cells: its width; 0: the bar, which takes the rest. from_width: the terminal's least width for
    which it is shown.
    """

    title: str
    cells: int
    show: Callable[[LeaseNow, Ink, int], str]
    right: bool = True
    from_width: int = 0


class Name(NamedTuple):
    """A column of words. cells: its width."""

    title: str
    cells: int
    text: Callable[[Row], str]


SORTS: dict[str, Callable[[LeaseNow], tuple[object, ...]]] = {
    "share": lambda x: (-x.share_1s_ppm, x.tenant, x.name, x.key),
    "tenant": lambda x: (x.tenant, x.name, x.key),
    "memory": lambda x: (-x.memory_used_bytes, x.tenant, x.name, x.key),
    "waiting": lambda x: (-x.waiting_ppm, x.tenant, x.name, x.key),
}


def frame(nows: Nows | None, view: View) -> list[str]:
    """Returns at most view.height lines of at most view.width cells."""
    lines = [_head(nows, view)]
    if nows is not None:
        lines += _devices(nows, view, max(view.height // 3, 1))
        lines += ["", *_table(nows, view, view.height - len(lines) - 3)]
    room = view.height - len(lines) - 1
    lines += [""] * room
    return [cut(line, view.width) for line in (*lines[: view.height - 1], _foot(view))]


def report(nows: Nows, view: View) -> list[str]:
    """Returns the same content once: all leases, and without the help line of a screen."""
    devices = sum(len(now.devices) for now in nows.values())
    lines = [_head(nows, view), *_devices(nows, view, devices), ""]
    lines += _table(nows, view, sum(len(now.leases) for now in nows.values()) + 2)
    return [cut(line, view.width) for line in lines]


def _head(nows: Nows | None, view: View) -> str:
    left = view.ink.paint("rgpu top", "bold") + "  " + clip(view.server, view.width // 3)
    if not nows:
        return left
    leases = [lease for _, lease in _leases(nows)]
    sessions = sum(lease.sessions for lease in leases)
    words = [] if "" in nows else [_count(len(nows), "node")]
    words += [_count(len(leases), "lease"), _count(sessions, "session") + _seams(leases)]
    compiling = sum(lease.compiling for lease in leases)
    if compiling:
        words.append(view.ink.paint(f"{compiling} compiling", "cyan"))
    if not all(now.enforced for now in nows.values()):
        words.append(view.ink.paint("shares are not enforced", "yellow"))
    drained = [name for name, now in nows.items() if now.draining]
    if drained:
        words.append(view.ink.paint(f"{one_line(', '.join(drained))} draining".strip(), "yellow"))
    left += "  " + ", ".join(words)
    newest = max(now.time_seconds for now in nows.values())
    clock = format_time(newest, "%H:%M:%S")
    room = view.width - visible(left) - len(clock)
    return left + " " * room + clock if room > 1 else left


def _leases(nows: Nows) -> Iterator[Row]:
    """Yields each lease, with its node."""
    for name, now in nows.items():
        for lease in now.leases:
            yield name, lease


def _seams(leases: Sequence[LeaseNow]) -> str:
    """Returns how many sessions are at the array seam, by library; "" if none is."""
    seams = Counter(one_line(seam, 16) for lease in leases for seam in lease.seams)
    del seams["driver"]
    return f" ({', '.join(f'{seams[one]} {one}' for one in sorted(seams))})" if seams else ""


def _devices(nows: Nows, view: View, most: int) -> list[str]:
    """Returns a line for each device; one for each node, if there is no room for so many."""
    rows = [
        (f"{name}/{device.ordinal}" if name else f"device {device.ordinal}", device)
        for name, now in nows.items()
        for device in now.devices
    ]
    if len(rows) > most and len(nows) > 1:
        rows = [(name, _sum(now.devices)) for name, now in nows.items() if now.devices]
    width = max((len(name) for name, _ in rows[:most]), default=0)
    return [_device(name.ljust(width), device, view) for name, device in rows[:most]]


def _sum(devices: Sequence[DeviceNow]) -> DeviceNow:
    """Returns all devices of a node as if they were one."""
    from rgpu_common.v1.observe_pb2 import DeviceNow

    return DeviceNow(
        name=f"{len(devices)} x {devices[0].name}",
        memory_bytes=sum(one.memory_bytes for one in devices),
        used_memory_bytes=sum(one.used_memory_bytes for one in devices),
        leased_share_ppm=sum(one.leased_share_ppm for one in devices) // len(devices),
        share_1s_ppm=sum(one.share_1s_ppm for one in devices) // len(devices),
        switches_per_second=sum(one.switches_per_second for one in devices),
    )


def _device(label: str, device: DeviceNow, view: View) -> str:
    ink = view.ink
    used = _bytes(device.used_memory_bytes) + "/" + _bytes(device.memory_bytes)
    name = clip(device.name, max(view.width - 51 - len(label), 8), ink.fine)
    left = f"{clip(label, view.width // 3, ink.fine)}  {ink.paint(name, 'cyan')}  "
    share = min(device.share_1s_ppm, PPM)
    right = f" {_percent(share):>4}  mem {used}"
    if view.width >= _NARROW:
        right += f"  granted {_percent(device.leased_share_ppm)}"
    if view.width >= _WIDE:
        right += f"  {device.switches_per_second:.0f} switches/s"
    room = view.width - visible(left) - len(right)
    return left + ink.bar(room, share, "green", (None, None)) + right if room >= 4 else left + right


def _table(nows: Nows, view: View, room: int) -> list[str]:
    if not any(now.leases for now in nows.values()):
        taken = any(
            device.leased_share_ppm or device.used_memory_bytes
            for now in nows.values()
            for device in now.devices
        )
        what = "none of the leases here is yours" if taken else "you see no lease"
        return [view.ink.paint(f"{what}: `rgpu run -- PROGRAM` makes one", "dim")]
    rows = sorted(_leases(nows), key=lambda row: (SORTS[view.sort](row[1]), row[0]))
    names = _names(rows, view, nodes="" not in nows)
    gap = 2 if view.width >= _WIDE else 1
    columns, bar = _fitting(view.width - sum(cells + gap for _, cells, _ in names), gap, view.width)
    lines = [_titles(columns, names, bar, view)]
    shown = rows if len(rows) < room else rows[: max(room - 2, 1)]
    for row in shown:
        cells = [pad(clip(text(row), width, view.ink.fine), width) for _, width, text in names]
        for column in columns:
            width = column.cells or bar
            cells.append(pad(column.show(row[1], view.ink, width), width, column.right))
        lines.append((" " * gap).join(cells).rstrip())
    if len(shown) < len(rows):
        lines.append(view.ink.paint(f"and {len(rows) - len(shown)} more", "dim"))
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


def _titles(columns: Sequence[Column], names: Sequence[Name], bar: int, view: View) -> str:
    cells = [pad(title, width) for title, width, _ in names]
    for column in columns:
        width = column.cells or bar
        title = column.title
        if column.cells == 0:
            title = "SHARE " + ("─" if view.ink.fine else "-") * max(width - 11, 0) + " 100%"
        cells.append(pad(title, width, column.right))
    gap = " " * (2 if view.width >= _WIDE else 1)
    return view.ink.paint(gap.join(cells).rstrip(), "dim")


def _names(rows: Sequence[Row], view: View, *, nodes: bool) -> list[Name]:
    """Returns the columns of words, each limited to a part of the screen. nodes: also the node."""
    columns = [Name("TENANT", view.width // 10, lambda row: row[1].tenant),
               Name("LEASE", view.width // 7, lambda row: row[1].name or row[1].key)]  # fmt: skip
    if nodes:
        columns.insert(0, Name("NODE", view.width // 10, lambda row: row[0]))
    found = []
    for column in columns:
        least = max(len(column.title), 5)
        longest = max(least, *(len(column.text(row)) for row in rows))
        found.append(column._replace(cells=min(longest, max(column.cells, least))))
    return found


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
