"""One message of each channel with a value in every field. `tests/wire/recorded_channels.txt` holds
their bytes.
"""

from __future__ import annotations

from pathlib import Path

from rgpu_common.wire import compiler as pc
from rgpu_common.wire import worker as wk
from rgpu_common.wire.fields import Band
from rgpu_common.wire.resume import Lane

RECORDED = Path(__file__).parents[1] / "wire/recorded_channels.txt"
SECRET = bytes(range(32))
ASSIGN = wk.Assign(
    session=7, secret=SECRET, slot=3, memory_limit_bytes=2 << 30, stream_credits=512,
    stream_credit_bytes=64 << 20, device=-1, tenant="tenant ä", environment=("A=1", "B=x=y"),
    hello=b"hello", resume_grace_ms=10_000, compression=True,
)  # fmt: skip
LOADED = pc.Loaded(
    0, "warning: a\nb", SECRET,
    entries=(
        pc.EntryInfo("saxpy", (pc.ParamInfo(0, 8), pc.ParamInfo(8, 4)), 12, 16, 32, 256, 64, 4, 1,
                     80, 75, 20, 24, 801, "why"),
        pc.EntryInfo("another"),
    ),
    globals=(
        pc.GlobalInfo("table", pc.GlobalSpace.CONST, 64, 16, pc.GlobalScope.PROGRAM, b"abc",
                      (pc.Relocation(8, 1, 0, -4), pc.Relocation(16, 2, 1, 0))),
    ),
    functions=("callee", "other"),
)  # fmt: skip


def messages() -> dict[str, bytes]:
    """Returns the name of each message and the bytes of its sample."""
    inputs = (b".version 8.0", b"")
    return {
        "worker ASSIGN": wk.encode_assign(ASSIGN),
        "worker ATTACH": wk.encode_attach(wk.Attach()),
        "worker END": wk.encode_end(wk.End(46, "no lease")),
        "worker RESUME": wk.encode_resume(wk.Resume(b"head")),
        "worker READY": wk.encode_ready(wk.Ready("seccomp: none")),
        "worker OPENED": wk.encode_opened(wk.Opened(Band(1 << 45, 1 << 40), wk.Ring.DECLINED)),
        "worker REFUSED": wk.encode_refused(wk.Refused(2, "no memory")),
        "worker ENDED": wk.encode_ended(wk.Ended("the client has ended")),
        "worker RESUMED": wk.encode_resumed(wk.Resumed(Lane.CONTROL, 3, True, 1 << 40)),
        "worker EXPORT_WANTED": wk.encode_export_wanted(
            wk.ExportWanted(1 << 33, 5, wk.Shared.EVENT, SECRET)
        ),
        "worker EXPORT_OPENED": wk.encode_export_opened(wk.ExportOpened(9, 0, 1 << 21, b"handle")),
        "worker EXPORT_RELEASED": wk.encode_export_released(wk.ExportReleased(5)),
        "worker WARN": wk.encode_warn(wk.Warn("save what you need")),
        "worker OPEN_EXPORT": wk.encode_open_export(
            wk.OpenExport(9, 7, 5, wk.Shared.MEMORY, SECRET)
        ),
        "worker EXPORT_GIVEN": wk.encode_export_given(
            wk.ExportGiven(1 << 33, 400, 1 << 21, 2 << 21, b"handle")
        ),
        "worker EXPORT_CLOSED": wk.encode_export_closed(wk.ExportClosed(7, 5)),
        "compiler LOAD": pc.encode_load(pc.Load(inputs)),
        "compiler LOADED": pc.encode_loaded(LOADED),
        "compiler LOWER": pc.encode_lower(pc.Lower(SECRET, "saxpy")),
        "compiler LOWERED": pc.encode_lowered(
            pc.Lowered(0, "log", 2, 1, 1, 32, 16, b"\x7fELF", (1, 0))
        ),
        "compiler LINK": pc.encode_link(pc.Link(inputs)),
        "compiler LINKED": pc.encode_linked(pc.Linked(218, "line 1: no", "_Z1Zv", 1)),
    }


def recorded() -> dict[str, bytes]:
    """Returns the bytes that these messages had when they were recorded."""
    rows = (line.rpartition(" ") for line in RECORDED.read_text().splitlines())
    return {name: bytes.fromhex(message) for name, _, message in rows}
