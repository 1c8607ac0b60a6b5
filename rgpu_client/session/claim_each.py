"""The leases of a run on several devices: all of them, or none."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from rgpu_client.device_names import servers_of
from rgpu_client.session.claim import claim, claim_named, let_go, new_key
from rgpu_client.session.routes import as_only_server
from rgpu_client.sizes import sizes_of
from rgpu_common.errors import NoSessionError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rgpu_client.device_names import DeviceName
    from rgpu_client.session.claim import Held, Progress
    from rgpu_common.wire.claim import Place

# Between two servers in whose lines a run waits in turn.
_PAUSE_SECONDS = 0.2


def claim_each(
    environment: Mapping[str, str],
    program: str,
    wait_seconds: float = 0.0,
    progress: Progress | None = None,
) -> list[Held]:
    """Claims a lease on each device that RGPU_DEVICE names: all of them, or none.

    The first lease has the name that RGPU_LEASE gives, or one of its own, and the others the same
    name with .1, .2 and so on behind it. Arguments and errors as `claim`.

    Two runs never wait for each other. At one server, devices are claimed in the order of their
    numbers. A run that waits in line at one server holds no lease at another.
    """
    devices = sizes_of(environment).devices
    if not devices or (len(devices) == 1 and not devices[0].server):
        return [claim(environment, program, wait_seconds, progress)]
    key = environment.get("RGPU_LEASE", "")
    run = _Run(environment, program, key or new_key(), not key, devices, progress)
    until = time.monotonic() + wait_seconds
    held = _claim_all(run, servers_of(devices), until)
    return [held[device] for device in devices]


class _Run(NamedTuple):
    """own: its leases are for this run alone."""

    environment: Mapping[str, str]
    program: str
    key: str
    own: bool
    devices: tuple[DeviceName, ...]
    progress: Progress | None

    def claim_at(self, server: str, until: float | None) -> dict[DeviceName, Held]:
        """Claims the leases at one server: all of them, or none. until: None does not wait."""
        environment = as_only_server(server, self.environment)
        held: dict[DeviceName, Held] = {}
        try:
            for device in sorted(d for d in self.devices if d.server == server):
                left = 0.0 if until is None else max(until - time.monotonic(), 0.0)
                held[device] = claim_named(
                    environment, self.program, self._key_of(device), device.number, left,
                    self._shown(server), self.own,
                )  # fmt: skip
        except NoSessionError as error:
            _release(held)
            if not server:
                raise
            raise NoSessionError(f"server {server}: {error}") from None
        except BaseException:
            _release(held)
            raise
        return held

    def _key_of(self, device: DeviceName) -> str:
        place = self.devices.index(device)
        return f"{self.key}.{place}" if place else self.key

    def _shown(self, server: str) -> Progress | None:
        progress = self.progress
        if progress is None or not server:
            return progress

        def show(place: Place | None) -> None:
            if place is not None:
                place = place._replace(sentence=f"server {server}: {place.sentence}")
            progress(place)

        return show


def _claim_all(run: _Run, servers: Sequence[str], until: float) -> dict[DeviceName, Held]:
    """Claims at all servers. The run waits at the server that refused it last, while it holds
    nothing, and then asks the others.
    """
    order = list(servers)
    held: dict[DeviceName, Held] = {}
    while (refused := _ask_all(run, order, until, held)) is not None:
        order.remove(refused)
        order.insert(0, refused)
        time.sleep(_PAUSE_SECONDS)
    return held


def _ask_all(
    run: _Run, order: Sequence[str], until: float, held: dict[DeviceName, Held]
) -> str | None:
    """Claims at the servers in this order, and waits only at the first. Returns None if `held` has
    all leases, else the server to wait at next; NoSessionError if there is none.
    """
    server = order[0]
    try:
        for server in order:
            held.update(run.claim_at(server, None if held else until))
    except BaseException as error:
        alone = not held
        _release(held)
        held.clear()
        if alone or not isinstance(error, NoSessionError) or time.monotonic() >= until:
            raise
        return server
    return None


def _release(held: Mapping[DeviceName, Held]) -> None:
    for one in held.values():
        let_go(one)
