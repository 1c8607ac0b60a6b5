"""What the driver library counted: its RGPU_TRACE file, read and shown."""

from __future__ import annotations

from dataclasses import dataclass, field

from rgpu_common.errors import ProtocolError
from rgpu_common.tables import table
from rgpu_common.units import format_bytes, format_seconds


@dataclass(frozen=True, slots=True)
class TracedCall:
    """One function: how often it was called, bytes moved, nanoseconds inside."""

    name: str
    calls: int
    bytes: int
    ns: int


@dataclass(frozen=True, slots=True)
class Trace:
    """All functions of one process; notes are totals by name, such as commands and writes."""

    calls: tuple[TracedCall, ...]
    notes: dict[str, int] = field(default_factory=dict)


def parse_trace(text: str) -> Trace:
    """Reads `name<TAB>calls<TAB>bytes<TAB>ns` lines and `#name<TAB>count...` notes.

    Raises:
        ProtocolError: a line is neither.
    """
    calls, notes = [], {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("\t")
        try:
            if line.startswith("#"):
                pairs = zip(words[0::2], words[1::2], strict=True)
                notes.update({name.lstrip("#"): int(count) for name, count in pairs})
            else:
                name, count, size, ns = words
                calls.append(TracedCall(name, int(count), int(size), int(ns)))
        except ValueError:
            raise ProtocolError(f"line {number} of the trace makes no sense: {line!r}") from None
    return Trace(tuple(calls), notes)


def format_trace(trace: Trace) -> str:
    """Returns the table, longest time first."""
    total_ns = sum(call.ns for call in trace.calls)
    rows = [
        (
            call.name,
            str(call.calls),
            format_bytes(call.bytes) if call.bytes else "-",
            format_seconds(call.ns / 1e9),
            format_seconds(call.ns / 1e9 / call.calls) if call.calls else "-",
            f"{100 * call.ns / total_ns:.1f} %" if total_ns else "-",
        )
        for call in sorted(trace.calls, key=lambda c: (-c.ns, c.name))
    ]
    lines = [table(("CUDA call", "calls>", "bytes>", "time>", "each>", "part>"), rows)]
    count = sum(call.calls for call in trace.calls)
    lines.append(f"\n{count} calls in {format_seconds(total_ns / 1e9)}")
    if "commands" in trace.notes and trace.notes.get("writes"):
        commands, writes = trace.notes["commands"], trace.notes["writes"]
        lines.append(f"{commands} commands in {writes} writes, {commands / writes:.1f} per write")
    return "\n".join(lines)
