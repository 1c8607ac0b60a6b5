"""The manager's front for Kubernetes: gated pods and their claims are requests of the core.

What a claim is to have follows from the objects alone, so everything is decided again after each
change (`_look`), and after a restart.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from lightkube.resources.core_v1 import Pod
from lightkube.resources.resource_v1 import DeviceClass, ResourceClaim

from rgpu_cluster.core import actions as do
from rgpu_cluster.core import events as on
from rgpu_cluster.core.card import CardId
from rgpu_cluster.kubernetes.allocation import allocated, places_of, told
from rgpu_cluster.kubernetes.authority import with_authority
from rgpu_cluster.kubernetes.claim_reading import ClaimReading
from rgpu_cluster.kubernetes.informer import Informer
from rgpu_cluster.kubernetes.missing import Missing
from rgpu_cluster.kubernetes.names import ALL_NAMESPACES, MANAGED, PLACEMENT_LABEL, ordinal_of
from rgpu_cluster.kubernetes.news import News
from rgpu_cluster.kubernetes.parameters import in_fields
from rgpu_cluster.kubernetes.reserved import Bounds, ReservedClaims
from rgpu_cluster.kubernetes.strays import Strays
from rgpu_cluster.kubernetes.users import Key, Users
from rgpu_cluster.kubernetes.views import (
    claim_names,
    is_gated,
    is_reserved,
    is_uid,
    needed_of_pod,
    pod_user,
    reservation_user,
)
from rgpu_cluster.kubernetes.wishes import is_ours
from rgpu_cluster.kubernetes.writing import PLACED, Writer
from rgpu_cluster.manager.telling import in_short
from rgpu_common.tasks import end

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from lightkube import AsyncClient

    from rgpu_cluster.core.actions import Action
    from rgpu_cluster.kubernetes.wishes import Wish
    from rgpu_cluster.manager.shell import Shell

log = logging.getLogger("rgpu.kubernetes")

# Everything is looked at again so often, for what no event tells.
_LOOK_SECONDS = 2.0
_DENIED_SECONDS = 15.0
WAITS, REFUSED, LOST = "WaitsForGpu", "GpuRefused", "GpuLost"


class Front:
    """`run` watches until it is cancelled."""

    def __init__(self, client: AsyncClient, shell: Shell, bounds: Bounds | None = None) -> None:
        self._shell = shell
        self._writer = Writer(client)
        labels = {PLACEMENT_LABEL: MANAGED}
        self.pods: Informer[Any] = Informer(
            client, Pod, namespace=ALL_NAMESPACES, labels=labels, on_change=self._pod_changed,
            needed=needed_of_pod,
        )  # fmt: skip
        self.claims: Informer[Any] = Informer(
            client, ResourceClaim, namespace=ALL_NAMESPACES, on_change=self._claim_changed
        )
        self.classes: Informer[Any] = Informer(
            client, DeviceClass, on_change=lambda *both: self._reading.class_changed(*both)
        )
        self._reading = ClaimReading(self.classes.store)
        self._users = Users()
        self._reserved = ReservedClaims(bounds or Bounds())
        # Request -> its claim and what that asks for, from when the core was asked.
        self._asked: dict[str, tuple[Key, tuple[Wish, ...]]] = {}
        # The claims that are allocated by our driver, by their UID.
        self._held: set[str] = set()
        self._writing: set[str] = set()
        # Request -> when it was denied: it is asked again after a while, for the pool may grow.
        self._denied: dict[str, float] = {}
        self._strays, self._news, self._missing = Strays(), News(), Missing()
        self._tasks: set[asyncio.Task[None]] = set()
        shell.listeners.append(self._heard)

    async def run(self) -> None:
        """Watches pods and claims, and looks at all of them now and then."""
        informers = (self.classes, self.claims, self.pods)
        tasks = [asyncio.ensure_future(one.run()) for one in informers]
        try:
            for one in informers:
                await one.synced.wait()
            while True:
                self._look_at_all()
                await asyncio.sleep(_LOOK_SECONDS)
        finally:
            await end([*tasks, *self._tasks])

    # What has changed

    def _pod_changed(self, before: Any, after: Any) -> None:
        key = _key(after if after is not None else before)
        gated = after is not None and is_gated(after)
        names = {n for n in claim_names(after) if n is not None} if gated else set()
        touched = self._users.change(key, {(key[0], name) for name in names})
        if after is None:
            self._writer.forget(before)
        # Its other pods have not changed, and there may be thousands.
        for claim in touched:
            self._guarded(self._look, claim)
        if gated:
            self._look_at_pod(key)

    def _claim_changed(self, before: Any, after: Any) -> None:
        key = _key(before if after is None else after)
        self._reserved.note(key, after)
        if after is None:
            self._reading.forget(key)
            self._writer.forget(before)
        if before is not None and (after is None or after.metadata.uid != before.metadata.uid):
            self._held.discard(before.metadata.uid)
            self._end(before.metadata.uid, "its claim was deleted")
        if after is not None:
            self._look(key)
            if after.status is not None and after.status.allocation is not None:
                for pod in self._users.of(key):
                    self._guarded(self._look_at_pod, pod)

    def _look_at_all(self) -> None:
        for claim in {*self._users, *self._reserved}:
            self._guarded(self._look, claim)
        gated = {key: pod for key, pod in self.pods.store.items() if is_gated(pod)}
        for key in gated:
            self._guarded(self._look_at_pod, key)
        for pod, name in self._missing.look(gated.values(), self.claims.store):
            sentence = f"there is no claim {name}; make it, or delete the pod and name another one"
            if self._writer.is_new(pod, sentence):
                self._spawn(self._writer.say(pod, WAITS, sentence))
        for request in self._news.take(_now()):
            self._tell_waiting(request)
        self._sweep()

    def _guarded(self, look: Callable[[Key], None], key: Key) -> None:
        """Looks at one object. A defect for it must not stop the others."""
        try:
            look(key)
        except Exception:
            log.exception("%s/%s cannot be handled", *key)

    def _sweep(self) -> None:
        """Ends the leases of claims that are gone, which an earlier manager asked for."""
        known, shell = {one.metadata.uid for one in self.claims.store.values()}, self._shell
        strays = [
            (lease, shell.owner(lease) or "") for lease in shell.core.pool.leases()
            if is_uid(lease) and lease not in known and shell.core.book.get(lease) is None
        ]  # fmt: skip
        for namespace, leases in self._strays.look(strays, _now()).items():
            self._spawn(self._end_strays(namespace, leases))

    async def _end_strays(self, namespace: str, leases: list[str]) -> None:
        """Ends leases of a namespace after a fresh look, for what was heard of claims may be old.

        The extender's leases are those of pods.
        """
        there = await self._writer.uids(namespace, ResourceClaim, Pod)
        for lease in leases:
            if there is not None and lease not in there:
                self._end(lease, "its claim is gone")

    def _heard(self, action: Action) -> None:
        """Takes what the core has decided."""
        if isinstance(action, do.Placed):
            self._news.forget(action.id)
            found = self._asked.get(action.id)
            if found is not None:
                # The core goes on whatever is wrong with one claim.
                self._guarded(self._look, found[0])
        elif isinstance(action, do.Ended) and action.id in self._held:
            self._tell_lost(action)
        elif isinstance(action, do.Waiting):
            found = self._asked.get(action.id)
            if found is not None:
                self._news.waits(action.id, found[0][0])
        elif isinstance(action, do.Denied):
            self._tell_denied(action)

    # A claim

    def _look(self, key: Key) -> None:
        """Has a claim get what it is to have: cards, if a gated pod needs them; else none."""
        claim = self.claims.store.get(key)
        known = self.pods.synced.is_set() and self.classes.synced.is_set()
        if claim is None or not known:
            return
        uid = claim.metadata.uid
        if claim.status is not None and claim.status.allocation is not None:
            self._held.add(uid)
            if is_reserved(claim) and not self._is_wanted(claim):
                self._spawn(self._writer.end_reservation(claim))
            return
        if uid in self._held:
            self._held.discard(uid)
            self._end(uid, "its claim was deallocated")
        wanted = self._users.of(key) or self._is_wanted(claim)
        if claim.metadata.deletionTimestamp is not None or not wanted:
            self._end(uid, "no pod waits for its claim")
            return
        booking = self._shell.core.book.get(uid)
        if booking is None or uid not in self._asked:
            self._ask(key, claim)
        elif self._shell.state(uid) == "placed" and uid not in self._writing:
            self._writing.add(uid)
            self._spawn(self._allocate(key, uid))

    def _ask(self, key: Key, claim: Any) -> None:
        uid = claim.metadata.uid
        if self._shell.state(uid) not in ("gone", "placed") or self._is_denied(uid):
            return
        if not is_ours(self._reading.content(claim)):
            return
        asked = self._reading.asked(claim, self._first_user(key))
        if isinstance(asked, str):
            self._asked.pop(uid, None)
            self._say(key, REFUSED, asked)
            return
        self._asked[uid] = key, asked.wishes
        self._denied.pop(uid, None)
        first, *others = (wish.request for wish in asked.wishes)
        self._shell.feed(on.Asked(first, True, 0, *asked.gang, others=tuple(others)))

    def _is_wanted(self, claim: Any) -> bool:
        """Returns whether a claim is a reservation that is to have its cards now."""
        wanted = self._reserved.wants(claim, datetime.now(timezone.utc))
        if isinstance(wanted, str):
            self._say_of_claim(claim, REFUSED, wanted)
            return False
        return wanted

    def _deny(self, uid: str) -> None:
        """Has a claim wait for a while before it is asked for again."""
        self._denied[uid] = _now()

    def _is_denied(self, uid: str) -> bool:
        since = self._denied.get(uid)
        return since is not None and _now() - since < _DENIED_SECONDS

    def _end(self, uid: str, why: str) -> None:
        """Takes the request of a claim back, if there is one."""
        self._asked.pop(uid, None)
        self._denied.pop(uid, None)
        self._news.forget(uid)
        if self._shell.state(uid) not in ("gone", "ending"):
            self._shell.withdraw(uid, why)

    async def _allocate(self, key: Key, uid: str) -> None:
        try:
            booking, asked = self._shell.core.book.get(uid), self._asked.get(uid)
            pod, claim = self._first_user(key), self.claims.store.get(key)
            if booking is None or asked is None or claim is None:
                return
            reserved = self._is_wanted(claim)
            if pod is None and not reserved:
                return
            user = reservation_user(claim) if reserved else pod_user(pod)
            places = places_of(booking.decision.chosen.cards, self._shell.core.pool)
            if places is None:
                return
            wish = asked[1][booking.entry.chosen]
            why = await self._writer.allocate(claim, wish, places, user)
            if not why:
                where = ", ".join(f"{p.node}/{p.ordinal}" for p in places)
                about = pod if pod is not None else claim
                await self._writer.event(about, PLACED, f"claim {key[1]} is on {where}")
            elif uid in self._asked and self._shell.core.book.get(uid) is booking:
                self._end(uid, f"its claim could not be allocated: {why}")
                self._deny(uid)
                self._say(key, REFUSED, f"it could not be allocated: {why}")
        finally:
            self._writing.discard(uid)

    # A pod

    def _look_at_pod(self, key: Key) -> None:
        """Lets a pod go whose claims are all allocated."""
        pod = self.pods.store.get(key)
        if pod is None or not is_gated(pod) or f"pod {pod.metadata.uid}" in self._writing:
            return
        names = list(claim_names(pod))
        claims = [self.claims.store.get((key[0], name)) for name in names if name is not None]
        if None in names or any(one is None for one in claims):
            return
        contents = [self._reading.content(one) for one in claims]
        if any(is_ours(c) and not (c.get("status") or {}).get("allocation") for c in contents):
            return
        said: dict[str, str] = {}
        for content in contents:
            more = self._told(content)
            if more is None:
                return
            said = said or more
        word = f"pod {pod.metadata.uid}"
        self._writing.add(word)
        self._spawn(self._release(pod, said, word))

    def _told(self, content: dict[str, Any]) -> dict[str, str] | None:
        """Returns the annotations for a pod of an allocated claim; None: its GPU node is not in the
        pool now.
        """
        rows = allocated(content)
        cards = [CardId(pool, ordinal_of(device)) for pool, device in rows]
        if any(card.ordinal < 0 for card in cards) or not cards:
            return {}
        places = places_of(cards, self._shell.core.pool)
        return None if places is None else told(content["metadata"]["uid"], places)

    async def _release(self, pod: Any, said: dict[str, str], word: str) -> None:
        try:
            await self._writer.release(pod, with_authority(said))
        finally:
            self._writing.discard(word)

    # Sentences

    def _tell_denied(self, action: do.Denied) -> None:
        found = self._asked.pop(action.id, None)
        self._news.forget(action.id)
        if found is None:
            return
        key, wishes = found
        self._deny(action.id)
        refusal, names = action.refusal, [wish.name for wish in wishes]
        each = refusal is not None and refusal.each
        self._say(key, REFUSED, in_fields(in_short(refusal, names) if each else action.why))

    def _tell_waiting(self, request: str) -> None:
        found, entry = self._asked.get(request), self._shell.core.line.get(request)
        if found is None:
            self._news.forget(request)
            return
        if entry is None:
            return  # a node is being asked for it, and may refuse
        key, wishes = found
        refusal, names = entry.refusal, [wish.name for wish in wishes]
        if refusal is not None and not refusal.possible:
            # Cards were left out because their servers do not allow it, and say why.
            forbidden = entry.refused if refusal.request.barred else ""
            remedy = in_short(refusal, names) if refusal.each else refusal.remedy
            self._say(key, REFUSED, in_fields(forbidden or remedy))
        else:
            self._say(key, WAITS, in_fields(self._shell.why_it_waits(entry, names)))

    def _tell_lost(self, action: do.Ended) -> None:
        sentence = f"its lease on node {action.node} has ended; delete its pods to free the claim"
        found = self._asked.get(action.id)
        claim = self.claims.store.get(found[0]) if found is not None else None
        if claim is not None:
            self._say_of_claim(claim, LOST, sentence)

    def _say(self, key: Key, reason: str, sentence: str) -> None:
        claim = self.claims.store.get(key)
        if key in self._reserved and claim is not None:
            self._say_of_claim(claim, reason, sentence)
        whole = f"claim {key[1]}: {sentence}"
        for user in self._users.of(key):
            pod = self.pods.store.get(user)
            if pod is not None and self._writer.is_new(pod, whole):
                self._spawn(self._writer.say(pod, reason, whole))

    def _say_of_claim(self, claim: Any, reason: str, sentence: str) -> None:
        if self._writer.is_new(claim, sentence):
            self._spawn(self._writer.say_of_claim(claim, reason, sentence))

    def _first_user(self, key: Key) -> Any:
        first = min(self._users.of(key), default=None)
        return self.pods.store.get(first) if first is not None else None

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a write failed", exc_info=task.exception())


def _key(one: Any) -> Key:
    return (one.metadata.namespace or "", one.metadata.name)


def _now() -> float:
    return asyncio.get_running_loop().time()
