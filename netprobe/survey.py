"""Finds the paths to a server and measures each once."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, NamedTuple

from netprobe.candidates import TUNNELLED, Candidates, Dropped, Here, candidates, normal
from netprobe.identity import is_this_host, read_boot_id
from netprobe.native import LIFE_SECONDS, Line, Offer, schemes
from netprobe.record import Cache, Entry, cache_folder, client_name
from netprobe.schemes import LOCAL, rank_of, scheme_of
from rgpu_common.errors import RgpuError, ServerError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from netprobe.choice import Choice
    from netprobe.cost import Workload
    from netprobe.prober import Measurement, OpenPath, ProbeBudget

    # Called with the path and the part of it that is measured next.
    Progress = Callable[[str, str], None]
    # Returns the address to connect to for a path that a process of this machine carries.
    Tunnel = Callable[[str], str]

# How long the start of a program may wait for all measurements together.
START_SECONDS = 0.12
_LEAST_SECONDS = 0.004
_QUICK_BYTES = 4 << 20
_QUICK_PINGS = 8
# A path that is slower than planned by more than this is given up.
_QUICK_SLACK = 0.25
_LOCAL_SECONDS = 1.0
# Variables with which a client identifies itself.
_WHO = ("RGPU_TOKEN", "RGPU_TOKEN_FILE", "RGPU_TLS_CERT")


class Found(NamedTuple):
    """What the first contact with a server showed.

    uri: the address used. handshake: how many seconds it took.
    """

    uri: str
    offer: Offer
    same_host: bool
    handshake: float


class Survey(NamedTuple):
    """The measurements of all paths to a server. choice: None if no path works."""

    found: Found
    paths: tuple[Measurement, ...]
    dropped: tuple[Dropped, ...]
    choice: Choice | None
    at: float


def find(uri: str, timeout: float = 2.0, tunnel: Tunnel | None = None) -> Found:
    """Asks a server for its identity and its other addresses.

    Raises:
        ServerError: nothing answers a probe at that address.
    """
    with Line(normal(uri), timeout, through=_through(uri, tunnel)) as line:
        offer = line.offer
        return Found(normal(uri), offer, is_this_host(offer.nonce, offer.host), line.open_seconds)


def _through(uri: str, tunnel: Tunnel | None) -> str:
    """Returns the address to connect to, "" for the path itself; ServerError without a tunnel."""
    if scheme_of(uri) not in TUNNELLED:
        return ""
    if tunnel is None:
        raise ServerError(f"{uri} needs an agent, which `rgpu probe` starts and netprobe does not")
    return tunnel(uri)


def here(same_host: bool, environment: Mapping[str, str], tunnelled: bool = False) -> Here:
    """Returns what this process knows about itself. tunnelled: it can start agents."""
    direct = tuple(scheme for scheme in schemes() if scheme not in TUNNELLED)
    return Here(
        (*direct, *TUNNELLED) if tunnelled else direct,
        same_host=same_host,
        secret=any(environment.get(name) for name in _WHO),
        rdma=_has_rdma(),
    )


def _has_rdma() -> bool:
    if not os.path.isdir("/sys/class/infiniband"):
        return False
    from netprobe.netdev import has_rdma

    return has_rdma()


def paths_of(found: Found, environment: Mapping[str, str], tunnelled: bool = False) -> Candidates:
    """Returns the paths that may lead to the server."""
    me = here(found.same_host, environment, tunnelled)
    return candidates(found.uri, found.offer.endpoints, me)


def local_path(found: Found, uris: Sequence[str]) -> str | None:
    """Returns a local path that really leads to the server: its socket exists, and the same
    server answers there.
    """
    stop = time.perf_counter() + _LOCAL_SECONDS
    for uri in sorted(uris, key=rank_of):
        if scheme_of(uri) not in LOCAL or time.perf_counter() > stop:
            continue
        try:
            with Line(uri, _LOCAL_SECONDS / 2) as line:
                if line.offer.server == found.offer.server:
                    return uri
        except RgpuError:
            continue
    return None


def survey(
    uri: str,
    workload: Workload | None = None,
    budget: ProbeBudget | None = None,
    progress: Progress | None = None,
    tunnel: Tunnel | None = None,
) -> Survey:
    """Measures every path; raises ServerError if the server cannot be found.

    workload: what the paths are ranked for; None: a mixed one.
    """
    found = find(uri, tunnel=tunnel)
    there = paths_of(found, os.environ, tunnelled=tunnel is not None)
    paths = measured(there.uris, found.offer.server, budget, progress, tunnel)
    return Survey(
        found, paths, there.dropped, chosen(paths, found.same_host, workload), time.time()
    )


def measured(
    uris: Sequence[str],
    server: bytes,
    budget: ProbeBudget | None = None,
    progress: Progress | None = None,
    tunnel: Tunnel | None = None,
) -> tuple[Measurement, ...]:
    """Measures the paths one after the other, since they may share a link."""
    results = []
    for uri in uris:
        say = None if progress is None else (lambda what, uri=uri: progress(uri, what))
        results.append(_measured(uri, budget, server, say, tunnel))
    return tuple(results)


def _measured(
    uri: str,
    budget: ProbeBudget | None,
    server: bytes,
    say: Callable[[str], None] | None,
    tunnel: Tunnel | None,
) -> Measurement:
    from netprobe.prober import failed, measure

    try:
        through = _through(uri, tunnel)
    except RgpuError as error:
        return failed(uri, error)
    return measure(uri, budget, server=server, through=through, progress=say)


def chosen(
    paths: Sequence[Measurement], same_host: bool, workload: Workload | None = None
) -> Choice | None:
    """Returns the best path. On the server's machine that is the path that shares most with the
    server: measurements of microseconds are less reliable than that.
    """
    from netprobe.choice import choose
    from netprobe.cost import MIXED

    choice = choose(paths, workload or MIXED)
    local = [p for p in paths if p.works and scheme_of(p.uri) in LOCAL]
    if choice is None or not same_host or not local:
        return choice
    best = min(local, key=lambda path: rank_of(path.uri))
    if best.uri == choice.uri:
        return choice._replace(reason=_LOCAL_REASON)
    return choice._replace(uri=best.uri, reason=_LOCAL_REASON)


_LOCAL_REASON = "client and server are on one machine, and what they share is faster than a network"


def quick(
    uris: Sequence[str], server: bytes, seconds: float = START_SECONDS
) -> tuple[Measurement, ...]:
    """Measures all paths within `seconds`, for the start of a program: coarsely. All paths are
    opened at once, so that one that does not answer delays no other. Then each gets its part of
    the time, the shortest round trip first.
    """
    from concurrent.futures import ThreadPoolExecutor

    from netprobe.prober import Measurement, OpenPath, failed

    stop = time.perf_counter() + seconds
    with ThreadPoolExecutor(max(len(uris), 1)) as pool:
        opened = list(pool.map(lambda uri: _open(uri, server, seconds / 2), uris))
    results = [path for path in opened if isinstance(path, Measurement)]
    works = [path for path in opened if isinstance(path, OpenPath)]
    works.sort(key=lambda path: path.first)
    for i, path in enumerate(works):
        with path:
            if time.perf_counter() > stop + 2 * _QUICK_SLACK:
                results.append(Measurement(path.uri, error="there was no time left to measure it"))
                continue
            part = max((stop - time.perf_counter()) / (len(works) - i), _LEAST_SECONDS)
            try:
                path.limit(2 * part + _QUICK_SLACK)
                results.append(path.measure(part, _QUICK_BYTES))
            except RgpuError as error:
                results.append(failed(path.uri, error))
    return tuple(results)


def _open(uri: str, server: bytes, timeout: float) -> OpenPath | Measurement:
    from netprobe.prober import failed, open_path

    try:
        path = open_path(uri, timeout, server=server, life=2 * timeout + _QUICK_SLACK)
    except RgpuError as error:
        return failed(uri, error)
    try:
        path.ping(_QUICK_PINGS, timeout / 4)
        # Must last until its turn comes.
        path.limit(LIFE_SECONDS)
    except RgpuError as error:
        path.close()
        return failed(uri, error)
    return path


class Memory(NamedTuple):
    """The cache, for this client. A client on its server's machine never fills it, so its name,
    which takes milliseconds to find, is asked for only where there is an entry.
    """

    cache: Cache

    def read(self, server: str) -> Entry | None:
        return self.cache.read(_client(), server) if self.cache.holds_any() else None

    def write(self, server: str, entry: Entry) -> Entry:
        """Stores the entry, adds what is still valid of the earlier one, and returns the result."""
        kept = entry.after(self.read(server))
        self.cache.write(_client(), server, kept)
        return kept


def memory(environment: Mapping[str, str]) -> Memory:
    """Returns the cache of this user for this place in the network."""
    return Memory(Cache(cache_folder(environment)))


def _client() -> str:
    from netprobe.netdev import net_devices

    addresses = [a for device in net_devices() if device.up for a in device.addresses]
    return client_name(addresses, read_boot_id())
