"""Reads how the containers of pods use a claim. Pure; objects are as the API server writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from rgpu_cluster.kubelet.errors import PrepareError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from rgpu_cluster.kubelet.claims import Allocated

    Content = Mapping[str, Any]

_ROOT = 0
_KINDS = ("initContainers", "containers")


class Use(Struct, frozen=True):
    """How the containers of this node use a claim.

    user: the numeric user of all of them. by_request: each of them names one request of the claim,
    and not the claim as a whole. libraries: what their own LD_LIBRARY_PATH names. tokens: each of
    them has a token of its pod to show.
    """

    user: int = _ROOT
    by_request: bool = False
    libraries: tuple[str, ...] = ()
    tokens: bool = False


class _User(Struct, frozen=True):
    """One container that names the claim. requests: those that it names; "" is the whole claim.
    others: the other claims on our driver that it names. user: None: that of its image.
    """

    pod: str
    container: str
    requests: tuple[str, ...]
    others: tuple[str, ...]
    user: int | None
    libraries: str
    token: str

    def __str__(self) -> str:
        return f"container {self.container} of pod {self.pod}"


def use_of(allocated: Allocated, pods: Iterable[Content], node: str, ours: Collection[str]) -> Use:
    """Returns how the claim is used. pods: those on this node in the claim's namespace. ours: the
    names of that namespace's claims which have devices of our driver.

    Raises:
        PrepareError: no pod on this node may use the claim, or its containers cannot share it.
    """
    claim = allocated.claim
    found = [pod for pod in pods if (pod.get("metadata") or {}).get("uid") in allocated.pods]
    if not found:
        raise PrepareError(
            f"{claim} is reserved for no pod on node {node}: delete the pod, so that the scheduler "
            "places a new one"
        )
    users = [user for pod in found for user in _users(pod, claim.name, ours)]
    for user in users:
        _check(user, allocated)
    owners = {_ROOT if user.user is None else user.user: user for user in users}
    if len(owners) > 1:
        (one, first), (other, second) = list(owners.items())[:2]
        raise PrepareError(
            f"{first} runs as user {one}, and {second} as user {other}, but only one user may read "
            f"the credential of {claim}: give both the same securityContext.runAsUser, or a claim "
            "for each"
        )
    paths = [path for user in users for path in user.libraries.split(":") if path]
    return Use(
        next(iter(owners), _ROOT),
        _by_request(users, allocated),
        (*dict.fromkeys(paths),),
        all(user.token for user in users),
    )


def _check(user: _User, allocated: Allocated) -> None:
    claim = allocated.claim
    if user.others:
        raise PrepareError(
            f"{user} names the claims {claim.name} and {user.others[0]}, and a program has one "
            "lease: ask for all of its cards in one claim"
        )
    if len(set(user.requests)) > 1:
        raise PrepareError(
            f"{user} names several requests of {claim} one by one: leave `request` out, so that "
            "the container gets the whole claim"
        )
    if user.user is None:
        raise PrepareError(
            f"{user} runs as the user of its image, which this node cannot know, and only that "
            f"user may read the credential of {claim}: set securityContext.runAsUser"
        )


def _by_request(users: Sequence[_User], allocated: Allocated) -> bool:
    """Returns whether each container gets the devices of one request alone."""
    named = {request for user in users for request in user.requests}
    if len({part.request for part in allocated.parts}) == 1 or not named - {""}:
        return False
    if "" in named:
        raise PrepareError(
            f"some containers name {allocated.claim} as a whole and others one request of it: name "
            "a request in all of them, or in none"
        )
    return True


def _users(pod: Content, claim: str, ours: Collection[str]) -> Iterator[_User]:
    spec = pod.get("spec") or {}
    for kind in _KINDS:
        for container in spec.get(kind) or []:
            named = _named(pod, container)
            requests = tuple(request for name, request in named if name == claim)
            others = (name for name, _ in named if name != claim and name in ours)
            if requests:
                yield _User(
                    pod=str(pod["metadata"]["name"]),
                    container=str(container["name"]),
                    requests=requests,
                    others=tuple(others),
                    user=_user(spec, container),
                    libraries=_variable(container, "LD_LIBRARY_PATH"),
                    token=_variable(container, "RGPU_TOKEN_FILE"),
                )


def _named(pod: Content, container: Content) -> list[tuple[str, str]]:
    """Returns the claims and requests that a container names, also by extended resources."""
    names = _real_names(pod)
    rows = (container.get("resources") or {}).get("claims") or []
    found = [(names.get(str(row["name"]), ""), str(row.get("request") or "")) for row in rows]
    extended = (pod.get("status") or {}).get("extendedResourceClaimStatus") or {}
    found += [
        (str(extended["resourceClaimName"]), str(row["requestName"]))
        for row in extended.get("requestMappings") or []
        if row["containerName"] == container["name"]
    ]
    return found


def _real_names(pod: Content) -> dict[str, str]:
    """Returns the names of ResourceClaims by the names that the pod's containers use."""
    rows = (pod.get("spec") or {}).get("resourceClaims") or []
    made = (pod.get("status") or {}).get("resourceClaimStatuses") or []
    found = {str(row["name"]): str(row.get("resourceClaimName") or "") for row in rows}
    return found | {str(row["name"]): str(row.get("resourceClaimName") or "") for row in made}


def _user(spec: Content, container: Content) -> int | None:
    """Returns the numeric user of a container; None: that of its image, which is not root."""

    def said(name: str) -> Any:
        contexts = (one.get("securityContext") or {} for one in (container, spec))
        return next((one[name] for one in contexts if one.get(name) is not None), None)

    user = said("runAsUser")
    if user is not None:
        return int(user)
    return None if said("runAsNonRoot") else _ROOT


def _variable(container: Content, name: str) -> str:
    rows = [row for row in container.get("env") or [] if row.get("name") == name]
    return str(rows[-1].get("value") or "") if rows else ""
