"""Gives a session to a worker: what the worker is told, and the descriptors that it gets."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from msgspec import Struct

from rgpu_common.wire.worker import Assign, AssignFds, encode_assign
from rgpu_server.observe.audit import audit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rgpu_server.config import Limits
    from rgpu_server.core import actions as do
    from rgpu_server.devices import Served
    from rgpu_server.service.desk import Visitor
    from rgpu_server.session_compilers import SessionCompilers
    from rgpu_server.workers.pages import LeasePage
    from rgpu_server.workers.process import WorkerProcess


class Assigner(Struct, frozen=True):
    """Writes and sends assignments."""

    served: Mapping[int, Served]
    limits: Limits
    compilers: SessionCompilers

    def assign(
        self,
        action: do.AssignWorker,
        visitor: Visitor,
        worker: WorkerProcess,
        page: LeasePage,
        hand_over: Callable[[Visitor, int], None],
    ) -> bool:
        """Calls `hand_over`, sends the worker what it must know, and notes it in the audit log.

        False: the worker is ending and cannot take the session.

        Raises:
            OSError: a descriptor could not be made.
            WireError: the message is too long.
        """
        message = encode_assign(self._assignment(action, visitor))
        served = self.served[action.device]
        with contextlib.ExitStack() as opened:
            grants_fd = page.opened_to_read()
            opened.callback(os.close, grants_fd)
            compiler = self.compilers.connect(action.session, action.tenant, served)
            if compiler is not None:
                opened.callback(compiler.close)
            descriptors = AssignFds(
                lane=visitor.connection.fileno() if visitor.connection else -1,
                grants=grants_fd,
                usage=page.usage_fd,
                signal=page.signal_fd,
                compiler=-1 if compiler is None else compiler.fileno(),
                places=(
                    self.compilers.places(action.session, action.tenant) if visitor.seam else -1
                ),
            )
            hand_over(visitor, action.session)
            # Only the last two may be missing. A worker of the driver seam gets no places, and one
            # of arrays finds them last.
            always, more = descriptors[:-2], descriptors[-2:]
            sent = worker.send(message, [*always, *(fd for fd in more if fd >= 0)])
        if sent:
            _note_assigned(action, visitor, worker.pid)
        return sent

    def _assignment(self, action: do.AssignWorker, visitor: Visitor) -> Assign:
        served = self.served[action.device]
        return Assign(
            session=action.session,
            secret=visitor.secret,
            slot=action.slot,
            memory_limit_bytes=action.memory_bytes,
            stream_credits=self.limits.stream_credits,
            stream_credit_bytes=self.limits.stream_credit_bytes,
            device=served.library_ordinal,
            tenant=action.tenant,
            environment=tuple(f"{k}={v}" for k, v in served.environment.items()),
            hello=visitor.head,
            resume_grace_ms=round(self.limits.resume_grace_seconds * 1000),
            compression=self.limits.compression,
        )


def _note_assigned(action: do.AssignWorker, visitor: Visitor, worker_pid: int) -> None:
    audit(
        "session_assigned",
        session=action.session,
        tenant=action.tenant,
        lease=action.lease,
        device=action.device,
        memory_bytes=action.memory_bytes,
        transport=visitor.caller.transport,
        peer=visitor.peer,
        program=visitor.hello.program,
        worker=worker_pid,
    )
