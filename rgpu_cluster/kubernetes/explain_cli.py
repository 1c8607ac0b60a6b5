"""`rgpu explain`: of a request, or of a pod or a claim of Kubernetes, whose requests it finds."""

from __future__ import annotations

import asyncio
import json
import os
import re
from typing import TYPE_CHECKING, Any, TypedDict

from rgpu_client.cluster.placing import manager_of
from rgpu_client.cluster.show import configure, explained, manager_client
from rgpu_common.command import FAILED, OK, Command
from rgpu_common.errors import MissingPartError, ServerError, UsageError
from rgpu_common.installing import install_words
from rgpu_common.tables import message_json

if TYPE_CHECKING:
    import argparse

    from rgpu_client.cluster.asking import ManagerClient
    from rgpu_cluster.kubernetes.explaining import Part


class ExplainedPart(TypedDict):
    """A pod or a claim. says: what Kubernetes says about it. error: why the manager gave no
    decision, else "". decision: what `rgpu explain REQUEST --json` prints, or null.
    """

    kind: str
    namespace: str
    name: str
    request_id: str
    says: list[str]
    error: str
    decision: dict[str, Any] | None


class Explained(TypedDict):
    """What `rgpu explain pod/NAME --json` and `rgpu explain claim/NAME --json` print."""

    parts: list[ExplainedPart]


_KINDS = {
    **dict.fromkeys(("pod", "pods", "po"), "pod"),
    **dict.fromkeys(("claim", "claims", "resourceclaim", "resourceclaims"), "claim"),
}
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_MOST_SHOWN = 80
_NO_MANAGER = (
    "the manager knows how that was decided: name it with --manager HOST:PORT, or RGPU_MANAGER. "
    "With `kubectl port-forward -n rgpu-system service/rgpu-manager 7710` it is --manager "
    "127.0.0.1:7710"
)


def _configure(parser: argparse.ArgumentParser) -> None:
    configure(parser)
    parser.add_argument(
        "what", metavar="WHAT",
        help="the request, as `rgpu run -v` prints it; on Kubernetes pod/NAME or claim/NAME",
    )  # fmt: skip
    parser.add_argument(
        "-n", "--namespace", default="", metavar="NAME",
        help="the namespace of the pod or the claim (default: that of the kubeconfig file)",
    )  # fmt: skip
    parser.add_argument(
        "--kubeconfig", default="", metavar="FILE",
        help="how to reach Kubernetes (default: KUBECONFIG)",
    )  # fmt: skip


def _run(arguments: argparse.Namespace) -> int:
    subject = subject_of(arguments.what)
    if subject is not None:
        return _explain_parts(arguments, _parts(arguments, *subject))
    with manager_client(arguments) as client:
        answer = client.explain(arguments.what)
    print(message_json(answer) if arguments.json else explained(answer))
    return OK


def subject_of(text: str) -> tuple[str, str] | None:
    """Returns "pod" or "claim", and the name; None: the text is the id of a request.

    Raises:
        UsageError: it is neither.
    """
    if "/" not in text:
        return None
    kind, _, name = text.partition("/")
    if kind.lower() not in _KINDS or not _NAME.fullmatch(name):
        raise UsageError(
            f"{text[:_MOST_SHOWN]!r} cannot be explained; write the id of a request, pod/NAME or "
            "claim/NAME"
        )
    return _KINDS[kind.lower()], name


def _parts(arguments: argparse.Namespace, kind: str, name: str) -> list[Part]:
    namespace = arguments.namespace
    if namespace and not _NAME.fullmatch(namespace):
        raise UsageError(f"--namespace: {namespace[:_MOST_SHOWN]!r} names no namespace")
    try:
        from rgpu_cluster.kubernetes.explaining import find
    except ImportError as error:
        if error.name not in ("lightkube", "httpx2"):
            raise
        raise MissingPartError(
            f"`rgpu explain {kind}/NAME` needs the package {error.name}: "
            + install_words("kubernetes")
        ) from None
    return asyncio.run(find(kind, name, namespace, arguments.kubeconfig))


def _explain_parts(arguments: argparse.Namespace, parts: list[Part]) -> int:
    """Prints what Kubernetes says, and with it what the manager says.

    Raises:
        UsageError: no manager is named. What Kubernetes says is printed then.
    """
    code, answers = OK, dict[str, Any]()
    asked = any(part.request for part in parts)
    if asked and manager_of(arguments.manager, os.environ) is not None:
        with manager_client(arguments) as client:
            answers = {one.request: _ask(client, one.request) for one in parts if one.request}
    if any(isinstance(answer, ServerError) for answer in answers.values()):
        code = FAILED
    print(_as_json(parts, answers) if arguments.json else _as_text(parts, answers))
    if asked and not answers:
        raise UsageError(_NO_MANAGER)
    return code


def _ask(client: ManagerClient, request: str) -> Any:
    """Returns the manager's answer, or the error."""
    try:
        return client.explain(request)
    except ServerError as error:
        return error


def _as_text(parts: list[Part], answers: dict[str, Any]) -> str:
    blocks = []
    for part in parts:
        answer = answers.get(part.request)
        lines = [*part.lines]
        if isinstance(answer, ServerError):
            lines.append(f"no decision: {answer}{_hint(part)}")
        elif answer is not None:
            lines.append(explained(answer))
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _hint(part: Part) -> str:
    """Returns why a manager may not know a request that there is, else ""."""
    if any(os.environ.get(name) for name in ("RGPU_TOKEN", "RGPU_TOKEN_FILE")):
        return ""
    return (
        f". A manager that has access tokens shows it to the tenant {part.namespace} alone: name "
        "the file of its token with RGPU_TOKEN_FILE"
    )


def _as_json(parts: list[Part], answers: dict[str, Any]) -> str:
    rows: list[ExplainedPart] = []
    for part in parts:
        answer = answers.get(part.request)
        failed = isinstance(answer, ServerError)
        rows.append(
            {
                "kind": part.kind,
                "namespace": part.namespace,
                "name": part.name,
                "request_id": part.request,
                "says": list(part.lines),
                "error": str(answer) if failed else "",
                "decision": None if failed or answer is None else json.loads(message_json(answer)),
            }
        )
    said: Explained = {"parts": rows}
    return json.dumps(said, indent=2)


explain = Command("explain", "show how a cluster's manager decided", _configure, _run)
