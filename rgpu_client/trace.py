"""Reads and prints the counters of the driver library (RGPU_TRACE)."""

from __future__ import annotations

from dataclasses import dataclass, field
from textwrap import fill

from rgpu_common.errors import ProtocolError
from rgpu_common.tables import fitting, table
from rgpu_common.units import counted, format_bytes, format_seconds

# The most missing functions that are named. A program that looked up more was listing functions,
# and does not need any one of them.
_NAMED = 24
_NAME_CELLS = 60


@dataclass(frozen=True, slots=True)
class TracedCall:
    """The counters of one function.

    calls: how often it was called. bytes: bytes that it moved. ns: time inside it. refused: how
    often it returned CUDA_ERROR_NOT_SUPPORTED.
    """

    name: str
    calls: int
    bytes: int
    ns: int
    refused: int = 0

    def __add__(self, other: TracedCall) -> TracedCall:
        return TracedCall(
            self.name,
            self.calls + other.calls,
            self.bytes + other.bytes,
            self.ns + other.ns,
            self.refused + other.refused,
        )


@dataclass(frozen=True, slots=True)
class Compiled:
    """A kernel that the device's driver loaded, and perhaps compiled.

    name: "" for modules, without their kernels. times: how often. ns: the time that it took.
    """

    name: str
    times: int
    ns: int

    def __add__(self, other: Compiled) -> Compiled:
        return Compiled(self.name, self.times + other.times, self.ns + other.ns)


@dataclass(frozen=True, slots=True)
class Trace:
    """The counters of one or more processes.

    notes: totals by name, such as commands and writes. missing: functions that a process asked for
    by name (cuGetProcAddress) and that rgpu lacks, with the number of requests. failures: why
    sessions failed, such as a kernel's illegal access.
    """

    calls: tuple[TracedCall, ...]
    notes: dict[str, int] = field(default_factory=dict)
    missing: dict[str, int] = field(default_factory=dict)
    compiled: tuple[Compiled, ...] = ()
    failures: tuple[str, ...] = ()
    processes: int = 1


def parse_trace(text: str) -> Trace:
    """Reads `name<TAB>calls<TAB>bytes<TAB>ns` lines and `#name<TAB>count...` notes.

    Raises:
        ProtocolError: a line has neither form.
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
            raise ProtocolError(f"line {number} of the trace is malformed: {line!r}") from None
    return Trace(tuple(calls), notes)


def format_trace(
    trace: Trace, width: int = 100, all_names: bool = False, terminal: int | None = None
) -> str:
    """Returns the table of calls, longest time first, and then kernels and unsupported functions.

    width: the width of wrapped text. all_names: names all missing functions, however many.
    terminal: the width of the terminal, if there is one, for which tables drop columns.
    """
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
    lines = [
        fitting(
            ("CUDA call", "calls>", "bytes>", "time>", "each>", "part>"),
            rows,
            ("part", "each", "bytes"),
            terminal,
        ),
        *_compiled(trace, terminal),
        *_unsupported(trace, width, all_names),
        *_failed(trace, width),
    ]
    count = sum(call.calls for call in trace.calls)
    processes = f" of {trace.processes} processes" if trace.processes > 1 else ""
    lines.append(f"\n{counted(count, 'call')}{processes} in {format_seconds(total_ns / 1e9)}")
    if "commands" in trace.notes and trace.notes.get("writes"):
        commands, writes = trace.notes["commands"], trace.notes["writes"]
        each = f"{commands / writes:.1f} per write"
        lines.append(f"{counted(commands, 'command')} in {counted(writes, 'write')}, {each}")
    return "\n".join(lines)


def _compiled(trace: Trace, terminal: int | None) -> list[str]:
    if not trace.compiled:
        return []
    rows = [
        (
            _shortened(one.name) or "(modules, without their kernels)",
            str(one.times),
            format_seconds(one.ns / 1e9),
            format_seconds(one.ns / 1e9 / one.times),
        )
        for one in sorted(trace.compiled, key=lambda c: (-c.ns, c.name))
    ]
    titles = ("loaded and compiled", "times>", "time>", "each>")
    return ["\n" + fitting(titles, rows, ("each", "times"), terminal)]


def _unsupported(trace: Trace, width: int, all_names: bool) -> list[str]:
    """Returns the lines about functions that the program called or asked for and rgpu lacks."""
    lines = []
    refused = sorted((c for c in trace.calls if c.refused), key=lambda c: (-c.refused, c.name))
    if refused:
        rows = [(call.name, str(call.refused), str(call.calls)) for call in refused]
        lines.append("\n" + table(("not supported", "answers>", "of calls>"), rows))
    if trace.missing:
        names = [
            name if count == 1 else f"{name} ({count} times)"
            for name, count in sorted(trace.missing.items(), key=lambda one: (-one[1], one[0]))
        ]
        text = ", ".join(names)
        if len(names) > _NAMED and not all_names:
            text = (
                f"{len(names)} functions; the program seems to look up every function that it "
                "knows; -v names them"
            )
        lines.append("\nasked for by name (cuGetProcAddress) and missing:")
        lines.append(fill(text, width, initial_indent="  ", subsequent_indent="  "))
    return lines


def _failed(trace: Trace, width: int) -> list[str]:
    if not trace.failures:
        return []
    return [
        "\nfailed:",
        *(fill(why, width, initial_indent="  ", subsequent_indent="  ") for why in trace.failures),
    ]


def _shortened(name: str) -> str:
    return name if len(name) <= _NAME_CELLS else name[: _NAME_CELLS - 1] + "…"
