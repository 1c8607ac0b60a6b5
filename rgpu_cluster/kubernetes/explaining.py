"""What Kubernetes itself says of a pod and of its claims, for `rgpu explain`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lightkube.resources.core_v1 import Pod
from lightkube.resources.resource_v1 import ResourceClaim
from msgspec import Struct

from rgpu_cluster.kubernetes.allocation import allocated
from rgpu_cluster.kubernetes.api import CALL_ERRORS, code_of, open_client, sentence_of
from rgpu_cluster.kubernetes.binding import LABEL as EXTENDER_LABEL
from rgpu_cluster.kubernetes.names import DRIVER, GROUP, MANAGED, PLACEMENT_LABEL
from rgpu_cluster.kubernetes.objects import read
from rgpu_cluster.kubernetes.views import claim_names, is_gated
from rgpu_cluster.kubernetes.wishes import is_ours
from rgpu_cluster.kubernetes.writing import CONDITION
from rgpu_common.errors import ServerError
from rgpu_common.texts import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lightkube import AsyncClient

_NOT_FOUND = 404
_MOST_TEXT = 1000


class Part(Struct, frozen=True):
    """A pod or a claim. lines: what is said of it. request: the id that it has for the manager; "":
    the manager decides nothing for it.
    """

    kind: str
    namespace: str
    name: str
    lines: tuple[str, ...]
    request: str = ""


async def find(kind: str, name: str, namespace: str, kubeconfig: str) -> list[Part]:
    """Returns a pod and its claims, or a claim. namespace: "" for that of the kubeconfig file.

    Raises:
        ServerError: Kubernetes cannot be asked, or there is no such object.
        ConfigError: it is not known how to reach Kubernetes.
    """
    async with open_client(kubeconfig) as client:
        where = namespace or client.namespace
        if kind == "claim":
            return [claim_part(await _get(client, ResourceClaim, where, name))]
        pod = await _get(client, Pod, where, name)
        names = [claim for claim in claim_names(pod) if claim is not None]
        return [pod_part(pod), *[await _claim(client, where, claim) for claim in names]]


async def _claim(client: AsyncClient, namespace: str, name: str) -> Part:
    """Returns a claim of a pod, which need not be there."""
    try:
        return claim_part(await _get(client, ResourceClaim, namespace, name))
    except ServerError as error:
        return Part("claim", namespace, name, (f"claim {namespace}/{name}: {error}",))


async def _get(client: Any, kind: Any, namespace: str, name: str) -> Any:
    try:
        return await read(client, kind, name, namespace)
    except CALL_ERRORS as error:
        if code_of(error) == _NOT_FOUND:
            raise ServerError(
                f"there is no {kind.__name__} {name} in the namespace {namespace}; make it, or "
                "name its namespace with --namespace"
            ) from None
        raise ServerError(f"Kubernetes: {_clean(sentence_of(error))}") from None


def pod_part(pod: Any) -> Part:
    """Returns what is to be said of a pod."""
    by_extender = EXTENDER_LABEL in (pod.metadata.labels or {})
    request = str(pod.metadata.uid) if by_extender else ""
    return Part("pod", pod.metadata.namespace, pod.metadata.name, (*_of_pod(pod),), request)


def claim_part(claim: Any) -> Part:
    """Returns what is to be said of a claim."""
    content = claim.to_dict()
    ours = is_ours(content) or allocated(content)
    request = str(claim.metadata.uid) if ours else ""
    lines = (*_of_claim(claim, content, bool(ours)),)
    return Part("claim", claim.metadata.namespace, claim.metadata.name, lines, request)


def _of_pod(pod: Any) -> Iterator[str]:
    labels, gated = pod.metadata.labels or {}, is_gated(pod)
    phase = (pod.status.phase if pod.status is not None else "") or "Pending"
    where = f" on node {pod.spec.nodeName}" if pod.spec.nodeName else ""
    waits = ", waits for its cards" if gated else ""
    yield f"pod {pod.metadata.namespace}/{pod.metadata.name}: {_clean(phase)}{where}{waits}"
    for one in (pod.status.conditions or []) if pod.status is not None else []:
        if gated and one.type == CONDITION and one.status != "True":
            yield f"  {_clean(one.reason)}: {_clean(one.message)}"
    claims = list(claim_names(pod))
    if None in claims:
        yield "  Kubernetes has not made all of its claims yet: see `kubectl describe pod`"
    if EXTENDER_LABEL in labels:
        return
    if not claims:
        yield "  it has no claim, so rgpu gives it no card: name one in spec.resourceClaims"
    elif labels.get(PLACEMENT_LABEL) != MANAGED:
        yield f"  without the label {PLACEMENT_LABEL}: {MANAGED} kube-scheduler chooses its cards"


def _of_claim(claim: Any, content: dict[str, Any], ours: bool) -> Iterator[str]:
    devices = [f"{pool}/{device}" for pool, device in allocated(content)]
    has = f"has {', '.join(devices)}" if devices else "has no card yet"
    if not ours:
        has = "asks for no device class of rgpu"
    yield f"claim {claim.metadata.namespace}/{claim.metadata.name}: {has}"
    for row in (claim.status.devices or []) if claim.status is not None else []:
        for one in (row.conditions or []) if row.driver == DRIVER else []:
            if one.type.startswith(f"{GROUP}/") and one.status == "True":
                yield f"  {one.type} ({row.pool}/{row.device}): {_clean(one.message)}"


def _clean(text: object) -> str:
    return one_line(str(text or ""), _MOST_TEXT)
