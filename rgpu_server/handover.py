"""What the daemon gives into the token loop's keeping, and takes back when it starts anew."""

from __future__ import annotations

import contextlib
import json
import logging
import time
from enum import Enum
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict, replace

from rgpu_common.errors import WorkerError
from rgpu_common.texts import one_line
from rgpu_common.wire.handshake import SECRET_BYTES
from rgpu_common.wire.hello import Hello
from rgpu_common.wire.status import CUDA_ERROR_DEVICE_UNAVAILABLE
from rgpu_common.wire.worker import End, encode_end
from rgpu_server.core.booked import booked_of
from rgpu_server.core.events import Adopted
from rgpu_server.core.lease import Lease
from rgpu_server.core.model import PPM, LeaseKey, LeaseState, Quota, SessionState
from rgpu_server.core.placement import find
from rgpu_server.core.sessions import Session
from rgpu_server.observe.audit import audit
from rgpu_server.service.callers import Caller
from rgpu_server.tokens import protocol as say
from rgpu_server.tokens.page import Phase, TokenView
from rgpu_server.workers.pages import Counters, LeasePage
from rgpu_server.workers.process import Handles, WorkerProcess

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rgpu_server.conductor import Conductor
    from rgpu_server.tokens.link import TokenLink, Told

log = logging.getLogger("rgpu.server")

_LOG_BYTES = 64 << 10
_NOT_SERVED = "the server was started anew and does not serve this session's device any more"
_BROKEN = (
    "the server cannot read the limits of this session's lease any more, so it ends the session; "
    "start the program again"
)


class Handover:
    """Tells the loop of every lease and every worker with a session.

    uuids: ordinal -> the device's identity, which a later daemon knows it by.
    """

    def __init__(
        self, conductor: Conductor, link: TokenLink, uuids: Mapping[int, str], enforce: bool
    ) -> None:
        self._conductor = conductor
        self._link = link
        self._uuids = uuids
        self._enforce = enforce
        self._told: set[str] = set()
        # Leases of an earlier daemon whose pages cannot be used.
        self._broken: set[str] = set()
        self._usage: dict[str, say.UsageIs] = {}
        # What leases had used when the loop before this one ended.
        self._before: dict[str, say.UsageIs] = {}
        # Of the loop that is there now, by device.
        self.tokens: dict[int, say.DeviceIs] = {}
        self.heard_at: float | None = None

    def usage(self, lease: str) -> say.UsageIs:
        """What a lease has used of its device, as last told; zeros if nothing was told."""
        now = self._usage.get(lease, say.no_usage(lease))
        before = self._before.get(lease)
        return now if before is None else _sum(before, now)

    # Telling

    def page_made(self, lease: str) -> None:
        """A page is new: nobody runs before the loop says so."""
        page = self._conductor.pages.get(lease)
        if page is not None and self._enforce:
            token = TokenView(page.address)
            token.heartbeat(time.monotonic_ns())
            token.write(Phase.NONE, 0)
        self.lease_is(lease)

    def lease_is(self, lease_id: str) -> None:
        """Tells of a lease, or of its change."""
        lease = self._conductor.node.leases.get(lease_id)
        page = self._conductor.pages.get(lease_id)
        if lease is None or page is None:
            return
        quota = lease.quota
        message = say.LeaseIs(
            lease=lease.id,
            tenant=lease.key.tenant,
            device=lease.device,
            request_ppm=quota.share_request_ppm,
            limit_ppm=quota.share_limit_ppm or PPM,
            weight=quota.weight,
            priority=quota.priority,
            paused=lease.paused,
            ended=page.ended.numbers(),
            record=json.dumps(self._lease_record(lease)),
        )
        new = lease.id not in self._told
        self._told.add(lease.id)
        self._link.send(message, page.descriptors if new else [])

    def lease_gone(self, lease: str) -> None:
        self._told.discard(lease)
        self._usage.pop(lease, None)
        self._before.pop(lease, None)
        self._link.send(say.LeaseGone(lease))

    def worker_is(self, session_id: int) -> None:
        """Tells of the worker that a session has."""
        conductor = self._conductor
        session = conductor.node.sessions.get(session_id)
        visitor = conductor.desk.get(session_id)
        worker = conductor.workers.get(session.worker) if session and session.worker else None
        handles = worker.handles() if worker is not None else None
        if session is None or visitor is None or handles is None:
            return
        record = {
            "tenant": session.tenant,
            "opened_at": session.opened_at,
            "peer": visitor.peer,
            "transport": visitor.transport,
            "program": visitor.hello.program,
            "client_pid": visitor.hello.pid,
            "pool": session.library,
            "secret": visitor.secret.hex(),
        }
        message = say.WorkerIs(
            session.id, session.lease, session.slot, handles.pid, json.dumps(record)
        )
        fds = [handles.pidfd, handles.control_fd, handles.log_fd]
        self._link.send(message, [fd for fd in fds if fd >= 0])

    def slot_cleared(self, lease: str, session: int) -> None:
        """The worker of a session is gone and the page has its slot back."""
        page = self._conductor.pages.get(lease)
        if page is not None:
            self._link.send(say.WorkerGone(session, lease, page.ended.numbers()))

    # LinkWatcher

    def hand_over(self) -> None:
        """A new loop: tells it everything."""
        self._before = {lease: self.usage(lease) for lease in self._usage}
        self._usage.clear()
        self._told.clear()
        for lease in self._conductor.node.leases:
            self.lease_is(lease.id)
        for session in self._conductor.node.sessions:
            self.worker_is(session.id)

    def loop_said(self, message: say.UsageIs | say.DeviceIs | say.Noted) -> None:
        self.heard_at = self._conductor.clock.now()
        if isinstance(message, say.DeviceIs):
            self.tokens[message.device] = message
            return
        if isinstance(message, say.UsageIs):
            if message.lease in self._told:
                self._usage[message.lease] = message
            return
        log.warning("session %d: %s", message.session, message.sentence)
        audit("session_fenced", session=message.session, sentence=message.sentence)
        self._conductor.desk.note_why(message.session, message.sentence)

    # Adopting

    def adopt(self, told: Told) -> None:
        """Goes on with what an earlier daemon left: before anything is granted."""
        leases = self._adopt_leases(told)
        sessions = self._adopt_workers(told, leases)
        for lease in list(leases.values()):
            if not lease.slots and lease.state is not LeaseState.ACTIVE:
                del leases[lease.id]
                self._conductor.pages.give_up(lease.id)
                self.lease_gone(lease.id)
        if not leases:
            return
        log.info("%d leases and %d running sessions are adopted", len(leases), len(sessions))
        self._conductor.feed(Adopted(tuple(leases.values()), tuple(sessions)))
        self._conductor.exports.adopted()
        for lease in leases.values():
            self.lease_is(lease.id)

    def _adopt_leases(self, told: Told) -> dict[str, Lease]:
        ordinals = {uuid: ordinal for ordinal, uuid in self._uuids.items()}
        leases = {}
        for message, fds in told:
            if not isinstance(message, say.LeaseIs):
                continue
            record = _record(message.record)
            lease = _lease(message.lease, record, ordinals)
            if lease is None:
                say.close_all(fds)
                if not any(_of_lease(m, message.lease) for m, _ in told):
                    self.lease_gone(message.lease)
                continue
            try:
                page = LeasePage.existing(fds, Counters(*message.ended))
            except (WorkerError, OSError) as error:
                log.error("lease %s cannot be adopted: %s", message.lease, error)
                self._broken.add(message.lease)
                self.lease_gone(message.lease)
                continue
            self._conductor.pages.adopt(lease.id, page)
            self._conductor.exports.exports.adopt(lease.id, record.get("exports"))
            self._told.add(lease.id)
            leases[lease.id] = lease
        return leases

    def _adopt_workers(self, told: Told, leases: Mapping[str, Lease]) -> list[Session]:
        conductor = self._conductor
        sessions = []
        numbers = iter(range(1, len(told) + 1))
        for message, fds in told:
            if not isinstance(message, say.WorkerIs):
                continue
            lease = leases.get(message.lease)
            handles = Handles(message.pid, fds[0], fds[1], fds[2] if len(fds) > 2 else -1)
            number = next(numbers)
            worker = WorkerProcess.adopted(
                number, handles, _LOG_BYTES, conductor, conductor.groups,
                0 if lease is None else lease.quota.memory_bytes,
            )  # fmt: skip
            worker.lease = message.lease
            if lease is None:
                sentence = _BROKEN if message.lease in self._broken else _NOT_SERVED
                worker.send(encode_end(End(CUDA_ERROR_DEVICE_UNAVAILABLE, sentence)))
                worker.abandon()
                continue
            conductor.workers[number] = worker
            session = self._session(message, lease, number)
            lease.slots[message.slot] = session.id
            sessions.append(session)
        return sessions

    def _session(self, message: say.WorkerIs, lease: Lease, worker: int) -> Session:
        record = _record(message.record)
        tenant = str(record.get("tenant", lease.key.tenant))
        hello = Hello(program=str(record.get("program", "")), pid=_whole(record.get("client_pid")))
        caller = Caller(str(record.get("transport", "")), str(record.get("peer", "")))
        self._conductor.desk.adopt(message.session, tenant, caller, hello, _secret(record))
        opened_at = record.get("opened_at")
        now = self._conductor.clock.now()
        return Session(
            id=message.session,
            tenant=tenant,
            lease=lease.id,
            slot=message.slot,
            library=self._pool(record, lease),
            opened_at=float(opened_at) if isinstance(opened_at, int | float) else now,
            deadline=None,
            state=SessionState.OPEN,
            worker=worker,
        )

    def _pool(self, record: dict[str, Any], lease: Lease) -> str:
        """Returns the pool that a session's worker was of. It may not be offered any more."""
        node = self._conductor.node
        pool = str(record.get("pool", ""))
        return pool if pool in node.pools else find(node.devices, lease.device).library

    def _lease_record(self, lease: Lease) -> dict[str, Any]:
        return {
            "tenant": lease.key.tenant,
            "key": lease.key.name,
            "name": lease.name,
            "uuid": self._uuids[lease.device],
            "quota": _quota_record(lease.quota),
            "first": _quota_record(lease.first),
            "booked": None if lease.booked is None else lease.booked.record(),
            "explicit": lease.explicit,
            # Of a reservation; the monotonic clock goes on over restarts of the server.
            "ends_at": lease.ends_at if lease.reserved else None,
            "ttl_seconds": lease.ttl_seconds,
            "address": lease.address,
            "asked_share_ppm": lease.asked_share_ppm,
            "held_bytes": lease.held_bytes,
            "paused": lease.paused,
            "stopped": lease.stopped,
            "state": lease.state.name,
            "exports": self._conductor.exports.exports.record(lease.id),
        }


def _record(text: str) -> dict[str, Any]:
    """What a daemon, perhaps of another release, noted; what cannot be read is nothing."""
    with contextlib.suppress(ValueError):
        record = json.loads(text)
        if isinstance(record, dict):
            return record
    return {}


def _lease(lease: str, record: Mapping[str, Any], ordinals: Mapping[str, int]) -> Lease | None:
    device = ordinals.get(str(record.get("uuid")))
    quota = _quota(record.get("quota"))
    if device is None or quota is None:
        return None
    ends_at = record.get("ends_at")
    return Lease(
        id=lease,
        key=LeaseKey(str(record.get("tenant")), str(record.get("key"))),
        device=device,
        quota=quota,
        explicit=bool(record.get("explicit")),
        ttl_seconds=float(record.get("ttl_seconds") or 0.0),
        ends_at=float(ends_at) if isinstance(ends_at, int | float) else None,
        address=str(record.get("address") or ""),
        asked_share_ppm=_whole(record.get("asked_share_ppm")) or quota.share_request_ppm,
        held_bytes=_whole(record.get("held_bytes")),
        paused=bool(record.get("paused")),
        stopped=bool(record.get("stopped", record.get("paused"))),
        state=LeaseState.__members__.get(str(record.get("state")), LeaseState.ACTIVE),
        first=_quota(record.get("first")),
        booked=booked_of(record.get("booked")),
        name=one_line(str(record.get("name") or "")),
    )


def _quota_record(quota: Quota | None) -> dict[str, Any] | None:
    if quota is None:
        return None
    return {name: _plain(value) for name, value in asdict(quota).items()}


def _quota(record: object) -> Quota | None:
    if not isinstance(record, dict):
        return None
    least = Quota(memory_bytes=0)
    return replace(
        least,
        **{
            name: _like(default, record[name])
            for name, default in asdict(least).items()
            if name in record
        },
    )


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value


def _like(default: object, value: object) -> Any:
    """A field's value of an earlier daemon; what this release does not know is the default."""
    if isinstance(default, Enum):
        with contextlib.suppress(ValueError):
            return type(default)(value)
        return default
    return _whole(value)


def _of_lease(message: say.Message, lease: str) -> bool:
    return isinstance(message, say.WorkerIs) and message.lease == lease


def _secret(record: Mapping[str, Any]) -> bytes | None:
    """What lets a client go on with its session; None: an earlier release did not note it."""
    with contextlib.suppress(ValueError):
        secret = bytes.fromhex(str(record.get("secret", "")))
        return secret if len(secret) == SECRET_BYTES else None
    return None


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _sum(before: say.UsageIs, now: say.UsageIs) -> say.UsageIs:
    """Totals go on; shares are those of now."""
    return say.UsageIs(
        lease=now.lease,
        grants=before.grants + now.grants,
        device_ns=before.device_ns + now.device_ns,
        held_ns=before.held_ns + now.held_ns,
        waiting_ns=before.waiting_ns + now.waiting_ns,
        throttled_ns=before.throttled_ns + now.throttled_ns,
        share_1s_ppm=now.share_1s_ppm,
        share_10s_ppm=now.share_10s_ppm,
    )
