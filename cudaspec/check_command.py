"""The rules of commands. Each failure is a sentence that names the row."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cudaspec import length, model
from cudaspec.model import Mode
from cudaspec.rows import HANDLES, CommandRow, SpecError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_COMMAND_NAME = re.compile(r"rgpu[A-Z][A-Za-z0-9]*")
# A command with such a name takes device memory or keeps the device busy, so it must name the meter
# that pays for it.
_MEMORY = re.compile(
    r"Alloc|Load|Retain|ContextCreate|PoolCreate|SetLimit|Array\w*Create|Managed|Mem(Create|Map|Import)"
    r"|Prefetch|Graph\w*(Instantiate|Upload|Update)"
)
_TIME = re.compile(r"Launch|Copy|Memset|Prefetch")
# Keywords of C++ that could be the name of a field.
_CPP_WORDS = re.compile(
    "and|auto|bool|break|case|catch|char|class|const|continue|default|delete|do|double|else|enum|"
    "explicit|export|extern|false|float|for|friend|goto|if|inline|int|long|mutable|namespace|new|"
    "not|operator|or|private|protected|public|register|return|short|signed|sizeof|static|struct|"
    "switch|template|this|throw|true|try|typedef|typeid|typename|union|unsigned|using|virtual|void|"
    "volatile|while|xor"
)
# The fields that name what a launch runs.
_LAUNCHED = {model.WorkKind.LAUNCH: ("function", "kernel"), model.WorkKind.GRAPH: ("exec",)}
_CONSTANT = re.compile(r"k[A-Z][A-Za-z0-9]*")


def check(command: CommandRow) -> None:
    """Raises SpecError for the first rule that the command breaks."""
    for rule in _COMMAND_RULES:
        if sentence := rule(command):
            raise SpecError(f"{command.name}: {sentence}")


def _command_name(command: CommandRow) -> str:
    if not _COMMAND_NAME.fullmatch(command.name):
        return "the name of a command is 'rgpu' and words with capitals."
    if not 0 < command.opcode <= 0xFFFF:
        return f"the opcode {command.opcode:#x} does not fit 16 bits."
    return ""


def _command_fields(command: CommandRow) -> str:
    for fields in (command.request, command.reply):
        names = [f.name for f in fields]
        for name in names:
            if names.count(name) > 1:
                return f"the field '{name}' appears twice."
            if _CPP_WORDS.fullmatch(name):
                return f"the field '{name}' is a keyword of C++; give it another name."
    if any(f.new for f in command.reply):
        return "the client creates handles, so a reply cannot have a 'new' one."
    return ""


def _command_mode(command: CommandRow) -> str:
    row = command.row
    if row.mode in (Mode.LOCAL, Mode.UNSUPPORTED, Mode.PLANNED):
        return f"a command is sent, so its class cannot be {row.mode.name}."
    if command.is_call:
        return "only a posted command can be reaped." if row.reaped else ""
    if command.reply:
        return f"a posted command has no reply; make it a call or drop '{command.reply[0].text}'."
    if row.reports or row.drains:
        return "a posted command cannot report a deferred error; only a call can."
    if row.bulk == "reply" and row.mode is not Mode.DELIVERED:
        return "a posted command sends nothing back; its class is DELIVERED when bytes come later."
    return ""


def _command_flags(command: CommandRow) -> str:
    row = command.row
    if row.bulk not in ("", "request", "reply"):
        return f"bulk is 'request' or 'reply', not '{row.bulk}'."
    if row.drains and row.mode is not Mode.PARKED:
        return "a command that drains all threads waits for them, so its class is PARKED."
    takes, works = _MEMORY.search(command.name), _TIME.search(command.name)
    if (takes or works) and not row.charges:
        return "it allocates, copies or launches, so it must name the meter that pays (charges)."
    if takes and model.DEVICE_MEMORY.isdisjoint(row.charges):
        return "it takes device memory, so it must name a meter of memory (charges)."
    if works and model.DEVICE_TIME.isdisjoint(row.charges):
        return "it keeps the device busy, so it must name a meter of time (charges)."
    return ""


def _command_event(command: CommandRow) -> str:
    concerns = command.row.concerns
    events = [f.name for f in command.request if f.kind == "event"]
    if events and not concerns:
        return f"it has the event '{events[0]}': name the event that it concerns, or 'none'."
    if concerns not in ("", "none", *events) or (concerns and not events):
        return f"it concerns '{concerns}', which is not an event of its request."
    return ""


def _command_work(command: CommandRow) -> str:
    work = command.row.work
    gated = not model.DEVICE_TIME.isdisjoint(command.row.charges)
    if gated and work is None:
        return "it is charged for device time, so it must say what the executor predicts (work)."
    if work is None:
        return ""
    if not gated:
        return "it has work but is not charged for device time (charges)."
    if launched := _LAUNCHED.get(work.kind):
        if work.bytes:
            return "a launch has no length; what it launches says how long it runs."
        return _operands(command, launched)
    try:
        names = length.names(work.bytes)
    except ValueError as error:
        return str(error)
    if command.row.bulk == "request":
        names.discard("bulk")
    return _operands(command, sorted(names))


def _operands(command: CommandRow, names: Sequence[str]) -> str:
    """Checks that the executor can read the fields without decoding the others."""
    for name in names:
        if name not in {f.name for f in command.request}:
            return f"its work reads '{name}', which is not a field of its request."
        if command.offset(name) is None:
            return f"its work reads '{name}', which stands behind a field of variable length."
    return ""


def _command_names(command: CommandRow) -> str:
    integers = {f.name for f in command.request if f.kind not in ("bytes", "f32", "f64", *HANDLES)}
    seen: set[str] = set()
    for field, constants in command.row.names.items():
        if field not in integers:
            return f"'{field}' has names for its values but is not an integer of its request."
        for name in constants:
            if not _CONSTANT.fullmatch(name) or name in seen:
                return f"'{name}' is not a new name of the form kName."
            seen.add(name)
    return ""


_COMMAND_RULES: tuple[Callable[[CommandRow], str], ...] = (
    _command_name,
    _command_fields,
    _command_mode,
    _command_flags,
    _command_event,
    _command_work,
    _command_names,
)
