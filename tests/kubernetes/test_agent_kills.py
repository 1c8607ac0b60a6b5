"""The agent of a GPU node is killed at random points while pods come and go."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from helpers.counts import count
from helpers.gpu_node import SECONDS, GpuNode
from helpers.kube_objects import Space, claim_spec, node
from helpers.kubernetes import ControlPlane
from helpers.waiting import wait_until
from lightkube.resources.core_v1 import Pod
from lightkube.resources.resource_v1 import ResourceClaim

pytestmark = pytest.mark.full

# More by hand: RGPU_KUBERNETES_KILLS=100, and another RGPU_KUBERNETES_SEED.
ROUNDS = count("RGPU_KUBERNETES_KILLS", 2)
SEED = int(os.environ.get("RGPU_KUBERNETES_SEED", "7"))


@contextmanager
def killed(gpu: GpuNode, seconds: float) -> Iterator[None]:
    """Kills the agent so long after the beginning, and starts it again at the end."""
    timer = threading.Timer(seconds, gpu.agent.kill)
    timer.start()
    try:
        yield
        timer.join(SECONDS)
    finally:
        timer.cancel()
        gpu.agent.start()


@pytest.mark.timeout(180 + 40 * ROUNDS)
def test_every_pod_gets_its_lease_and_none_is_left(
    plane: ControlPlane, space: Space, tmp_path: Path
) -> None:
    node(space.client, "client")
    chance = random.Random(SEED)
    with GpuNode(plane, space, tmp_path) as gpu:
        gpu.published()
        for number in range(ROUNDS):
            name = f"pod-{number}"
            with killed(gpu, chance.uniform(0, 1.0)):
                claim = space.claim(name, claim_spec(30, "512Mi"))
                space.pod(name, claim=name)
            assert space.bound(name) == "client"
            assert claim.metadata
            (lease,) = gpu.leases()
            assert lease.request_id == claim.metadata.uid
            told = space.get(Pod, name).metadata.annotations
            assert told["rgpu.dev/lease"] == claim.metadata.uid
            with killed(gpu, chance.uniform(0, 0.5)):
                space.delete(Pod, name)
                space.delete(ResourceClaim, name)
            wait_until(lambda: not gpu.leases(), SECONDS)
            wait_until(lambda name=name: space.get(ResourceClaim, name) is None, SECONDS)
