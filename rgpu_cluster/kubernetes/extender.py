"""What a scheduler extender (v1) is asked and answers: filter, prioritize, bind. Pure.

For clusters without ResourceClaims. A node is judged by the card that the core would choose for a
program there, so a node without cards is as good as its path to one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from rgpu_cluster.core.decision import Decision, Refusal
from rgpu_cluster.core.errors import RequestError
from rgpu_cluster.core.place import place
from rgpu_cluster.core.request import Client, Mode
from rgpu_cluster.core.score import PRESETS, Weights
from rgpu_cluster.kubernetes.legacy.asked import Asked, request_of
from rgpu_cluster.kubernetes.legacy.vendors import Options
from rgpu_cluster.kubernetes.names import RACK_LABEL
from rgpu_cluster.kubernetes.units import read
from rgpu_cluster.manager.telling import in_short

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rgpu_cluster.core.paths import Paths
    from rgpu_cluster.core.pool import Pool
    from rgpu_cluster.core.request import Request

# Kubernetes' bounds of a score.
MOST_SCORE = 10
_MOST_NODES = 20_000


class Extending(Struct, frozen=True):
    """units: how the cluster counted before. farthest: how far a card may be from its pod."""

    units: Options = field(default_factory=Options)
    farthest: Mode = Mode.ANY
    weights: Weights = field(default_factory=lambda: PRESETS["fgd"])


class Question(Struct, frozen=True):
    """What the scheduler asks about a pod. nodes: whole nodes by name, if it sends them."""

    pod: Mapping[str, Any]
    names: tuple[str, ...]
    nodes: Mapping[str, Mapping[str, Any]] | None


class Binding(Struct, frozen=True):
    """The pod that is to run on a node."""

    namespace: str
    pod: str
    uid: str
    node: str


def question_of(message: Any) -> Question:
    """Returns the question of ExtenderArgs; RequestError if they are none."""
    if not isinstance(message, dict) or not isinstance(message.get("Pod"), dict):
        raise RequestError("these are no ExtenderArgs: there is no Pod in them")
    names, listed = message.get("NodeNames"), message.get("Nodes")
    if isinstance(names, list):
        if len(names) > _MOST_NODES or not all(isinstance(one, str) for one in names):
            raise RequestError(f"NodeNames are at most {_MOST_NODES} names")
        return Question(message["Pod"], tuple(names), None)
    items = listed.get("items") if isinstance(listed, dict) else None
    if not isinstance(items, list) or len(items) > _MOST_NODES:
        raise RequestError(
            f"the ExtenderArgs have neither NodeNames nor at most {_MOST_NODES} Nodes"
        )
    nodes = {}
    for one in items:
        name = (one.get("metadata") or {}).get("name") if isinstance(one, dict) else None
        if not isinstance(name, str):
            raise RequestError("a node in the ExtenderArgs has no name")
        nodes[name] = one
    return Question(message["Pod"], tuple(nodes), nodes)


def binding_of(message: Any) -> Binding:
    """Returns the binding of ExtenderBindingArgs; RequestError if they are none."""
    keys = ("PodNamespace", "PodName", "PodUID", "Node")
    values = [message.get(key) if isinstance(message, dict) else None for key in keys]
    texts = [one for one in values if isinstance(one, str) and 0 < len(one) <= 253]
    if len(texts) != len(keys):
        raise RequestError(f"these are no ExtenderBindingArgs: they need {', '.join(keys)}")
    return Binding(*texts)


def asked_by(pod: Mapping[str, Any], options: Options) -> Asked | None:
    """Returns what a pod asks for; None: nothing.

    Raises:
        RequestError: rgpu cannot do it, or several containers ask.
    """
    found = read(pod, options).asked
    if len(found) > 1:
        raise RequestError(
            f"{len(found)} containers of the pod ask for cards; without claims it is one"
        )
    return found[0] if found else None


def request_on(asked: Asked, pod: Mapping[str, Any], client: Client, farthest: Mode) -> Request:
    """Returns the request of a pod if it ran there."""
    metadata = pod.get("metadata") or {}
    tenant = str(metadata.get("namespace") or "default")
    return request_of(asked, str(metadata.get("uid") or "0" * 16), tenant, client, farthest)


def client_of(pool: Pool, name: str, labels: Mapping[str, str] | None) -> Client:
    """Returns where a program on this node of Kubernetes is. labels: the node's, if known."""
    node = pool.node(name)
    if node is not None:
        return Client(name, node.rack, node.nic)
    return Client(rack=str((labels or {}).get(RACK_LABEL, "")))


class Judge:
    """Judges nodes for one pod."""

    def __init__(self, pool: Pool, paths: Paths, question: Question, options: Extending) -> None:
        self._pool, self._paths, self._options = pool, paths, options
        self._question = question
        self.asked = asked_by(question.pod, options.units)
        # Nodes outside the pool differ by their racks alone.
        self._known: dict[Client, Decision | Refusal | str] = {}

    def of(self, name: str) -> Decision | Refusal | str:
        """Returns what the core decides for the pod on a node, or why it cannot be there at all."""
        node = (self._question.nodes or {}).get(name)
        labels = (node.get("metadata") or {}).get("labels") if node else None
        client = client_of(self._pool, name, labels)
        if client not in self._known:
            self._known[client] = self._decide(client)
        return self._known[client]

    def _decide(self, client: Client) -> Decision | Refusal | str:
        assert self.asked is not None
        try:
            request = request_on(self.asked, self._question.pod, client, self._options.farthest)
        except RequestError as error:
            return str(error)
        return place(self._pool, request, self._paths, self._options.weights)


def filtered(judge: Judge, question: Question) -> dict[str, Any]:
    """Returns the ExtenderFilterResult."""
    fits: list[str] = []
    failed: dict[str, str] = {}
    never: dict[str, str] = {}
    for name in question.names:
        found = None if judge.asked is None else judge.of(name)
        if isinstance(found, str):
            never[name] = found
        elif isinstance(found, Refusal):
            (failed if found.possible else never)[name] = f"rgpu: {in_short(found)}"
        else:
            fits.append(name)
    answer: dict[str, Any] = {
        "FailedNodes": failed, "FailedAndUnresolvableNodes": never, "Error": "",
        "Nodes": None, "NodeNames": None,
    }  # fmt: skip
    if question.nodes is None:
        answer["NodeNames"] = fits
    else:
        answer["Nodes"] = {"metadata": {}, "items": [question.nodes[name] for name in fits]}
    return answer


def prioritized(judge: Judge, question: Question) -> list[dict[str, Any]]:
    """Returns the HostPriorityList: 10 for the least cost of the core, 0 for the highest."""
    costs: dict[str, int] = {}
    for name in question.names if judge.asked is not None else ():
        found = judge.of(name)
        if isinstance(found, Decision):
            costs[name] = found.chosen.score.total
    scores = _scores(costs)
    return [{"Host": name, "Score": scores.get(name, 0)} for name in question.names]


def _scores(costs: Mapping[str, int]) -> dict[str, int]:
    least, most = min(costs.values(), default=0), max(costs.values(), default=0)
    span = max(most - least, 1)
    return {name: (most - cost) * MOST_SCORE // span if most > least else MOST_SCORE
            for name, cost in costs.items()}  # fmt: skip


def refused(sentence: str) -> dict[str, Any]:
    """Returns the ExtenderFilterResult for a pod that cannot be met anywhere."""
    return {
        "Nodes": None, "NodeNames": None, "FailedNodes": {}, "FailedAndUnresolvableNodes": {},
        "Error": f"rgpu: {sentence}",
    }  # fmt: skip
