"""Tenants that open and close leases to lose their debt: the debt stays with the tenant."""

from __future__ import annotations

import pytest
from helpers.figures import figures
from helpers.server import Server

from quota.tenant import MS, Run, Tenant, overlap, tenants, union
from rgpu_server.core.model import PPM
from rgpu_server.core.tokens import actions as do
from rgpu_server.core.tokens import events as on
from rgpu_server.core.tokens.scheduler import TokenScheduler
from rgpu_server.core.tokens.share import Share

pytestmark = pytest.mark.measures

MIB = 1 << 20
LONG = 60 * MS


class Device:
    """A scheduler, and a device on which every grant runs kernels of a set length."""

    def __init__(self) -> None:
        self.tokens = TokenScheduler()
        self.now = 0
        self.served: dict[str, int] = {}
        self.holder: do.Grant | do.Extend | None = None

    def say(self, event: on.Event) -> None:
        for action in self.tokens.handle(event, self.now):
            if isinstance(action, do.Grant | do.Extend):
                self.holder = action

    def run(self, ns: int, empty: bool = False) -> None:
        """The holder has the device for `ns` and wants it again, or not."""
        holder, self.holder = self.holder, None
        assert holder is not None
        self.now += ns
        self.served[holder.lease] = self.served.get(holder.lease, 0) + ns
        self.say(on.Returned(holder.lease, holder.gen, ns, ns, empty))


@pytest.mark.parametrize("stay", [False, True])
@pytest.mark.parametrize("ppm", [0, 100_000])
def test_new_leases_of_one_tenant_do_not_begin_anew(ppm: int, stay: bool) -> None:
    """All leases of tenant `a` together get what one lease would get, and one kernel more. With a
    request of 10 % that is 10 %, without a request the floor.
    """
    device = Device()
    device.say(on.Joined("victim", Share(PPM - ppm, PPM), "v"))
    device.say(on.Woke("victim"))
    for number in range(200):
        lease = f"lease-{number}"
        stays = stay and ppm == 0  # the requests of those that stay would not fit
        device.say(on.Joined(lease, Share(ppm, PPM), "a"))
        device.say(on.Woke(lease))
        while device.holder is not None and device.holder.lease == "victim":
            device.run(10 * MS)
            if device.now > (number + 1) * 100 * MS:
                break
        if device.holder is not None and device.holder.lease != "victim":
            device.run(LONG, empty=True)
        if not stays:
            device.say(on.Left(lease))
    victim = device.served.pop("victim")
    taken = sum(device.served.values())
    assert taken <= (ppm / PPM + 0.006) * (victim + taken) + LONG
    assert taken > 0


def test_a_storm_of_leases_gets_one_share(server: Server) -> None:
    """Best-effort leases with kernels of 60 ms, a new one as soon as the last is through."""
    taken: list[Run] = []
    with tenants(
        server, {"lease_key": "v", "share_request_ppm": 900_000, "memory_bytes": 64 * MIB}
    ) as (victim,):
        for _ in range(600):
            victim.hold(2 * MS)
        sessions: list[Tenant] = []
        try:
            for number in range(12):
                storm = Tenant(
                    server, lease_key=f"storm-{number}", tenant="storm", memory_bytes=8 * MIB
                )
                sessions.append(storm)
                storm.load()
                storm.hold(LONG)
            ours = victim.runs()
            for storm in sessions:
                taken += storm.runs()
        finally:
            for storm in sessions:
                storm.close()
    begin, end = ours[0].begin, ours[-1].end
    assert overlap(ours, taken) == 0
    # The surplus of the victim's 90 % is lent; the rest of each kernel is what cannot be cut.
    with figures():
        assert union(taken, begin, end) <= 0.3 * (end - begin) + 2 * LONG
