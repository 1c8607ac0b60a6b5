"""Has the core hold namespaces to their GpuQuotas, and writes into these what is used."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lightkube.generic_resource import create_namespaced_resource
from lightkube.types import PatchType

from rgpu_cluster.core import events as on
from rgpu_cluster.core.quotas import OTHERS, TenantQuota
from rgpu_cluster.kubernetes.api import CALL_ERRORS, code_of, sentence_of
from rgpu_cluster.kubernetes.gpu_quotas import NAME, quotas_of, status_of
from rgpu_cluster.kubernetes.informer import Informer
from rgpu_cluster.kubernetes.names import GROUP, VERSION
from rgpu_cluster.kubernetes.writing import now
from rgpu_common.tasks import end

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lightkube import AsyncClient

    from rgpu_cluster.manager.shell import Shell

log = logging.getLogger("rgpu.kubernetes")

GpuQuota: Any = create_namespaced_resource(GROUP, VERSION, "GpuQuota", "gpuquotas")
ALL = "*"
# How often what is used is written, if it has changed.
_STATUS_SECONDS = 5.0
_NOT_FOUND, _CONFLICT = 404, 409


class GpuQuotas:
    """others: the quotas of the manager's configuration, for tenants without a GpuQuota."""

    def __init__(
        self, client: AsyncClient, shell: Shell, others: Mapping[str, TenantQuota]
    ) -> None:
        self._client: Any = client
        self._shell = shell
        self._others = others
        self._known: dict[str, TenantQuota] = {}
        self._changed = asyncio.Event()
        self._informer: Informer[Any] = Informer(
            client, GpuQuota, namespace=ALL, on_change=lambda *_: self._changed.set()
        )

    async def load(self) -> None:
        """Takes over the quotas that there are. Without the CRD there are none."""
        try:
            found = [one async for one in self._client.list(GpuQuota, namespace=ALL)]
        except CALL_ERRORS as error:
            if code_of(error) != _NOT_FOUND:
                log.warning("quotas of namespaces are not known yet: %s", sentence_of(error))
            return
        self._take(one.to_dict() for one in found)

    async def run(self) -> None:
        """Follows changes, and writes what is used, until it is cancelled."""
        watching = asyncio.ensure_future(self._informer.run())
        try:
            await self._informer.synced.wait()
            while True:
                self._changed.clear()
                self._take(one.to_dict() for one in self._informer.store.values())
                await self._tell()
                try:
                    await asyncio.wait_for(self._changed.wait(), _STATUS_SECONDS)
                except asyncio.TimeoutError:
                    continue
        finally:
            await end([watching])

    def _take(self, contents: Iterable[Mapping[str, Any]]) -> None:
        quotas, wrong = quotas_of(contents)
        # A mistake in a quota must not free a namespace that had a right one.
        quotas |= {name: self._known[name] for name in wrong if name in self._known}
        if quotas != self._known:
            self._known = quotas
            self._shell.feed(on.QuotasSet({**self._others, **self._bounded(quotas)}))

    def _bounded(self, quotas: Mapping[str, TenantQuota]) -> dict[str, TenantQuota]:
        """Returns quotas with the bounds of the configuration that no GpuQuota has."""
        every = self._others.get(OTHERS, TenantQuota())
        return {
            name: replace(quota, max_priority=self._others.get(name, every).max_priority)
            for name, quota in quotas.items()
        }

    async def _tell(self) -> None:
        """Writes each status that says something else now."""
        waiting: dict[str, int] = {}
        for entry in self._shell.core.line:
            tenant = entry.request.tenant
            waiting[tenant] = waiting.get(tenant, 0) + 1
        for (namespace, name), one in list(self._informer.store.items()):
            content = one.to_dict()
            use = self._shell.core.pool.usage.of(namespace)
            status = status_of(content, use, waiting.get(namespace, 0), now())
            if name != NAME or content.get("status") == status:
                continue
            change = {"metadata": {"uid": content["metadata"]["uid"]}, "status": status}
            try:
                await self._client.patch(
                    GpuQuota.Status, name, change, namespace=namespace, patch_type=PatchType.MERGE
                )
            except CALL_ERRORS as error:
                if code_of(error) not in (_NOT_FOUND, _CONFLICT):
                    log.warning("GpuQuota of %s: %s", namespace, sentence_of(error))
