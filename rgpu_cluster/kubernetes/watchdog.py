"""`rgpu gate-watchdog`: lets gated pods go when no manager leads.

kube-scheduler then allocates their claims itself, first fit, and the agents of the GPU nodes grant
the leases. So the manager's absence makes placement worse, and stops nothing. The agents tell these
pods their servers too, which the policy `rgpu-own-changes` allows for no other pod.
"""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from lightkube.resources.coordination_v1 import Lease
from lightkube.resources.core_v1 import Pod

from rgpu_cluster.kubernetes.api import CALL_ERRORS, open_client, sentence_of
from rgpu_cluster.kubernetes.election import Record, record_of
from rgpu_cluster.kubernetes.informer import Informer
from rgpu_cluster.kubernetes.names import (
    AGENT_TELLS,
    ALL_NAMESPACES,
    MANAGED,
    MANAGER_LEASE,
    PLACEMENT_LABEL,
)
from rgpu_cluster.kubernetes.views import is_gated, needed_of_pod
from rgpu_cluster.kubernetes.writing import Writer
from rgpu_common.tasks import cancel_on_signals, end

if TYPE_CHECKING:
    from lightkube import AsyncClient

log = logging.getLogger("rgpu.watchdog")

_LOOK_SECONDS = 2.0
_KEPT_SECONDS = 30.0
_NOT_FOUND = 404


class Watch:
    """Decides whether a manager leads. Times are seconds of the caller's clock."""

    def __init__(self, seconds: float, now: float) -> None:
        self._seconds = seconds
        self._seen: Record | None = None
        self._since = now

    def is_led(self, record: Record | None, now: float) -> bool:
        """Returns whether the Lease was renewed lately. record: None: there is none."""
        if record != self._seen:
            self._seen, self._since = record, now
        return now - self._since < self._seconds


class Watchdog:
    """Looks at the Lease of the managers, and at the gated pods."""

    def __init__(self, client: AsyncClient, namespace: str, seconds: float) -> None:
        self._client = client
        self._namespace = namespace
        self._watch = Watch(seconds, time.monotonic())
        self._writer = Writer(client)
        self._led = True
        # Pods that are let go now. Of those that wait for their write, namespaces take turns.
        self._going: dict[str, asyncio.Task[None]] = {}
        # Pods whose gate stays, as a policy may want it -> until when that is not tried again.
        self._kept: dict[str, float] = {}
        labels = {PLACEMENT_LABEL: MANAGED}
        self._pods: Informer[Any] = Informer(
            client, Pod, namespace=ALL_NAMESPACES, labels=labels, needed=needed_of_pod
        )

    async def run(self) -> None:
        """Looks until it is cancelled."""
        watching = asyncio.ensure_future(self._pods.run())
        try:
            await self._pods.synced.wait()
            while True:
                await self._look()
                await asyncio.sleep(_LOOK_SECONDS)
        finally:
            await end([watching, *self._going.values()])

    async def _look(self) -> None:
        try:
            found = [x async for x in self._client.list(
                Lease, namespace=self._namespace, fields={"metadata.name": MANAGER_LEASE}
            )]  # fmt: skip
        except CALL_ERRORS as error:
            # Without the API server nothing can be let go, and nobody knows who leads.
            log.info("the Lease cannot be read: %s", sentence_of(error))
            return
        led = self._watch.is_led(record_of(found[0]) if found else None, time.monotonic())
        if led != self._led:
            log.warning("a manager leads again" if led else "no manager leads: pods are let go")
            self._led = led
        if led:
            await end(self._going.values())
            return
        now = time.monotonic()
        self._kept = {uid: when for uid, when in self._kept.items() if now < when}
        for pod in self._pods.store.values():
            uid = pod.metadata.uid
            if is_gated(pod) and uid not in self._kept and uid not in self._going:
                self._going[uid] = asyncio.ensure_future(self._let_go(pod))
                self._going[uid].add_done_callback(partial(self._gone, uid))

    async def _let_go(self, pod: Any) -> None:
        if not await self._writer.release(pod, {AGENT_TELLS: "true"}):
            self._kept[pod.metadata.uid] = time.monotonic() + _KEPT_SECONDS

    def _gone(self, uid: str, task: asyncio.Task[None]) -> None:
        self._going.pop(uid, None)
        if not task.cancelled() and task.exception() is not None:
            log.error("pod %s could not be let go", uid, exc_info=task.exception())


async def watch(kubeconfig: str, namespace: str, seconds: float) -> None:
    """Runs a watchdog until it is cancelled, as by SIGTERM; ConfigError: Kubernetes cannot be
    reached so.
    """
    cancel_on_signals()
    async with open_client(kubeconfig) as client:
        await Watchdog(client, namespace, seconds).run()
