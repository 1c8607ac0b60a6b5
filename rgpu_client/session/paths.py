"""Chooses the path of a program to its server: the path that the user named, or the best of those
that the server offers.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from netprobe.candidates import (
    TRANSPORTS,
    TUNNELLED,
    candidates,
    is_address,
    is_explicit,
    normal,
)
from netprobe.native import Line, schemes
from netprobe.reach import check_reach
from netprobe.record import Entry
from netprobe.schemes import LOCAL, scheme_of
from netprobe.survey import chosen, find, here, local_path, memory, paths_of, quick
from rgpu_client.variables import variable
from rgpu_common.clusters import check_run_name
from rgpu_common.endpoints import refuse_secret
from rgpu_common.errors import (
    EndpointError,
    NoSessionError,
    RgpuError,
    ServerError,
    UsageError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from netprobe.choice import Choice
    from netprobe.cost import Workload
    from netprobe.prober import Measurement
    from netprobe.survey import Found

AUTO = "auto"
PATHS = "RGPU_PATHS"
# A short limit is enough: if the server does not answer, the claim says why (session/claim.py).
_FIND_SECONDS = 1.0
_CHECK_SECONDS = 0.3
_FALL_BACK = (
    "HOST:PORT, [IPV6]:PORT, tcp:HOST:PORT, tls:HOST:PORT, ucx:HOST:PORT, unix:/PATH or shm:/PATH, "
    "with ';' between several"
)
# How many other addresses are tried if the named one does not answer, or passed to the agent if all
# paths were too slow to measure.
_MOST_ELSEWHERE = 4


class Path(NamedTuple):
    """How a program reaches its server.

    others: URIs to fall back on, best first. unseen: URIs at which the server was not seen yet,
    and that the agent measures all the same. server: the id of the server that answered; b"" if
    none was asked.
    """

    uri: str
    reason: str
    others: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    server: bytes = b""

    @property
    def worth_watching(self) -> bool:
        """True if there are other network paths, one of which may become the better one."""
        return bool(self.others or self.unseen) and scheme_of(self.uri) not in LOCAL

    def variables(self) -> dict[str, str]:
        """Returns the variables that tell the program its paths."""
        paths = {PATHS: ";".join(self.others)} if self.others else {}
        return {"RGPU_SERVER": self.uri, **paths}


def transport_of(option: str | None, environment: Mapping[str, str]) -> str:
    """Returns the name of the transport that was asked for; UsageError if there is none of that
    name.
    """
    text = option or environment.get("RGPU_TRANSPORT") or AUTO
    if text not in TRANSPORTS:
        raise UsageError(f"there is no transport {text!r}; there are: {', '.join(TRANSPORTS)}")
    return text


def workload_of(environment: Mapping[str, str]) -> Workload:
    """Returns the workload for which paths are ranked before the program has done anything."""
    from netprobe.cost import MIXED, WORKLOADS

    text = environment.get("RGPU_WORKLOAD")
    if not text:
        return MIXED
    if text not in WORKLOADS:
        raise UsageError(f"RGPU_WORKLOAD: there is no {text!r}; there are: {', '.join(WORKLOADS)}")
    return WORKLOADS[text]


def check_others(environment: Mapping[str, str]) -> None:
    """Checks RGPU_NAME, and RGPU_PATHS, which users may set.

    Raises:
        UsageError: one is no name, or the other has an address to which the driver library cannot
            connect.
    """
    variable(environment, "RGPU_NAME", check_run_name)
    for text in filter(None, environment.get(PATHS, "").split(";")):
        uri = normal(text)
        try:
            refuse_secret(uri)
        except EndpointError as error:
            raise UsageError(f"{PATHS}: {error}") from None
        if scheme_of(uri) in TUNNELLED or not is_address(uri):
            raise UsageError(
                f"{PATHS}: {text!r} is not an address for a program to fall back on; write "
                f"{_FALL_BACK}"
            )


def find_path(named: str, transport: str, environment: Mapping[str, str]) -> Path:
    """Returns the path to the server that the user named.

    Raises:
        UsageError: the address and the transport contradict each other.
        NoSessionError: UCX would end this process if it connected there.
        ServerError: the server does not offer the transport.
    """
    if is_explicit(named):
        scheme = scheme_of(named)
        if transport not in (AUTO, scheme):
            raise UsageError(
                f"{named} names the transport {scheme} and --transport names {transport}: leave "
                "one of them out"
            )
        _check_reach(named)
        return Path(named, "the path was named")
    if transport == AUTO:
        return _best(named, environment)
    return _of_kind(named, transport, environment)


def _check_reach(uri: str) -> None:
    """Checks a `ucx:` address that no server has offered; NoSessionError."""
    try:
        check_reach(uri)
    except ServerError as error:
        raise NoSessionError(str(error)) from None


def _best(named: str, environment: Mapping[str, str]) -> Path:
    kept = memory(environment)
    entry = kept.read(named)
    if entry is not None and entry.fresh(time.time()):
        path = _remembered(entry, named, environment)
        if path is not None:
            return path
    try:
        found = _found(named, entry, environment)
    except RgpuError as error:
        return Path(named, f"its server could not be asked for others: {error}")
    uris = paths_of(found, environment).uris
    local = local_path(found, uris) if found.same_host else None
    if local is not None:
        return _local(local, uris, found)
    # A socket that does not exist here, for instance in another container, is not measured.
    uris = tuple(uri for uri in uris if scheme_of(uri) not in LOCAL) or uris
    if len(uris) == 1:
        return Path(uris[0], "it is the only path", server=found.offer.server)
    paths = quick(uris, found.offer.server)
    entry = kept.write(named, Entry(time.time(), found.offer.server, found.same_host, paths))
    from netprobe.choice import Choice, choose

    choice = choose(paths, workload_of(environment))
    if choice is None:
        uri = found.uri if found.uri in uris else uris[0]
        path = _chosen(Choice(uri, "no path could be measured in time"), entry.server, entry.paths)
        # The agent has more time to measure these.
        unseen = [one for one in uris if one not in (path.uri, *path.others)]
        return path._replace(unseen=tuple(unseen[:_MOST_ELSEWHERE]))
    return _chosen(choice, entry.server, entry.paths)


def _found(named: str, entry: Entry | None, environment: Mapping[str, str]) -> Found:
    """Returns the server at the named address, or at an address where it was found before;
    ServerError.
    """
    try:
        return find(named, _FIND_SECONDS)
    except RgpuError:
        if entry is None:
            raise
        there = sorted(entry.paths, key=lambda path: not path.works)
        me = here(entry.same_host, environment)
        allowed = candidates(named, [path.uri for path in there], me).uris
        for uri in [path.uri for path in there if path.uri in allowed][:_MOST_ELSEWHERE]:
            with suppress(RgpuError):
                found = find(uri, _CHECK_SECONDS)
                if found.offer.server == entry.server:
                    # The named address belongs to this server too, and may work again soon.
                    offered = (*found.offer.endpoints, normal(named))
                    return found._replace(offer=found.offer._replace(endpoints=offered))
        raise


def _local(uri: str, uris: Sequence[str], found: Found) -> Path:
    others = tuple(one for one in uris if one != uri)
    reason = "client and server are on one machine"
    return Path(uri, reason, others, server=found.offer.server)


def _chosen(choice: Choice, server: bytes, paths: Sequence[Measurement]) -> Path:
    """Returns the path for a choice.

    After the paths that work come those that do not work now but led to this server before. Paths
    on which the server was never seen are left out: the program would send its session's secret
    there.
    """
    before = [
        path.uri
        for path in paths
        if not path.works and path.server == server and path.uri != choice.uri
    ]
    return Path(choice.uri, choice.reason, (*choice.others, *before), server=server)


def _remembered(entry: Entry, named: str, environment: Mapping[str, str]) -> Path | None:
    """Returns the best path of an earlier measurement, if the same server still answers there."""
    # The paths that may be used can have changed: an access token was added, or RDMA is gone.
    me = here(entry.same_host, environment)
    allowed = candidates(named, [path.uri for path in entry.paths], me).uris
    there = [path for path in entry.paths if path.uri in allowed]
    choice = chosen(there, entry.same_host, workload_of(environment))
    if choice is None:
        return None
    try:
        with Line(choice.uri, _CHECK_SECONDS) as line:
            if line.offer.server != entry.server:
                return None
    except RgpuError:
        return None
    age = round(time.time() - entry.at)
    return _chosen(
        choice._replace(reason=f"{choice.reason} (measured {age} s ago)"), entry.server, there
    )


def _of_kind(named: str, transport: str, environment: Mapping[str, str]) -> Path:
    """Returns a path of one transport: the server's own if it can be asked, else the named
    address.
    """
    if transport == "tcp":
        return Path(normal(named), "the transport was named")
    if transport not in schemes() and transport != "grpc":
        raise ServerError(f"this release of the client has no {transport}:; install a later one")
    try:
        found = find(named, _FIND_SECONDS)
    except RgpuError:
        found = None
    if found is None:
        if transport in LOCAL:
            raise ServerError(
                f"the server at {named} could not be asked for its socket: name that as the "
                f"server, {transport}:/PATH"
            )
        _check_reach(f"{transport}:{named}")
        return Path(f"{transport}:{named}", "the transport was named")
    schemes_wanted = (transport, "grpcs") if transport == "grpc" else (transport,)
    there = paths_of(found, environment, tunnelled=True)
    uris = [uri for uri in there.uris if scheme_of(uri) in schemes_wanted]
    if not uris:
        raise ServerError(_not_offered(named, transport, found, there.dropped))
    # A program has one agent, which leads to one address, so other tunnels are no fall-back.
    others = tuple(uri for uri in uris[1:] if scheme_of(uri) not in TUNNELLED)
    return Path(uris[0], "the transport was named", others, server=found.offer.server)


def _not_offered(named: str, transport: str, found: Found, dropped: Sequence[object]) -> str:
    for one in dropped:
        uri, reason = getattr(one, "uri", ""), getattr(one, "reason", "")
        if scheme_of(uri) == transport:
            return f"{uri} cannot be used from here: {reason}"
    offered = sorted({scheme_of(uri) for uri in found.offer.endpoints})
    return (
        f"the server at {named} does not offer {transport}:; it offers {', '.join(offered)}, and "
        "--transport auto takes the best of them"
    )
