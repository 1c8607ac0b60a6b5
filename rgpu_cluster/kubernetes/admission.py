"""Turns a pod with old words into one with claims, as an answer to an AdmissionReview. Pure."""

from __future__ import annotations

import base64
import json
from enum import Enum
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from rgpu_cluster.core.errors import RequestError
from rgpu_cluster.kubernetes.injection import with_gate, with_token, with_variables
from rgpu_cluster.kubernetes.legacy import elastic
from rgpu_cluster.kubernetes.legacy.asked import claim_spec, describe, template_name
from rgpu_cluster.kubernetes.legacy.vendors import SYSTEMS
from rgpu_cluster.kubernetes.names import GROUP, MANAGED, PLACEMENT_LABEL
from rgpu_cluster.kubernetes.units import (
    CONTAINERS,
    annotations_of,
    containers_of,
    labels_of,
    old_resources,
    read,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rgpu_cluster.kubernetes.legacy.asked import Asked
    from rgpu_cluster.kubernetes.legacy.vendors import Options

API = "admission.k8s.io/v1"
# Templates that the webhook has made have this label; its value is the release of their format.
TEMPLATE_LABEL = f"{GROUP}/old-units"
_REFUSED = 422
_MOST_WARNING = 250


class Way(Enum):
    """How pods get their cards.

    CLAIMS: by ResourceClaims (Kubernetes 1.34 and later).
    EXTENDER: by the scheduler extender, which needs the old resources in the pod.
    """

    CLAIMS = "claims"
    EXTENDER = "extender"


class Review(Struct, frozen=True):
    """An AdmissionReview's question. dry_run: nothing may be written."""

    uid: str
    namespace: str
    pod: Mapping[str, Any] | None
    dry_run: bool


class Change(Struct, frozen=True):
    """What becomes of a pod. templates: the ResourceClaimTemplates that it needs, by name."""

    patch: Sequence[Mapping[str, Any]]
    templates: Mapping[str, Mapping[str, Any]]
    warnings: tuple[str, ...] = ()


def review_of(message: Any) -> Review:
    """Returns the question of an AdmissionReview; RequestError if it is none."""
    request = message.get("request") if isinstance(message, dict) else None
    if not isinstance(request, dict) or message.get("apiVersion") != API:
        raise RequestError(f"this is no AdmissionReview of {API}")
    uid, namespace = request.get("uid"), request.get("namespace")
    if not isinstance(uid, str) or not uid or not isinstance(namespace, str):
        raise RequestError("the AdmissionReview's request has no uid or no namespace")
    kind = request.get("kind") or {}
    pod = request.get("object")
    wanted = kind.get("kind") == "Pod" and request.get("operation") == "CREATE"
    if wanted and not isinstance(pod, dict):
        raise RequestError("the AdmissionReview has no object")
    return Review(uid, namespace, pod if wanted else None, request.get("dryRun") is True)


def change_of(pod: Mapping[str, Any], way: Way, options: Options) -> Change:
    """Returns what becomes of a pod.

    Raises:
        RequestError: the pod's words cannot be met; the sentence says what to write.
    """
    found = read(pod, options)
    used = _elastic_claims(pod, found.asked) if options.elastic_claims else {}
    if not found.asked and not used:
        return Change((), {}, found.warnings + _unread(pod, options))
    if way is Way.EXTENDER:
        if used:
            raise RequestError("ElasticGPUClaims need ResourceClaims, and this cluster has none")
        return Change(_patch(_served(pod, found.asked)), {}, found.warnings)
    templates: dict[str, Mapping[str, Any]] = {}
    for number, asked in enumerate(found.asked):
        spec = claim_spec(asked)
        template = template_name(spec)
        templates[template] = spec
        entry = {"name": f"rgpu-{number}", "resourceClaimTemplateName": template}
        used |= dict.fromkeys((asked.container, *asked.before), entry)
    return Change(_patch(_claiming(pod, used)), templates, found.warnings)


def _unread(pod: Mapping[str, Any], options: Options) -> tuple[str, ...]:
    """Returns a warning for a pod whose ElasticGPUClaims nobody reads: it runs without a card."""
    if options.elastic_claims or not elastic.claims_of(annotations_of(pod)):
        return ()
    return (
        "rgpu does not read the pod's ElasticGPUClaims, so it gets no card; start the webhook "
        "with --elastic-gpu-claims",
    )


def _elastic_claims(pod: Mapping[str, Any], asked: Sequence[Asked]) -> dict[str, Mapping[str, str]]:
    """Returns the entries of the ElasticGPUClaims that the pod's annotations name."""
    named = elastic.claims_of(annotations_of(pod))
    names = [str(one.get("name")) for one in containers_of(pod)]
    for container in named:
        if container not in names:
            raise RequestError(
                f"an annotation names a claim for container {container[:63]}, and the pod's "
                f"containers are {', '.join(names)}"
            )
        if any(one.serves(container) for one in asked):
            raise RequestError(
                f"container {container} asks for cards twice, in its resources and by its claim; "
                "keep one of them"
            )
    return {
        container: {"name": f"egpuc-{n}", "resourceClaimName": elastic.claim_name(claim)}
        for n, (container, claim) in enumerate(named.items())
    }


def changed(pod: Mapping[str, Any], change: Change) -> dict[str, Any]:
    """Returns the pod with a change."""
    parts: dict[str, Any] = {name: dict(pod.get(name) or {}) for name in ("metadata", "spec")}
    for one in change.patch:
        _, part, field = one["path"].split("/")
        parts[part][field] = one["value"]
    return {**pod, **parts}


def template_of(name: str, namespace: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the ResourceClaimTemplate."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": namespace, "labels": {TEMPLATE_LABEL: "v1"}},
        "spec": {"spec": spec},
    }


def allowed(review: Review, change: Change) -> dict[str, Any]:
    """Returns the answer that lets the pod in, changed."""
    answer: dict[str, Any] = {"uid": review.uid, "allowed": True}
    if change.patch:
        text = json.dumps(change.patch, separators=(",", ":"))
        answer["patchType"] = "JSONPatch"
        answer["patch"] = base64.b64encode(text.encode()).decode()
    if change.warnings:
        answer["warnings"] = [one[:_MOST_WARNING] for one in change.warnings]
    return _answer(answer)


def refused(review: Review, sentence: str) -> dict[str, Any]:
    """Returns the answer that keeps the pod out."""
    status = {"code": _REFUSED, "reason": "Invalid", "message": f"rgpu: {sentence}"}
    return _answer({"uid": review.uid, "allowed": False, "status": status})


def _answer(response: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": API, "kind": "AdmissionReview", "response": response}


def _patch(fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the JSON patch that sets whole fields; `add` also replaces."""
    return [{"op": "add", "path": path, "value": value} for path, value in fields.items()]


def _claiming(pod: Mapping[str, Any], used: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """Returns the fields of the pod that has claims for its old words.

    used: container -> the entry in the pod's claims; "": of all containers.
    """
    spec = pod["spec"]
    removed = {name for system in SYSTEMS for name in system.removed}
    kept = {
        name: text
        for name, text in annotations_of(pod).items()
        if name not in removed and not name.startswith(elastic.ANNOTATIONS)
    }
    ours = {entry["name"]: entry for entry in used.values()}  # several containers may use one
    claims = [*(spec.get("resourceClaims") or []), *ours.values()]
    fields = {
        "/metadata/labels": {**labels_of(pod), PLACEMENT_LABEL: MANAGED},
        "/metadata/annotations": kept,
        "/spec/resourceClaims": claims,
        "/spec/schedulingGates": with_gate(spec.get("schedulingGates") or []),
        "/spec/volumes": with_token(spec.get("volumes") or []),
    }
    for kind in CONTAINERS:
        if spec.get(kind):
            fields[f"/spec/{kind}"] = [_with_claim(one, used) for one in spec[kind]]
    return fields


def _with_claim(
    container: Mapping[str, Any], used: Mapping[str, Mapping[str, str]]
) -> Mapping[str, Any]:
    entry = used.get(str(container.get("name"))) or used.get("")
    if entry is None:
        return container
    resources = dict(container.get("resources") or {})
    old = old_resources(container)
    for side in ("limits", "requests"):
        if side in resources:
            resources[side] = {k: v for k, v in resources[side].items() if k not in old}
    resources["claims"] = [*(resources.get("claims") or []), {"name": entry["name"]}]
    return {**with_variables(container), "resources": resources}


def _served(pod: Mapping[str, Any], asked: Sequence[Asked]) -> dict[str, Any]:
    """Returns the fields of a pod that keeps its old words for the scheduler extender."""
    if len(asked) > 1:
        raise RequestError(
            f"{len(asked)} containers ask for cards ({describe(asked[0])}, "
            f"{describe(asked[1])}); without claims a pod has one such container"
        )
    spec = pod["spec"]
    fields: dict[str, Any] = {"/spec/volumes": with_token(spec.get("volumes") or [])}
    for kind in CONTAINERS:
        if spec.get(kind):
            fields[f"/spec/{kind}"] = [
                with_variables(one) if asked[0].serves(str(one.get("name"))) else one
                for one in spec[kind]
            ]
    return fields
