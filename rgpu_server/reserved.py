"""Keeps the reservations and kept leases of a server over restarts, in a file of its state folder.

Leases with sessions outlive the server with their workers. These may have no session, and must not
depend on one.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from typing import TYPE_CHECKING, Any

from netprobe.identity import read_boot_id
from rgpu_common.clusters import MAX_RESERVE_SECONDS
from rgpu_common.sharing import SharePolicy
from rgpu_server.core import events as on
from rgpu_server.core.booked import booked_of
from rgpu_server.core.model import LeaseKey, LeaseState, Refusal, Wish

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rgpu_server.conductor import Conductor
    from rgpu_server.core.lease import Lease

log = logging.getLogger("rgpu.server")

FILE = "reserved.json"
_MOST_BYTES = 4 << 20


class ReservedFile:
    """uuids: the UUID of each device. The machine's boot counts: times are monotonic."""

    def __init__(self, folder: Path, conductor: Conductor, uuids: Mapping[int, str]) -> None:
        self._path = folder / FILE
        self._conductor = conductor
        self._uuids = uuids
        self._boot = read_boot_id() or ""
        self._saved: list[dict[str, Any]] = []

    def restore(self) -> None:
        """Grants again what an earlier server had reserved and nobody has taken over."""
        ordinals = {uuid: ordinal for ordinal, uuid in self._uuids.items()}
        for record in self._read():
            with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError):
                self._grant(record, ordinals[record["uuid"]])
        self.changed()

    def changed(self) -> None:
        """Writes the file if reservations have come or ended."""
        leases = self._conductor.node.leases
        now = [self._record(lease) for lease in leases if _lasts(lease)]
        if now == self._saved:
            return
        self._saved = now
        try:
            self._write(now)
        except OSError as error:
            log.error("%s cannot be written: %s; reservations end with this server", self._path,
                      error.strerror)  # fmt: skip

    def _grant(self, record: Mapping[str, Any], ordinal: int) -> None:
        conductor, booked = self._conductor, booked_of(record["booked"])
        key = LeaseKey(str(record["tenant"]), str(record["key"]))
        if booked is not None and booked.kept:
            left = float(record["ttl"])
        else:
            left = float(record["ends_at"]) - conductor.clock.now()
        taken_over = conductor.node.leases.of(key) is not None
        if booked is None or taken_over or not 0 < left <= MAX_RESERVE_SECONDS:
            return
        share, policy = int(record["share_ppm"]), SharePolicy(record["policy"])
        wish = Wish(
            ordinal,
            int(record["memory_bytes"]),
            share,
            int(record["limit_ppm"]),
            # Without it the server's default share would be added.
            policy=policy if share or policy is not SharePolicy.NONE else SharePolicy.BEST_EFFORT,
            priority=int(record["priority"]),
            weight=int(record["weight"]),
        )
        number = conductor.next_request()
        name = str(record.get("name") or "")
        event = on.LeaseRequested(number, key.tenant, key.name, wish, left, True, booked, name=name)
        answer = conductor.ask(number, event)
        if isinstance(answer, Refusal):
            log.error("lease %s is lost: %s", key, answer.sentence)

    def _record(self, lease: Lease) -> dict[str, Any]:
        quota = lease.asked
        return {
            "tenant": lease.key.tenant,
            "key": lease.key.name,
            "name": lease.name,
            "uuid": self._uuids[lease.device],
            "memory_bytes": quota.memory_bytes,
            "share_ppm": quota.share_request_ppm,
            "limit_ppm": quota.share_limit_ppm,
            "policy": quota.policy.value,
            "priority": quota.priority,
            "weight": quota.weight,
            # A kept lease has its whole time again, for its agent to come back.
            "ends_at": None if lease.kept else lease.ends_at,
            "ttl": lease.ttl_seconds,
            "booked": None if lease.booked is None else lease.booked.record(),
        }

    def _read(self) -> list[Any]:
        with contextlib.suppress(OSError, ValueError):
            with self._path.open("rb") as file:
                text = file.read(_MOST_BYTES)
            known = json.loads(text)
            if isinstance(known, dict) and known.get("boot") == self._boot:
                found = known.get("reserved")
                return found if isinstance(found, list) else []
        return []

    def _write(self, records: list[dict[str, Any]]) -> None:
        if not records:
            self._path.unlink(missing_ok=True)
            return
        new = self._path.with_suffix(".new")
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with open(handle, "w", encoding="utf-8") as file:
            json.dump({"boot": self._boot, "reserved": records}, file)
        os.replace(new, self._path)


def _lasts(lease: Lease) -> bool:
    return (lease.reserved or lease.kept) and lease.state is LeaseState.ACTIVE
