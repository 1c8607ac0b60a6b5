"""Names and limits that the nodes, the manager and the clients of a cluster share."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rgpu_common.endpoints import TcpEndpoint, UcxEndpoint, parse_endpoint
from rgpu_common.errors import UsageError

if TYPE_CHECKING:
    from rgpu_common.endpoints import Endpoint

MANAGER_PORT = 7710
# The group of our Kubernetes objects, and the audience of pods' tokens for us.
KUBERNETES_GROUP = "rgpu.dev"
MAX_REQUEST_CARDS = 1024
# Begins the key of the lease of a program that names none: its container, or its machine, follows.
CONTAINER_KEY = "container:"
# The most characters of what people call a run.
MAX_NAME = 64
# The first attempt of a grant that no manager ordered, but the agent of a Kubernetes node.
AGENT_ATTEMPT = 1_000_000
# The longest time for which a server reserves a card.
MAX_RESERVE_SECONDS = 30 * 86400
# The largest message that the manager and its nodes send each other. A full report of a node has
# 128 cards with up to 56 leases each, of less than 800 bytes with a name of wide characters.
MAX_MESSAGE_BYTES = 8 << 20
# The largest answer of a manager to a client: of a full line, whose 10,000 requests have names,
# gangs and reasons of wide characters, and of the leases of all nodes.
MAX_POOL_BYTES = 64 << 20
# A manager sends this metadata at the beginning of the stream of a node that it lets in.
ADMITTED = "rgpu-admitted"

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_REQUEST = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{15,63}")
# What servers call leases and claims, which nobody can choose.
_GIVEN = re.compile(r"(?:[^/]+/)?(?:lease|claim)-[0-9]+")
# The ids of runs, requests and reservations: a word, and what was drawn for it.
_DRAWN = re.compile(r"(.*-)[0-9a-f]{12,}(?:\.[0-9]+)?")


def is_node_name(text: str) -> bool:
    """Returns whether a text can name a node, a rack or a zone."""
    return _NAME.fullmatch(text) is not None


def check_node_name(text: str) -> str:
    """Returns the name; UsageError if it cannot be one."""
    if not is_node_name(text):
        raise UsageError(
            f"{text!r} is not a name: write 1 to 63 letters, digits, dots, dashes and underscores, "
            "with a letter or a digit at both ends"
        )
    return text


def check_run_name(text: str) -> str:
    """Returns what people call a run; UsageError if it cannot be that."""
    if not 0 < len(text) <= MAX_NAME or not text.isprintable():
        raise UsageError(f"a name is 1 to {MAX_NAME} printable characters, not {text!r}")
    return text


def is_given_id(text: str) -> bool:
    """Returns whether a text is a whole id of a lease or a claim: lease-3, gpu1/lease-3. It means
    that one or none: lease-30 begins so too, and somebody may call a run of his so.
    """
    return _GIVEN.fullmatch(text) is not None


def begins_id(word: str, text: str) -> bool:
    """Returns whether a text is how a drawn id begins: `run-9e`. `train` is no begin of `train-2`:
    it would change another lease when the one that is called so has ended.
    """
    drawn = _DRAWN.fullmatch(word)
    return drawn is not None and word.startswith(text) and len(text) > len(drawn[1])


def is_request_id(text: str) -> bool:
    """Returns whether a text can be the id of a request."""
    return _REQUEST.fullmatch(text) is not None


def lease_key(request: str, place: int) -> str:
    """Returns the key of the lease of a request's card; place: the card's place, from 0."""
    return f"{request}.{place}" if place else request


def is_lease_of(key: str, request: str) -> bool:
    """Returns whether a key is that of a lease of the request."""
    rest = key.removeprefix(f"{request}.")
    return key == request or (rest != key and rest.isascii() and rest.isdecimal())


def manager_endpoint(text: str) -> Endpoint:
    """Returns a manager's address; UsageError if it is none. The default port is 7710."""
    endpoint = parse_endpoint(text)
    if isinstance(endpoint, UcxEndpoint):
        raise UsageError(f"{text}: a manager has no ucx: address; write HOST:PORT")
    if isinstance(endpoint, TcpEndpoint) and not text.endswith(f":{endpoint.port}"):
        return type(endpoint)(endpoint.host, MANAGER_PORT)
    return endpoint
