"""The sentences of `rgpu logs`, from the fields of the audit log's events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_common.texts import one_line
from rgpu_common.units import counted, format_bytes, format_seconds, format_share

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Fields = Mapping[str, str | float | None]


def words_of(event: str, fields: Fields) -> str:
    """Returns the sentence of an event in one line; "" for an event that is not about a lease."""
    words = _WORDS.get(event)
    return "" if words is None else one_line(words(fields))


def _number(fields: Fields, name: str) -> int:
    return int(fields.get(name) or 0)


def _granted(fields: Fields) -> str:
    how = f"granted to {fields['name']}" if fields.get("name") else "granted"
    if fields.get("explicit"):
        how += " before its program started"
    memory = format_bytes(_number(fields, "memory_bytes"))
    return f"{how}: {memory} of device {_number(fields, 'device')}, key {fields.get('key')!r}"


def _updated(fields: Fields) -> str:
    return (
        f"it has {format_bytes(_number(fields, 'memory_bytes'))}, share "
        f"{format_share(_number(fields, 'share_request_ppm'))}, limit "
        f"{format_share(_number(fields, 'share_limit_ppm'))}, and is {fields.get('state')}"
    )


def _assigned(fields: Fields) -> str:
    program = fields.get("program") or "a program"
    who = f"session {fields.get('session')}: {program} from {fields.get('peer')}"
    return f"{who}, worker {fields.get('worker')}"


def _opened(fields: Fields) -> str:
    """The transport that carries the session, which may be another than that of its HELLO."""
    over = fields.get("transport")
    return f"session {fields.get('session')} is open{f' over {over}' if over else ''}"


def _ended(fields: Fields) -> str:
    launches, refused = _number(fields, "launches"), _number(fields, "refused")
    peak = format_bytes(_number(fields, "peak_bytes"))
    copied = format_bytes(_number(fields, "copied_bytes"))
    launched = "1 launch" if launches == 1 else f"{launches} launches"
    said = f"ended: at most {peak} used, {launched}, {copied} copied"
    return f"{said}, {counted(refused, 'allocation')} refused" if refused else said


def _session_ended(fields: Fields) -> str:
    why = fields.get("reason")
    return f"session {fields.get('session')} ended{f': {why}' if why else ''}"


def _reclaim(fields: Fields) -> str:
    left = format_seconds(float(fields.get("seconds") or 0))
    return f"ends in {left}: its memory was borrowed, and the owner needs it"


_WORDS: dict[str, Callable[[Fields], str]] = {
    "lease_granted": _granted,
    "lease_updated": _updated,
    "lease_ended": _ended,
    "lease_reclaim_announced": _reclaim,
    "claim_granted": lambda fields: "a run has claimed it",
    "session_assigned": _assigned,
    "session_opened": _opened,
    "session_refused": lambda fields: (
        f"session {fields.get('session')} was refused: {fields.get('sentence')}"
    ),
    "session_fenced": lambda fields: f"session {fields.get('session')}: {fields.get('sentence')}",
    "session_ended": _session_ended,
    "page_order_carried_out": lambda fields: (
        f"{fields.get('by')}, on the page: {fields.get('sentence')}"
    ),
    "page_order_refused": lambda fields: (
        f"{fields.get('by')}, on the page: {fields.get('order')} was refused: "
        f"{fields.get('sentence')}"
    ),
    "worker_printed": lambda fields: f"worker {fields.get('worker')}: {fields.get('text')}",
}
