"""Rows for mbarrier objects and the copies that they track. Data only."""

from __future__ import annotations

from typing import Final

from rgpu_emu.ptx.table import Row

S_: Final = "parallel-synchronization-and-communication-instructions-mbarrier-"
D_: Final = "data-movement-and-conversion-instructions-"
_OWN: Final = "space?=shared|shared::cta"
_ANY: Final = "space?=shared|shared::cta|shared::cluster"
_SCOPE: Final = "scope?=cta|cluster"
_RELEASE: Final = f"sem?=release|relaxed {_SCOPE}"
_BYTES: Final = "mbarrier::complete_tx::bytes"
_WAIT: Final = f"sem?=acquire|relaxed {_SCOPE} {_OWN} b64"


def _arrive(action: str) -> tuple[Row, ...]:
    section = S_ + action.replace("_", "-")
    named = f"action={action}"
    return (
        Row("mbarrier", f"{named} {_RELEASE} {_ANY} b64", "d m s?", "mbarrier_arrive", section),
        Row(
            "mbarrier",
            f"{named} noComplete sem?=release scope?=cta {_OWN} b64",
            "d m s",
            "mbarrier_arrive",
            section,
        ),
        Row(
            "mbarrier",
            f"{named} expect_tx {_RELEASE} {_ANY} b64",
            "d m s",
            "mbarrier_arrive",
            section,
        ),
    )


ROWS: Final[tuple[Row, ...]] = (
    Row("mbarrier", f"init {_OWN} b64", "m s", "mbarrier_init", S_ + "init"),
    Row("mbarrier", f"inval {_OWN} b64", "m", "mbarrier_inval", S_ + "inval"),
    Row(
        "mbarrier",
        f"expect_tx sem?=relaxed {_SCOPE} {_ANY} b64",
        "m s",
        "mbarrier_tx",
        S_ + "expect-tx",
    ),
    Row(
        "mbarrier",
        f"complete_tx sem?=relaxed {_SCOPE} {_ANY} b64",
        "m s",
        "mbarrier_tx",
        S_ + "complete-tx",
    ),
    *_arrive("arrive"),
    *_arrive("arrive_drop"),
    Row("mbarrier", f"test_wait ?parity {_WAIT}", "d m s", "mbarrier_wait", S_ + "test-wait"),
    Row("mbarrier", f"try_wait ?parity {_WAIT}", "d m s s?", "mbarrier_wait", S_ + "try-wait"),
    Row("mbarrier", "pending_count b64", "d s", "mbarrier_pending", S_ + "pending-count"),
    Row(
        "cp",
        f"async mbarrier arrive ?noinc {_OWN} b64",
        "m",
        "copy_arrive",
        D_ + "cp-async-mbarrier-arrive",
    ),
    *(
        Row("cp", f"async bulk {pattern}", operands, lower, D_ + section)
        for pattern, operands, lower, section in (
            (
                f"space=shared::cta|shared::cluster from=global {_BYTES} ?L2::cache_hint",
                "m m s m s?",
                "copy_bulk",
                "cp-async-bulk",
            ),
            (
                f"space=shared::cluster from=shared::cta {_BYTES}",
                "m m s m",
                "copy_bulk",
                "cp-async-bulk",
            ),
            (
                "space=global from=shared::cta bulk_group ?L2::cache_hint",
                "m m s s?",
                "copy_bulk",
                "cp-async-bulk",
            ),
            ("prefetch L2 global ?L2::cache_hint", "m s s?", "nothing", "cp-async-bulk-prefetch"),
            ("commit_group", "", "nothing", "cp-async-bulk-commit-group"),
            ("wait_group ?read", "s", "nothing", "cp-async-bulk-wait-group"),
        )
    ),
)
