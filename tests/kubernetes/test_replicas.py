"""Two managers, and none: what a pod gets while they are killed and stopped."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest
from helpers.asking import leases_of
from helpers.command import rgpu_command
from helpers.counts import count
from helpers.kube_deploy import apply
from helpers.kube_objects import Space, card, claim_spec, node, publish
from helpers.kubernetes import ControlPlane
from helpers.ports import free_port
from helpers.replicas import Replicas
from helpers.server import Server
from helpers.waiting import wait_until
from lightkube.resources.core_v1 import Pod
from lightkube.resources.resource_v1 import ResourceClaim

pytestmark = pytest.mark.full

MANAGED = {"labels": {"rgpu.dev/placement": "managed"}}
# More by hand: RGPU_KUBERNETES_KILLS=100, and another RGPU_KUBERNETES_SEED.
ROUNDS = count("RGPU_KUBERNETES_KILLS", 3)
SEED = int(os.environ.get("RGPU_KUBERNETES_SEED", "11"))
# Both cards have room for so many of the smallest claims.
MOST_PODS = 100


@pytest.fixture
def ready(plane: ControlPlane) -> ControlPlane:
    apply(plane.client(), "namespace.yaml", "classes.yaml", "manager-rbac.yaml")
    return plane


@pytest.fixture
def replicas(ready: ControlPlane, tmp_path: Path) -> Iterator[Replicas]:
    yield from running(ready, tmp_path, free_port())


@pytest.fixture
def apart(ready: ControlPlane, tmp_path: Path) -> Iterator[Replicas]:
    """Replicas with an address each, as pods have them."""
    yield from running(ready, tmp_path, free_port(), free_port())


def running(plane: ControlPlane, folder: Path, *ports: int) -> Iterator[Replicas]:
    found = Replicas(plane, folder, *ports)
    yield found
    for one in found.all:
        one.end()
        sys.stderr.write(one.told())


@pytest.fixture
def gpus(replicas: Replicas, space: Space, tmp_path: Path) -> Iterator[list[Server]]:
    """Two GPU nodes with a card each, and a client node."""
    node(space.client, "client")
    with ExitStack() as stack:
        servers = []
        for name in ("gpu7", "gpu8"):
            publish(space.client, name, card("gpu-0"))
            words = ("--join", replicas.address, "--node-name", name, "--no-socket")
            state = ("--state-dir", str(tmp_path / name))
            servers.append(stack.enter_context(Server(*words, *state, device="emulated:16GiB")))
        yield servers


def held(servers: list[Server]) -> list[str]:
    """Returns the requests of all kept leases."""
    return sorted(str(one["key"]) for server in servers for one in leases_of(server.unix))


def has(servers: list[Server], requests: list[str]) -> bool:
    return held(servers) == requests


@pytest.mark.timeout(120 + 40 * ROUNDS)
def test_leaders_are_killed_and_stopped_and_every_pod_gets_its_card(
    replicas: Replicas, gpus: list[Server], space: Space
) -> None:
    chance = random.Random(SEED)
    replicas.led()
    space.template("some", claim_spec(30))
    for number in range(ROUNDS):
        name = f"pod-{number}"
        leader = replicas.led()
        how = chance.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP))
        space.pod(name, template="some", gated=True, metadata=MANAGED)
        leader.signal(how)
        if how is signal.SIGSTOP:
            # For less than its Lease lasts; another test has it stopped for longer.
            leader.signal(signal.SIGCONT)
        else:
            wait_until(leader.ended)
        replicas.restart_ended()
        space.bound(name)
        wants = [space.claim_of(name).metadata.uid]
        wait_until(partial(has, gpus, wants))
        space.delete(Pod, name)
        wait_until(partial(has, gpus, []))


@contextmanager
def arriving(space: Space, made: list[str]) -> Iterator[None]:
    """Makes gated pods all the while, and notes their names."""
    over = threading.Event()

    def make() -> None:
        while not over.wait(0.25) and len(made) < MOST_PODS:
            name = f"pod-{len(made)}"
            space.pod(name, template="some", gated=True, metadata=MANAGED)
            made.append(name)

    with ThreadPoolExecutor(1) as pool:
        work = pool.submit(make)
        try:
            yield
        finally:
            over.set()
            work.result(60)


def test_pods_arrive_while_the_manager_is_upgraded(
    replicas: Replicas, gpus: list[Server], space: Space
) -> None:
    """As Kubernetes upgrades a Deployment: one replica after the other ends, and a new one comes."""
    leader = replicas.led()
    space.template("some", claim_spec(1, "256Mi"))
    made: list[str] = []
    with arriving(space, made):
        for one in (leader, *(one for one in replicas.all if one is not leader)):
            some = min(len(made) + 3, MOST_PODS)
            wait_until(lambda some=some: len(made) >= some)
            one.signal(signal.SIGTERM)
            wait_until(one.ended)
            one.start()
            replicas.led()
    for name in made:
        space.bound(name)
    claims = [space.claim_of(name) for name in made]
    wants = sorted(claim.metadata.uid for claim in claims)
    wait_until(partial(has, gpus, wants))
    assert len(set(wants)) == len(made)
    results = [claim.status.allocation.devices.results for claim in claims]
    assert [len(rows) for rows in results] == [1] * len(made)
    for name in made:
        space.delete(Pod, name)
    wait_until(partial(has, gpus, []))


def test_a_leader_that_was_stopped_for_long_leads_no_more(apart: Replicas, space: Space) -> None:
    first = apart.led()
    first.signal(signal.SIGSTOP)
    wait_until(lambda: apart.leader() not in (None, first))
    second = apart.led()
    first.signal(signal.SIGCONT)
    wait_until(first.ended)
    assert apart.led() is second


def test_without_a_manager_the_scheduler_allocates(ready: ControlPlane, space: Space) -> None:
    node(space.client, "client")
    publish(space.client, "gpu7", card("gpu-0"))
    space.template("some", claim_spec(30))
    words = ("--kubeconfig", str(ready.kubeconfig_file("watchdog")), "--namespace", "rgpu-system")
    watchdog = subprocess.Popen(
        [rgpu_command(), "gate-watchdog", *words, "--seconds", "5"], cwd="/"
    )
    try:
        space.pod("train", template="some", gated=True, metadata=MANAGED)
        assert space.bound("train") == "client"
        claim = space.claim_of("train")
        assert claim.status.allocation.devices.results[0].device == "gpu-0"
        assert isinstance(claim, ResourceClaim)
        # No manager has told the pod its server, so the agent of its GPU node may.
        assert space.get(Pod, "train").metadata.annotations == {"rgpu.dev/agent-tells": "true"}
    finally:
        watchdog.terminate()
        assert watchdog.wait(60) in (-signal.SIGTERM, 0)
