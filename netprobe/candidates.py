"""Which paths there may be: those that the server offers and this client can use. Pure: facts
about this machine are arguments.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from netprobe.schemes import ENCRYPTED, LOCAL, ORDER, rank_of, scheme_of
from rgpu_common.endpoints import UnixEndpoint, parse_endpoint
from rgpu_common.errors import EndpointError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

TRANSPORTS = ("auto", "shm", "unix", "tcp", "tls", "ucx", "grpc")
# Carried by a process (agent) on the client's machine, not by the library that programs load.
TUNNELLED = ("grpc", "grpcs")
_UNSPECIFIED = re.compile(r"(?P<scheme>\w+):(?:0\.0\.0\.0|\[::\]|\*):(?P<port>\d+)")
_HOST_PORT = re.compile(
    r"(?:(?P<scheme>[a-z]+):)?(?P<host>\[[^\]]+\]|[^:/\[\]]+)(?::(?P<port>\d+))?"
)
_HOST = re.compile(r"[\w.-]+|[0-9A-Fa-f:.]+(?:%[\w.-]+)?")
# Limits per transport. Each address is connected to, or gets an agent, so a server that names more
# of them gets the rest ignored.
MOST_OF_A_KIND = 8
MOST_TUNNELLED = 2
_SECRET = "a client with an access token or a certificate uses encrypted paths if any are offered"
_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy", "all_proxy")


class Here(NamedTuple):
    """What a client knows about itself.

    schemes: that this release connects to. same_host: it runs on the server's machine. secret: it
    has an access token, which others must not read, or a certificate, which it shows only on
    encrypted paths. rdma: this machine has an active RDMA port.
    """

    schemes: tuple[str, ...]
    same_host: bool = False
    secret: bool = False
    rdma: bool = False


class Dropped(NamedTuple):
    """An endpoint that is not a candidate. reason: the end of a sentence."""

    uri: str
    reason: str


class Candidates(NamedTuple):
    uris: tuple[str, ...]
    dropped: tuple[Dropped, ...]


def normal(uri: str) -> str:
    """Returns a URI with its scheme: HOST:PORT becomes tcp:HOST:PORT."""
    scheme = uri.partition(":")[0]
    return uri if scheme in ORDER else f"tcp:{uri}"


def completed(text: str) -> str:
    """Returns an address with its default port if it names none; raises EndpointError."""
    scheme = scheme_of(text) if is_explicit(text) else ""
    if scheme not in ("", "tcp", "tls", "ucx", *LOCAL):
        parse_endpoint(text.partition(":")[2])
        return text
    endpoint = str(parse_endpoint(text))
    return normal(endpoint) if scheme else endpoint


def is_explicit(text: str) -> bool:
    """Returns True if the text has a scheme: then only that path is meant."""
    return text.partition(":")[0] in ORDER and ":" in text


def resolved(endpoint: str, reached_at: str) -> str:
    """Returns an endpoint that names no host with the host by which its server was reached."""
    match = _UNSPECIFIED.fullmatch(endpoint)
    if match is None:
        return endpoint
    host = _host(reached_at)
    return endpoint if host is None else f"{match['scheme']}:{host}:{match['port']}"


def candidates(reached_at: str, offered: Sequence[str], here: Here) -> Candidates:
    """Returns the paths to measure, most preferred first, and those left out with reasons."""
    reached_at = normal(reached_at)
    uris = dict.fromkeys([reached_at, *(resolved(uri, reached_at) for uri in offered)])
    reasons = {uri: _why_not(uri, reached_at, here) for uri in uris if uri != reached_at}
    kept = sorted((uri for uri in uris if not reasons.get(uri)), key=rank_of)
    if here.secret and any(scheme_of(uri) in ENCRYPTED for uri in kept):
        # This includes the address that the user named: without a scheme it only names the server.
        reasons |= dict.fromkeys(filter(_is_open, kept), _SECRET)
    reasons |= _too_many(uri for uri in kept if uri != reached_at and not reasons.get(uri))
    return Candidates(
        tuple(uri for uri in kept if not reasons.get(uri)),
        tuple(Dropped(uri, reason) for uri, reason in reasons.items() if reason),
    )


def _too_many(uris: Iterable[str]) -> dict[str, str]:
    counts: Counter[str] = Counter()
    reasons = {}
    for uri in uris:
        scheme = scheme_of(uri)
        counts[scheme] += 1
        most = MOST_TUNNELLED if scheme in TUNNELLED else MOST_OF_A_KIND
        if counts[scheme] > most:
            reasons[uri] = f"the server names more than {most} {scheme}: addresses"
    return reasons


def _is_open(uri: str) -> bool:
    """Returns True if others on the network can read what is sent on this path."""
    return scheme_of(uri) not in (*LOCAL, *ENCRYPTED) and not _is_loopback(uri)


def is_address(uri: str) -> bool:
    """Returns True for a complete address that can be connected to and stand in RGPU_PATHS."""
    try:
        endpoint = parse_endpoint(uri)
    except EndpointError:
        return False
    if isinstance(endpoint, UnixEndpoint):
        return ";" not in uri
    whole = is_explicit(uri) and uri.endswith(f":{endpoint.port}") and endpoint.port > 0
    return whole and _HOST.fullmatch(endpoint.host) is not None


def _why_not(uri: str, reached_at: str, here: Here) -> str:
    scheme = scheme_of(uri)
    if _UNSPECIFIED.fullmatch(uri):
        return "the address has no host"
    if not is_address(uri):
        return "it is not a valid address"
    if scheme in TUNNELLED and scheme not in here.schemes:
        return f"it needs an agent: name it explicitly, {uri}"
    if scheme not in here.schemes:
        return f"this release of the client has no {scheme}:"
    if scheme in LOCAL and not here.same_host:
        return "the server is on another machine"
    if _is_loopback(uri) and not here.same_host and not _is_loopback(reached_at):
        return "it is an address of the server's own machine"
    if scheme == "ucx" and not here.rdma:
        return "this machine has no active RDMA device; name the address to let UCX choose a way"
    return ""


def _host(uri: str) -> str | None:
    match = _HOST_PORT.fullmatch(uri)
    return None if match is None else match["host"]


def _is_loopback(uri: str) -> bool:
    host = _host(uri) or ""
    return host in ("localhost", "[::1]") or host.startswith("127.")


def proxies(environment: Mapping[str, str]) -> list[str]:
    """Returns the HTTP proxies in the environment, without their passwords."""
    found = []
    for name in _PROXIES:
        value = environment.get(name) or environment.get(name.upper())
        if value:
            found.append(f"{name}={_without_password(value)}")
    return found


def _without_password(text: str) -> str:
    try:
        parts = urlsplit(text if "//" in text else f"//{text}")
        where = parts.hostname or ""
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "(not a URL)"
    return f"{parts.scheme + '://' if parts.scheme else ''}{where}{port}"
