"""Asks a manager for cards, and keeps asking while the manager is away."""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import threading
import time
from typing import TYPE_CHECKING, Any

# Otherwise gRPC would print lines of its own about a manager that cannot be reached.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc

from rgpu_client.program import background_run
from rgpu_client.settings import SILENT_REMEDY, SILENT_SECONDS
from rgpu_common.channels import open_channel, tls_refusal
from rgpu_common.closing import Closing
from rgpu_common.clusters import MAX_POOL_BYTES
from rgpu_common.credentials import call_metadata
from rgpu_common.endpoints import speaks_tls
from rgpu_common.errors import NoSessionError, ServerError
from rgpu_common.texts import one_line
from rgpu_common.v1 import cluster_pb2, cluster_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rgpu_common.endpoints import Endpoint

    Progress = Callable[[cluster_pb2.InLine], None]

# A manager that places at once, or not at all, has answered by then.
_ANSWER_SECONDS = 60.0
# How long a manager may be away: while a request waits in line, and otherwise.
_PATIENT_SECONDS, _OUTAGE_SECONDS = 900.0, 20.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0
_CALL_SECONDS = SILENT_SECONDS
# The last part of it: how long a look takes at whether the channel is ready.
_READY_SECONDS = 3.0
# An id is what a run in the background is called, and so many bytes more.
_MORE_BYTES = 10
_AWAY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.UNKNOWN)


def new_request_id() -> str:
    """Returns an id that nobody can guess: who knows it can join the lease. That of a run in the
    background begins with the run's id, so that commands know both by it.
    """
    return (background_run() or f"run-{secrets.token_hex(6)}") + secrets.token_hex(_MORE_BYTES)


class ManagerClient(Closing):
    """One connection to a manager, with the environment's access token and certificates."""

    def __init__(self, manager: Endpoint) -> None:
        self._manager = manager
        self._metadata = call_metadata(os.environ)
        # Kept, because a call that nobody holds is cancelled.
        self._stays: Any = None
        # Set when what listens there takes the connection and says nothing.
        self._is_silent = threading.Event()
        self._open()

    def _open(self) -> None:
        self._channel = open_channel(self._manager, os.environ, MAX_POOL_BYTES)
        self._stub = cluster_pb2_grpc.ManagerServiceStub(self._channel)

    def close(self) -> None:
        """Closes the connection."""
        self._channel.close()

    def pool(self) -> cluster_pb2.GetPoolResponse:
        """Returns the pool; ServerError."""
        answer: cluster_pb2.GetPoolResponse = self._call(
            self._stub.GetPool, cluster_pb2.GetPoolRequest()
        )
        return answer

    def explain(self, request: str) -> cluster_pb2.ExplainResponse:
        """Returns how a request was decided; ServerError."""
        answer: cluster_pb2.ExplainResponse = self._call(
            self._stub.Explain, cluster_pb2.ExplainRequest(request_id=request)
        )
        return answer

    def events(self, after: int = 0) -> Iterable[cluster_pb2.ClusterEvent]:
        """Returns what has happened; ServerError."""
        request = cluster_pb2.ListEventsRequest(after=after)
        answer: cluster_pb2.ListEventsResponse = self._call(self._stub.ListEvents, request)
        return answer.events

    def find_reservation(self, reservation: str, tenant: str) -> cluster_pb2.PlacedAt:
        """Returns where a reservation of a tenant is; ServerError says why there is none."""
        request = cluster_pb2.ReservationRequest(reservation=reservation, tenant=tenant)
        answer: cluster_pb2.PlacedAt = self._call(self._stub.FindReservation, request)
        return answer

    def release(self, reservation: str, tenant: str) -> str:
        """Ends a reservation and returns its id; ServerError."""
        request = cluster_pb2.ReservationRequest(reservation=reservation, tenant=tenant)
        answer: cluster_pb2.ReleaseResponse = self._call(self._stub.Release, request)
        return answer.request_id

    def cancel(self, request: str) -> None:
        """Takes somebody's request back, and ends its leases; ServerError."""
        self._call(
            self._stub.Withdraw, cluster_pb2.WithdrawRequest(request_id=request, cancelled=True)
        )

    def withdraw(self, request: str) -> None:
        """Takes a request back. Without an answer the manager does so by itself after a while."""
        message = cluster_pb2.WithdrawRequest(request_id=request)
        with contextlib.suppress(ServerError):
            self._call(self._stub.Withdraw, message, seconds=2.0)

    def submit(
        self, request: cluster_pb2.SubmitRequest, wait_seconds: float, progress: Progress
    ) -> cluster_pb2.PlacedAt:
        """Returns where the request is placed. While the manager is away it is submitted again.

        If the request says that it stays, the manager notices from then on when this process ends,
        or executes a program, or closes this.

        wait_seconds: how long it may wait in line; 0: not at all. progress: called with each place.

        Raises:
            NoSessionError: it is denied, or was not placed in time.
        """
        begun = time.monotonic()
        until = begun + (wait_seconds or _ANSWER_SECONDS)
        away, pause = _Away(_PATIENT_SECONDS if wait_seconds else _OUTAGE_SECONDS), _FIRST_PAUSE
        try:
            while True:
                found = self._follow(request, until, progress, away)
                if found is not None:
                    return found
                time.sleep(min(pause, max(until - time.monotonic(), 0.0)))
                pause = min(2 * pause, _LONGEST_PAUSE)
                self._channel.close()
                self._open()
        except BaseException:
            if not self._is_silent.is_set():
                self.withdraw(request.request_id)
            raise

    def _follow(
        self, request: cluster_pb2.SubmitRequest, until: float, progress: Progress, away: _Away
    ) -> cluster_pb2.PlacedAt | None:
        """Returns None if the manager is away; errors as `submit`."""
        left = None if math.isinf(until) else max(until - time.monotonic(), 0.001)
        why, silent = "", None
        self._is_silent.clear()
        try:
            self._stays = self._stub.Submit(request, timeout=left, metadata=self._metadata)
            silent = self._cancelled_in_silence(self._stays)
            for state in self._stays:
                silent.cancel()
                away.back()
                if state.HasField("placed"):
                    placed: cluster_pb2.PlacedAt = state.placed
                    return placed
                if state.HasField("denied"):
                    raise NoSessionError(state.denied.sentence)
                why, request.ticket = state.waiting.sentence, state.waiting.ticket
                progress(state.waiting)
        except grpc.RpcError as error:
            if self._is_silent.is_set():
                away.silent(self._silence())
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise NoSessionError(_too_late(request, why)) from None
            if error.code() not in _AWAY:
                raise NoSessionError(self._sentence(error)) from None
            away.gone(self._sentence(error))
        finally:
            if silent is not None:
                silent.cancel()
        return None

    def _cancelled_in_silence(self, call: Any) -> threading.Timer:
        """Cancels the call if what listens there takes the connection and never says anything.

        A manager that is busy speaks gRPC at once, and may answer the call later.
        """
        channel = self._channel

        def look() -> None:
            ready = grpc.channel_ready_future(channel)
            try:
                ready.result(timeout=_READY_SECONDS)
            except grpc.FutureTimeoutError:
                self._is_silent.set()
                call.cancel()
            finally:
                ready.cancel()

        timer = threading.Timer(_CALL_SECONDS - _READY_SECONDS, look)
        timer.daemon = True
        timer.start()
        return timer

    def _silence(self) -> str:
        return (
            f"the manager at {self._manager} did not answer within {_CALL_SECONDS:g} s"
            f"{SILENT_REMEDY}"
        )

    def _call(
        self, method: Callable[..., Any], request: Any, seconds: float = _CALL_SECONDS
    ) -> Any:
        try:
            return method(request, timeout=seconds, metadata=self._metadata)
        except grpc.RpcError as error:
            raise ServerError(one_line(self._sentence(error))) from None

    def _sentence(self, error: Any) -> str:
        code, details = error.code(), str(error.details() or "")
        if code is grpc.StatusCode.UNIMPLEMENTED:
            return (
                f"what answers at {self._manager} is no manager of this release; name a server "
                "with --server, and a manager with --manager or RGPU_MANAGER"
            )
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return self._silence()
        if code in _AWAY:
            refusal = tls_refusal(self._manager, details)
            plain = "" if speaks_tls(self._manager) else "write tls: before it if it speaks TLS, "
            return refusal or (
                f"no manager answers at {self._manager}: start one with `rgpu manager`, {plain}or "
                "name its address with --manager or RGPU_MANAGER"
            )
        return details or f"the manager at {self._manager} answered {code.name}"


class _Away:
    """Counts how long the manager has been away."""

    def __init__(self, most_seconds: float) -> None:
        self._most = most_seconds
        self._since: float | None = None

    def back(self) -> None:
        self._since = None

    def silent(self, sentence: str) -> None:
        """As `gone`, for a manager that has said nothing: only who waits in line is patient."""
        if self._most < _PATIENT_SECONDS:
            raise NoSessionError(sentence)
        self.gone(sentence)

    def gone(self, sentence: str) -> None:
        """NoSessionError if it has been away for too long."""
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        if now - self._since > self._most:
            raise NoSessionError(sentence)


def _too_late(request: cluster_pb2.SubmitRequest, why: str) -> str:
    if not request.wait:
        return "the manager did not place the request in time; have its operator look at its log"
    return "no card had room in time" + (f": {why}" if why else "")
