"""The routes of a program to its servers. Most programs have one server, that of RGPU_SERVER.
RGPU_DEVICE may name others, and RGPU_ROUTES tells the program how to reach them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rgpu_client.device_names import servers_of
from rgpu_client.session.launch import TUNNEL, carried
from rgpu_client.session.pacing import TEXTFILE
from rgpu_client.session.paths import AUTO, PATHS, transport_of
from rgpu_client.session.start import AGENT, CHOSEN, on_path
from rgpu_client.sizes import sizes_of
from rgpu_common.credentials import check_secured, credentials_for
from rgpu_common.endpoints import parse_endpoint
from rgpu_common.errors import RgpuError, UnsecuredError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

# A line for each server that RGPU_DEVICE names: NAME;AGENT;TUNNEL;URI;URI...
ROUTES = "RGPU_ROUTES"
_SERVER = "RGPU_SERVER"
_OR_NAMED = "or name a transport here, as --transport tcp, if nobody can read it on the way"
# What says how one server is reached. Another server's route has its own.
_ONE_ROUTE = (PATHS, AGENT, TUNNEL, ROUTES)


class Route(NamedTuple):
    """How a program reaches a server.

    uris: best first. agent, tunnel: the values that RGPU_AGENT and RGPU_TUNNEL would have.
    """

    name: str
    uris: tuple[str, ...]
    agent: str = ""
    tunnel: str = ""

    def line(self) -> str:
        """Returns the route's line in RGPU_ROUTES."""
        return ";".join((self.name, self.agent, self.tunnel, *self.uris))


def on_paths(
    environment: Mapping[str, str],
    named: str,
    transport: str | None,
    loud: bool,
    *,
    explicit: bool = False,
) -> dict[str, str]:
    """Returns `environment` with a path to each server of the program, as `on_path` does for one.

    named: the server of devices that are named by number only. explicit: an option names it.

    Raises:
        UsageError: no device is of the server that the option names; and as `on_path`.
        RgpuError: as `on_path` and `carried`.
    """
    devices = sizes_of(environment).devices
    others = [server for server in servers_of(devices) if server]
    if not others:
        return on_path(environment, named, transport, loud)
    result = {**environment, "RGPU_DEVICE": ",".join(map(str, devices))}
    if all(device.server for device in devices):
        if explicit:
            raise UsageError(f"each device names its server, and none is of {named}: leave it out")
        result.pop(_SERVER, None)  # no device is of it
        before = result
    else:
        result = on_path(result, named, transport, loud)
        before = _silent(result)
    routes: list[Route] = []
    for server in others:
        routes.append(_route(server, before, transport, loud))
        before = _silent(result)
    return {**result, ROUTES: "\n".join(route.line() for route in routes)}


def check_secured_paths(environment: Mapping[str, str], named: str, transport: str | None) -> None:
    """Checks the paths of a program whose manager was asked over TLS, as `check_secured` does. A
    transport that the user names says that its path is good enough.

    environment: as `on_paths` returns it. named: the server of devices that are named by number.
    """
    if transport_of(transport, environment) != AUTO:
        return
    for name in servers_of(sizes_of(environment).devices) or ("",):
        own = as_only_server(name, environment) if name else credentials_for(named, environment)
        try:
            check_secured(parse_endpoint(own[_SERVER]), own, "the node that was chosen")
        except UnsecuredError as error:
            raise UnsecuredError(f"{error}; {_OR_NAMED}") from None


def _route(name: str, environment: Mapping[str, str], transport: str | None, loud: bool) -> Route:
    own = credentials_for(name, {**_without_route(environment), _SERVER: name})
    try:
        own = carried(on_path(own, name, transport, loud, f"{name}: "))
    except RgpuError as error:
        error.args = (f"server {name}: {error}",)
        raise
    others = filter(None, own.get(PATHS, "").split(";"))
    return Route(name, (own[_SERVER], *others), own.get(AGENT, ""), own.get(TUNNEL, ""))


def _silent(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns `environment` without what is said or written once, for the first route."""
    return {CHOSEN: "", **environment, TEXTFILE: ""}


def _without_route(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in environment.items() if name not in _ONE_ROUTE}


def as_only_server(name: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Returns `environment` as it were if the program had this one server.

    name: "" means the server of RGPU_SERVER.
    """
    if not name:
        return dict(environment)
    own = credentials_for(name, _without_route(environment))
    own[_SERVER] = name
    for line in environment.get(ROUTES, "").splitlines():
        found, agent, tunnel, *uris = line.split(";")
        if found == name and uris:
            own.update({_SERVER: uris[0], PATHS: ";".join(uris[1:]), AGENT: agent, TUNNEL: tunnel})
    return own
