"""`rgpu_client.claim()`: a lease for programs of this process; and coroutines that wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from rgpu_client.argument_words import in_words_of_connect
from rgpu_client.lease import Hold, Lease
from rgpu_client.preload import connect_with, environment_before, seconds_of
from rgpu_client.program_environment import client_environment, library_path, rgpu_variables
from rgpu_client.session.audit import is_loud
from rgpu_client.session.check import Patience, claim_shown
from rgpu_client.session.greeting import program_name
from rgpu_client.session.launch import api_server, carried, same_agent
from rgpu_client.session.start import on_path, same_path
from rgpu_client.settings import DEFAULT_SERVER, ClientSettings
from rgpu_client.threads import in_thread
from rgpu_common.errors import RgpuError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from typing_extensions import Unpack


class Wishes(TypedDict, total=False):
    """What a lease shall be, as arguments. `connect` says what each of them means."""

    memory: str | int | None
    device: int | None
    share: str | float | None
    limit: str | float | None
    tenant: str | None
    lease: str | None
    policy: str | None
    priority: int | None
    weight: int | None
    name: str | None


# Variables of the last path to each server: agents that run for one claim serve the next ones too.
_paths: dict[str, Mapping[str, str]] = {}


def claim(
    server: str | None = None,
    *,
    transport: str | None = None,
    wait: bool | float = False,
    **wishes: Unpack[Wishes],
) -> Lease:
    """Claims a lease for programs that this process starts, and leaves this process as it is.

    Give such a program the variables of `Lease.environment()`:

        with rgpu_client.claim("gpu-node:7700", memory="2GiB") as lease:
            subprocess.run(["python", "train.py"], env=lease.environment(), check=True)

    A process may claim any number of leases. A lease that is not closed ends with this process and
    the programs that use it.

    Args:
        server: the address, as "gpu-node:7700". None: RGPU_SERVER, then 127.0.0.1:7700.
        transport: how to reach it, as for `connect`.
        wait: whether to wait in line if there is no room: True without a limit, a number for so
            many seconds.
        wishes: the sizes of the lease, as for `connect`.

    Raises:
        NoSessionError: the server cannot be reached, or refuses the lease; the sentence says why.
        ServerError: the server does not offer the transport.
        UsageError: a value is not accepted.
        MissingPartError: the package was not built.
    """
    return _claim_with(_settings("claim", server, wishes), transport, wait)


async def claim_async(
    server: str | None = None,
    *,
    transport: str | None = None,
    wait: bool | float = False,
    **wishes: Unpack[Wishes],
) -> Lease:
    """As `claim`, for coroutines. A coroutine that is cancelled leaves the line."""
    settings = _settings("claim_async", server, wishes)
    return await in_thread(
        lambda given_up: _claim_with(settings, transport, wait, given_up), Lease.close
    )


async def connect_async(
    server: str | None = None,
    *,
    transport: str | None = None,
    wait: bool | float = False,
    **wishes: Unpack[Wishes],
) -> Lease:
    """As `connect`, for coroutines. A coroutine that is cancelled leaves the line.

    Other coroutines must not call `connect` or import a CUDA package meanwhile.
    """
    settings = _settings("connect_async", server, wishes)
    return await in_thread(
        lambda given_up: connect_with(settings, transport, wait, given_up), Lease.close
    )


def _settings(function: str, server: str | None, wishes: Wishes) -> ClientSettings:
    """Returns the settings. TypeError, as Python's own, if there is no such argument."""
    unknown = sorted(wishes.keys() - Wishes.__annotations__.keys())
    if unknown:
        there = ", ".join(["server", *Wishes.__annotations__, "transport", "wait"])
        raise TypeError(f"{function}() has no argument {unknown[0]!r}; there are: {there}")
    return ClientSettings(server, **wishes)


def _claim_with(
    settings: ClientSettings,
    transport: str | None,
    wait: bool | float,
    given_up: Callable[[], bool] = bool,
) -> Lease:
    try:
        return _claimed(settings, transport, Patience(seconds_of(wait), given_up))
    except RgpuError as error:
        raise in_words_of_connect(error) from None


def _claimed(settings: ClientSettings, transport: str | None, patience: Patience) -> Lease:
    before = environment_before()
    named = settings.server or before.get("RGPU_SERVER") or str(DEFAULT_SERVER)
    environment = client_environment(before, settings.variables("{}"), library_path())
    known = _paths.get(named, {})
    environment = same_path(environment, named, transport, known) or on_path(
        environment, named, transport, is_loud(environment)
    )
    environment = carried(same_agent(environment, known))
    _paths[named] = rgpu_variables(environment)
    held = claim_shown(environment, program_name(), patience)
    own = "RGPU_LEASE" not in environment
    leased = {**environment, "RGPU_LEASE": held.key}
    return Lease(Hold(held, api_server(environment, named), leased, own))
