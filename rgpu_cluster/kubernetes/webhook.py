"""The webhook that gives claims to pods with old words: `rgpu units-webhook`."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from lightkube import codecs
from lightkube.resources.resource_v1 import ResourceClaimTemplate

from rgpu_cluster.core.errors import RequestError
from rgpu_cluster.kubernetes.admission import (
    Way,
    allowed,
    change_of,
    refused,
    review_of,
    template_of,
)
from rgpu_cluster.kubernetes.api import CALL_ERRORS, code_of, sentence_of
from rgpu_cluster.kubernetes.legacy.vendors import Options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lightkube import AsyncClient

    from rgpu_cluster.kubernetes.admission import Review

log = logging.getLogger("rgpu.kubernetes.webhook")

PATH = "/pods"
_CONFLICT = 409


class Webhook:
    """Answers AdmissionReviews. client: None is enough for `Way.EXTENDER`, which writes nothing."""

    def __init__(
        self, client: AsyncClient | None, way: Way, options: Options | None = None
    ) -> None:
        self._client = client
        self._way = way
        self._options = options or Options()

    async def answer(self, message: Any) -> Any:
        """Returns the answer to a review; RequestError if the message is none."""
        review = review_of(message)
        try:
            change = change_of(review.pod or {}, self._way, self._options)
            if not review.dry_run:
                for name, spec in change.templates.items():
                    await self._make(name, review, spec)
        except RequestError as error:
            log.info("a pod of %s was refused: %s", review.namespace, error)
            return refused(review, str(error))
        return allowed(review, change)

    async def _make(self, name: str, review: Review, spec: Mapping[str, Any]) -> None:
        """Makes a template unless it is there. The pod needs it, so a failure refuses the pod."""
        assert self._client is not None
        template = template_of(name, review.namespace, spec)
        try:
            try:
                await self._client.create(codecs.from_dict(template))
            except CALL_ERRORS as error:
                if code_of(error) != _CONFLICT:
                    raise
                found = await self._client.get(
                    ResourceClaimTemplate, name, namespace=review.namespace
                )
                if found.to_dict()["metadata"].get("deletionTimestamp"):
                    raise RequestError(
                        f"template {name} is being deleted; make the pod again"
                    ) from None
        except CALL_ERRORS as error:
            raise RequestError(
                f"the pod's template {name} could not be made: {sentence_of(error)}; "
                "make the pod again"
            ) from None
