"""The table of `rgpu smi`. Pure code: what the library says goes in, lines of text come out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_common import release
from rgpu_common.texts import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rgpu_client.observe.nvml import Card, Node

_MIB = 1 << 20
_LEFT, _MIDDLE, _RIGHT = 39, 24, 16
_WIDTH = _LEFT + _MIDDLE + _RIGHT + 8  # between the outer bars
_NONE = "N/A"


def smi_lines(node: Node, when: str, *, whole: bool = False) -> list[str]:
    """Returns the lines of both tables, each of the same width. whole: the devices are shown, and
    not the part of a lease.
    """
    lines = [when, _rule("-"), _wide(_head(node)), _split("-")]
    lines += [_cells("Device  Name", "Bus-Id", "Compute", ">"), _cells(*_SECOND), _split("=")]
    for card in node.devices:
        lines += [*_card(card), _split("-")]
    if not node.devices:
        lines += [_wide("No device"), _rule("-")]
    lines += [
        "",
        _rule("-"),
        _wide("Processes:" if whole else "Processes of the lease:"),
        _wide(_process_titles()),
    ]
    lines += [_rule("="), *_process_lines(node.devices), _rule("-")]
    return lines


_SECOND = ("Fan  Temp   Perf     Power: Usage/Cap", "Memory-Usage", "GPU-Util", ">")


def _head(node: Node) -> str:
    words = (
        f"rgpu {release()}",
        f"Driver: {_or_none(node.driver)}",
        f"CUDA: {_or_none(node.cuda)}",
    )
    return _spread(words, _WIDTH - 2)


def _spread(words: Sequence[str], width: int) -> str:
    """Returns the words with the same room between them."""
    left = max(width - sum(map(len, words)), len(words) - 1)
    gap = " " * (left // max(len(words) - 1, 1))
    return gap.join(words)


def _card(card: Card) -> tuple[str, str]:
    name = one_line(card.name or _NONE, _LEFT - 9)
    compute = _or_none(card.compute_capability)
    power = f"{_watts(card.power_mw)} / {_watts(card.power_limit_mw)}"
    state = _NONE if card.performance_state is None else f"P{card.performance_state}"
    left = f"{_unit(card.fan_percent, '%'):<4} {_unit(card.temperature_c, 'C'):<6} {state:<7}"
    memory = f"{_mib(card.memory_used_bytes)} / {_mib(card.memory_total_bytes)}"
    return (
        _cells(f"{card.index:>6}  {name}", card.pci_bus_id or _NONE, compute, ">"),
        _cells(left + power.rjust(_LEFT - len(left)), memory,
               _unit(card.utilization_percent, "%"), ">"),
    )  # fmt: skip


def _process_titles() -> str:
    return _process_row("Device", "PID", "Program", "Memory")


def _process_lines(cards: Sequence[Card]) -> list[str]:
    rows = [
        _wide(_process_row(str(card.index), str(one.pid), one.program, _mib(one.memory_bytes)))
        for card in cards
        for one in card.processes
    ]
    return rows or [_wide("No process uses a device now")]


def _process_row(device: str, pid: str, program: str, memory: str) -> str:
    room = _WIDTH - 2 - 6 - 10 - 12 - 6  # the other cells, and the blanks between all
    return f"{device:>6}  {pid:>10}  {one_line(program, room):<{room}}  {memory:>12}"


def _cells(left: str, middle: str, right: str, align: str) -> str:
    row = f"{one_line(left, _LEFT):<{_LEFT}} | {one_line(middle, _MIDDLE):{align}{_MIDDLE}}"
    return f"| {row} | {one_line(right, _RIGHT):{align}{_RIGHT}} |"


def _wide(text: str) -> str:
    room = _WIDTH - 2
    return f"| {one_line(text, room):<{room}} |"


def _rule(of: str) -> str:
    return f"+{of * _WIDTH}+"


def _split(of: str) -> str:
    return f"+{of * (_LEFT + 2)}+{of * (_MIDDLE + 2)}+{of * (_RIGHT + 2)}+"


def _or_none(text: str | None) -> str:
    return text or _NONE


def _unit(number: int | None, unit: str) -> str:
    return _NONE if number is None else f"{number}{unit}"


def _watts(milliwatts: int | None) -> str:
    return _NONE if milliwatts is None else f"{round(milliwatts / 1000)}W"


def _mib(number: int | None) -> str:
    return _NONE if number is None else f"{number // _MIB}MiB"
