"""A lease as a Python object: `rgpu_client.connect()` and `rgpu_client.claim()` return it."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from rgpu_client.argument_words import in_words_of_connect
from rgpu_client.program_environment import leased_environment
from rgpu_client.session.claim import let_go
from rgpu_client.settings import ClientSettings
from rgpu_client.sizes import sizes_of
from rgpu_client.threads import in_thread
from rgpu_common.closing import Closing
from rgpu_common.errors import RgpuError, ServerError, UsageError
from rgpu_common.texts import one_line
from rgpu_common.units import PPM, format_bytes, format_share

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from typing_extensions import Self

    from rgpu_client.control import ControlClient, ResizeRequest
    from rgpu_client.session.claim import Held
    from rgpu_common.endpoints import Endpoint
    from rgpu_common.v1.lease_pb2 import Quota
    from rgpu_common.v1.observe_pb2 import LeaseNow

# How long a closed lease waits for the end of its programs' workers.
_END_SECONDS = 10.0
_PAUSE_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class Usage:
    """What the programs of a lease use, as the server counted it.

    Attributes:
        memory_used_bytes: device memory in use now.
        memory_limit_bytes: the most that may be in use.
        memory_peak_bytes: the most that was in use since the lease began.
        refused_allocations: how often an allocation was refused because of the limit.
        share: the part of the device's time that the lease got in the last second, 0 to 1.
        waiting: the part of the last second in which the lease had work and another lease had the
            device, 0 to 1.
        throttled: the part of the last second in which the lease had work and was at its limit, 0
            to 1.
        device_seconds: device time since the lease began.
        launches: kernel launches since the lease began.
        copied_bytes: bytes copied to and from the device since the lease began.
        sessions: how many programs use the lease now.
        paused: an operator has stopped the lease's device work.
    """

    memory_used_bytes: int
    memory_limit_bytes: int
    memory_peak_bytes: int
    refused_allocations: int
    share: float
    waiting: float
    throttled: float
    device_seconds: float
    launches: int
    copied_bytes: int
    sessions: int
    paused: bool


@dataclass(frozen=True, slots=True)
class Hold:
    """How a lease is held.

    held: the granted claim. server: the server of the control-plane API. environment: the variables
    for programs that use the lease. own: the lease is for this process and its children alone.
    ended: called when the lease is closed.
    """

    held: Held
    server: Endpoint
    environment: Mapping[str, str]
    own: bool
    ended: Callable[[Lease], None] | None = None


class Lease(Closing):
    """A lease on a device: a limit of memory and a share of the device's time.

    At the end of a `with` or `async with` block the lease is closed.

    Attributes:
        device: the name of the device.
        device_number: the number of the device on its server.
        memory_bytes: the memory limit.
        share: the guaranteed part of the device's time, 0 to 1.
        limit: the most that the lease gets of the device's time, 0 to 1.
        path: the address to which sessions connect.
        key: the name of the lease, for the argument `lease` of other processes.
        id: the server's name of the lease, as `rgpu lease` shows it.
        tenant: the tenant that is charged.
        release: the release of rgpu on the server.
        closed: whether the lease was closed here.
    """

    def __init__(self, hold: Hold) -> None:
        claimed = hold.held.claimed
        self._hold = hold
        self._held: Held | None = hold.held
        self.device = claimed.device_name
        self.device_number = claimed.device
        self.memory_bytes = claimed.memory_bytes
        self.share = claimed.share_request_ppm / PPM
        self.limit = (claimed.share_limit_ppm or PPM) / PPM
        self.path = hold.held.server
        self.key = hold.held.key
        self.id = claimed.lease_id
        self.tenant = claimed.tenant
        self.release = claimed.release
        self.closed = False

    def resize(
        self,
        *,
        memory: str | int | None = None,
        share: str | float | None = None,
        limit: str | float | None = None,
        policy: str | None = None,
        priority: int | None = None,
        weight: int | None = None,
        kill: bool = False,
    ) -> None:
        """Changes sizes of the lease while its programs run. What is None stays as it is.

        If the lease uses more memory than its new limit, its programs get no more until they have
        freed enough.

        Args:
            memory: the memory limit, in bytes or as "2GiB", "25%" or "8vmem".
            share: the guaranteed part of the device's time: 0.4, "40%" or "40vcore".
            limit: the most that the lease gets of the device's time, written as `share`.
            policy: "fixed", "burst", "best-effort" or "none".
            priority: 0 to 100. Leases of a higher priority get idle device time first.
            weight: 1 to 1000. How leases of one priority divide idle device time.
            kill: whether the server ends programs, the largest first, until the rest fits into the
                new memory limit.

        Raises:
            UsageError: a value is not accepted, or nothing is to be changed, or the lease is
                closed.
            ServerError: the server does not answer, has no room, or has ended the lease.
        """
        settings = ClientSettings(
            memory=memory, share=share, limit=limit, policy=policy, priority=priority, weight=weight
        )
        try:
            request = _request(settings, kill)
            with self._control() as client:
                changed = client.resize(self.id, request).lease
        except RgpuError as error:
            raise in_words_of_connect(error) from None
        self._set_sizes(changed.quota)

    def usage(self) -> Usage:
        """Returns what the lease uses now.

        Raises:
            UsageError: the lease is closed.
            ServerError: the server does not answer, or has ended the lease.
        """
        with self._control() as client:
            leases = client.now().leases
        found = next((lease for lease in leases if lease.lease_id == self.id), None)
        if found is None:
            raise ServerError(
                f"the server at {self._hold.server} has no lease {self.id} any more: it was "
                "revoked, or has ended; connect or claim again"
            )
        return _usage_of(found)

    def environment(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """Returns the variables for a program that uses the lease: `subprocess.run(..., env=...)`.

        Args:
            base: the other variables of the program. None: those of this process.
        """
        return leased_environment(os.environ if base is None else base, self._hold.environment)

    def close(self) -> None:
        """Gives the lease up. Does nothing if it is closed already.

        A lease of this process alone has ended when this method returns, and with it the programs'
        use of the device: the next CUDA call of a program that still runs fails. If `connect()`
        returned the lease and this process has used CUDA, its own next call fails as well, because
        CUDA libraries cannot change their device; a new process can connect again. A lease with a
        name stays for the other processes that use it.
        """
        if self.closed:
            return
        if self._hold.own:
            # A server that does not answer ends the lease when it misses this process.
            with contextlib.suppress(ServerError), self._control() as client:
                client.revoke(self.id)
                self._await_end(client)
        self.give_up()

    def give_up(self) -> None:
        """Closes this process's hold on the lease. Programs that use the lease keep it."""
        if not self.closed:
            self.closed = True
            self.let_go()
            if self._hold.ended is not None:
                self._hold.ended(self)

    def let_go(self) -> None:
        """Ends the claim that holds the lease, so that the lease can be claimed anew."""
        held, self._held = self._held, None
        if held is not None:
            let_go(held)

    def hold_again(self, held: Held) -> None:
        """Takes the claim by which the lease is held from now on."""
        self._held = held

    async def resize_async(
        self,
        *,
        memory: str | int | None = None,
        share: str | float | None = None,
        limit: str | float | None = None,
        policy: str | None = None,
        priority: int | None = None,
        weight: int | None = None,
        kill: bool = False,
    ) -> None:
        """As `resize`, for coroutines."""
        await in_thread(
            lambda stop: self.resize(
                memory=memory, share=share, limit=limit, policy=policy, priority=priority,
                weight=weight, kill=kill,
            )
        )  # fmt: skip

    async def usage_async(self) -> Usage:
        """As `usage`, for coroutines."""
        return await in_thread(lambda stop: self.usage())

    async def close_async(self) -> None:
        """As `close`, for coroutines."""
        await in_thread(lambda stop: self.close())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close_async()

    def __repr__(self) -> str:
        parts = [f"{name} {value}" for name, value in self._rows()[1:]]
        closed = ", closed" if self.closed else ""
        return f"<rgpu: {self._rows()[0][1]}, {', '.join(parts)}{closed}>"

    def _repr_html_(self) -> str:
        rows = "".join(
            f'<tr><th style="text-align:left">{escape(name)}</th>'
            f'<td style="text-align:left">{escape(value)}</td></tr>'
            for name, value in self._rows()
        )
        return f"<table>{rows}</table>"

    def _rows(self) -> list[tuple[str, str]]:
        shares = f"{format_share(round(self.share * PPM))}, at most "
        shares += format_share(round(self.limit * PPM))
        return [
            ("device", one_line(f"{self.device} (device {self.device_number})")),
            ("memory", format_bytes(self.memory_bytes)),
            ("share", shares),
            ("path", one_line(self.path)),
            ("lease", one_line(self.key)),
        ]

    def _control(self) -> ControlClient:
        if self.closed:
            raise UsageError(f"the lease {self.key} is closed: connect or claim again")
        from rgpu_client.control import ControlClient

        return ControlClient(self._hold.server)

    def _await_end(self, client: ControlClient) -> None:
        """Waits until no program has the device any more, so that its memory is free."""
        until = time.monotonic() + _END_SECONDS
        while time.monotonic() < until:
            if all(session.lease_id != self.id for session in client.sessions()):
                return
            time.sleep(_PAUSE_SECONDS)

    def _set_sizes(self, quota: Quota) -> None:
        self.memory_bytes = quota.memory_bytes
        self.share = quota.share_request_ppm / PPM
        self.limit = (quota.share_limit_ppm or PPM) / PPM


def _request(settings: ClientSettings, kill: bool) -> ResizeRequest:
    """Returns what `resize` asks of the server; UsageError."""
    from rgpu_client.control import ResizeRequest

    variables = settings.variables("{}")
    if not variables:
        raise UsageError("say what to change: memory, share, limit, policy, priority or weight")
    sizes = sizes_of(variables)
    return ResizeRequest(
        memory_bytes=sizes.memory.bytes or None,
        memory_ppm=sizes.memory.ppm or None,
        share_request_ppm=sizes.share_ppm or None,
        share_limit_ppm=sizes.limit_ppm or None,
        policy=sizes.policy,
        priority=sizes.priority,
        weight=sizes.weight,
        kill=kill,
    )


def _usage_of(now: LeaseNow) -> Usage:
    return Usage(
        memory_used_bytes=now.memory_used_bytes,
        memory_limit_bytes=now.memory_limit_bytes,
        memory_peak_bytes=now.memory_peak_bytes,
        refused_allocations=now.refused_allocations,
        share=now.share_1s_ppm / PPM,
        waiting=now.waiting_ppm / PPM,
        throttled=now.throttled_ppm / PPM,
        device_seconds=now.device_ns / 1e9,
        launches=now.launches,
        copied_bytes=now.copied_bytes,
        sessions=now.sessions,
        paused=now.paused,
    )
