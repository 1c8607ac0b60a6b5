"""`rgpu node-plugin` under a kubelet, an API server and agents of the tests."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from helpers import claims
from helpers.claims import NAMESPACE, container, pod, published, uid
from helpers.command import run_rgpu
from helpers.fake_agent import FakeAgent
from helpers.fake_api import FakeApi
from helpers.needs import needs
from helpers.node_plugin import FakeKubelet, NodePlugin
from helpers.short_folder import short_folder
from helpers.waiting import wait_until

from rgpu_cluster.kubelet.claims import ClaimName
from rgpu_cluster.kubelet.credentials import Credential
from rgpu_cluster.kubelet.offers import Offer
from rgpu_cluster.kubelet.preparing import Places, Preparer
from rgpu_cluster.kubelet.shelf import Held, Prepared

# Credentials belong to the users of containers, whom root alone can give files.
pytestmark = needs("root")

FIRST = (NAMESPACE, "claim-1", uid(1))
SECOND = (NAMESPACE, "claim-2", uid(2))


@dataclass
class Node:
    api: FakeApi
    agent: FakeAgent
    plugin: NodePlugin
    kubelet: FakeKubelet

    def begin(self) -> None:
        """Forgets what tests have made of API server and agent."""
        self.agent.begin()
        self.api.begin()
        self.api.put("slices/gpu7-rgpu", published(agent=self.agent.address))
        self.plugin.write_token()

    def has(self, content: Any, *pods: Any) -> None:
        """Makes a claim, and its pods, or the usual one."""
        self.api.put(f"claims/{NAMESPACE}/{content['metadata']['name']}", content)
        for one in pods or (pod(),):
            self.api.put(f"pods/{NAMESPACE}/{one['metadata']['name']}", one)


@contextmanager
def running() -> Iterator[Node]:
    with (
        short_folder() as folder,
        FakeApi() as api,
        FakeAgent() as agent,
        NodePlugin(folder, api.kubeconfig(folder)) as plugin,
        FakeKubelet(plugin) as kubelet,
    ):
        node = Node(api, agent, plugin, kubelet)
        node.begin()
        yield node


@pytest.fixture(scope="module")
def shared() -> Iterator[Node]:
    with running() as node:
        yield node


@pytest.fixture
def node(shared: Node) -> Node:
    """A node on which nothing is prepared."""
    shared.begin()
    assert shared.kubelet.unprepare(FIRST, SECOND) == ["", ""]
    # Until then the claims of the test before may have been renewed.
    shared.begin()
    return shared


@pytest.fixture
def own() -> Iterator[Node]:
    """A node of this test alone, which may stop its plugin."""
    with running() as node:
        yield node


def test_it_registers_as_our_driver(node: Node) -> None:
    info = node.kubelet.register()
    assert (info.type, info.name, [*info.supported_versions]) == (
        "DRAPlugin", "rgpu.dev", ["v1.DRAPlugin"],
    )  # fmt: skip
    node.kubelet.register(error="no such driver is wanted")
    wait_until(lambda: "no such driver is wanted" in node.plugin.told())


def test_a_claim_gives_its_containers_library_credential_and_variables(node: Node) -> None:
    node.has(claims.claim())
    (devices,) = node.kubelet.prepared(FIRST)
    (device,) = devices
    assert [*device.request_names] == ["gpu"]
    assert (device.pool_name, device.device_name, device.share_id) == ("gpu7", "gpu-0", "share-1-0")
    assert [*device.cdi_device_ids] == [f"rgpu.dev/claim={uid()}"]

    spec = node.plugin.spec(uid())
    assert spec
    assert (spec["kind"], spec["cdiVersion"]) == ("rgpu.dev/claim", "0.5.0")
    found = node.plugin.environment_of(uid())
    assert found["RGPU_SERVER"] == "gpu7:7700"
    assert (found["RGPU_LEASE"], found["RGPU_DEVICE"]) == (uid(), "0")
    mounts = {
        m["containerPath"]: m["hostPath"] for m in spec["devices"][0]["containerEdits"]["mounts"]
    }
    assert (Path(mounts["/opt/rgpu.dev/lib"]) / "libcuda.so.1").is_file()
    folder = Path(mounts["/opt/rgpu.dev/credentials"])
    assert (folder / "0").read_text() == f"token-1-of-{uid()}\n"
    assert node.agent.asked == [FIRST]
    assert node.agent.callers == ["Bearer token-of-the-plugin"]


def test_only_the_container_and_root_can_read_a_credential(node: Node) -> None:
    user = 12345
    node.has(claims.claim(), pod("pod-1", container(user=user)))
    node.kubelet.prepared(FIRST)
    folder = node.plugin.state / uid() / "credentials"
    for path, mode in ((node.plugin.state, 0o700), (folder, 0o555), (folder / "0", 0o400)):
        assert stat.S_IMODE(path.stat().st_mode) == mode, path
    assert (folder.stat().st_uid, (folder / "0").stat().st_uid) == (user, user)
    # No variable has the token, because everybody on the node can read the specification.
    assert "token-1" not in str(node.plugin.spec(uid()))
    assert "token-1" not in (node.plugin.state / uid() / "claim.json").read_text()
    assert "token-1" not in node.plugin.told()


def test_a_claim_may_be_prepared_again_and_unprepared_again(node: Node) -> None:
    node.has(claims.claim())
    once, again = node.kubelet.prepared(FIRST), node.kubelet.prepared(FIRST)
    assert once == again
    assert node.plugin.token(uid()) == f"token-2-of-{uid()}"
    assert node.kubelet.unprepare(FIRST) == [""]
    assert node.plugin.spec(uid()) is None
    assert [*node.plugin.state.iterdir()] == []
    assert node.kubelet.unprepare(FIRST) == [""]


def test_several_claims_of_a_pod_each_have_their_own_credential(node: Node) -> None:
    both = pod("pod-1", container("a", "one"), container("b", "two"), claims={"one": 1, "two": 2})
    node.has(claims.claim(1), both)
    node.has(claims.claim(2), both)
    node.kubelet.prepared(FIRST, SECOND)
    for number in (1, 2):
        assert node.plugin.token(uid(number)).endswith(f"-of-{uid(number)}")
        assert node.plugin.environment_of(uid(number))["RGPU_LEASE"] == uid(number)
    assert node.kubelet.unprepare(FIRST) == [""]
    assert node.plugin.spec(uid(1)) is None
    assert node.plugin.spec(uid(2))


def test_one_claim_that_fails_keeps_no_other_from_its_pod(node: Node) -> None:
    node.has(claims.claim(1))
    good, bad = node.kubelet.prepare(FIRST, SECOND)
    assert good.error == ""
    assert "there is no claim team-a/claim-2 any more" in bad.error
    assert node.plugin.spec(uid(2)) is None


def test_a_container_with_two_claims_is_refused(node: Node) -> None:
    both = pod("pod-1", container("a", "one", "two"), claims={"one": 1, "two": 2})
    node.has(claims.claim(1), both)
    node.has(claims.claim(2), both)
    answers = node.kubelet.prepare(FIRST, SECOND)
    assert all("ask for all of its cards in one claim" in one.error for one in answers)


def test_cards_of_two_nodes(node: Node) -> None:
    with FakeAgent("gpu8:7700") as other:
        node.api.put("slices/gpu8-rgpu", published("gpu8", other.address))
        node.has(claims.claim(1, "gpu:gpu7/gpu-0", "gpu:gpu8/gpu-2"))
        (devices,) = node.kubelet.prepared(FIRST)
    assert [[*one.cdi_device_ids] for one in devices] == [[f"rgpu.dev/claim={uid()}"], []]
    found = node.plugin.environment_of(uid())
    assert found["RGPU_DEVICE"] == "0@gpu7:7700,2@gpu8:7700"
    assert found["RGPU_TOKEN_FILES"].count("/opt/rgpu.dev/credentials/") == 2
    assert node.plugin.token(uid(), 0) == node.plugin.token(uid(), 1) == f"token-1-of-{uid()}"


def test_requests_of_a_claim_for_two_containers(node: Node) -> None:
    users = pod("pod-1", container("a", "gpu/a"), container("b", "gpu/b"))
    node.has(claims.claim(1, "a:gpu7/gpu-0", "b:gpu7/gpu-1"), users)
    (devices,) = node.kubelet.prepared(FIRST)
    ids = {one.request_names[0]: [*one.cdi_device_ids] for one in devices}
    assert ids == {name: [f"rgpu.dev/claim={uid()}.{name}"] for name in ("a", "b")}
    assert node.plugin.environment_of(uid(), "b")["RGPU_DEVICE"] == "1"


def test_a_credential_is_renewed_where_the_containers_see_it(node: Node) -> None:
    node.agent.seconds = 4
    node.has(claims.claim())
    node.kubelet.prepared(FIRST)
    # A mount shows what an open descriptor of the folder shows.
    folder = os.open(node.plugin.state / uid() / "credentials", os.O_PATH)
    try:
        path = Path(f"/proc/self/fd/{folder}/0")
        wait_until(lambda: "token-1" not in path.read_text())
    finally:
        os.close(folder)


@pytest.mark.asyncio
async def test_the_credential_of_one_node_is_renewed_and_that_of_another_stays() -> None:
    claim = ClaimName(*FIRST)
    held = [Held(pool, "agent", 0.0, Credential(f"old {pool}", 1.0, "", "", "")) for pool in "ab"]
    kept = {claim.uid: Prepared(claim, 0, tuple(held))}
    put: list[Prepared] = []

    async def credential(pool: str, _agent: str, _claim: ClaimName) -> Credential:
        return Credential(f"new {pool}", 2.0, "", "", "")

    async def offer(_pool: str) -> Offer:
        return Offer(agent="agent")

    store: Any = SimpleNamespace(shelf=SimpleNamespace(read=lambda: kept), put=put.append)
    cluster: Any = SimpleNamespace(offer=offer)
    agents: Any = SimpleNamespace(credential=credential)
    await Preparer(Places("node", "", store), cluster, agents).renew(claim.uid, "b")
    assert [one.credential.token for one in put[0].held] == ["old a", "new b"]
    assert kept[claim.uid] == put[0]


def test_what_is_prepared_outlives_the_plugin_and_is_renewed(own: Node) -> None:
    own.agent.seconds = 1
    own.has(claims.claim())
    own.kubelet.prepared(FIRST)
    before = own.plugin.spec(uid())
    own.plugin.kill()
    assert own.plugin.socket.exists()
    token = own.plugin.token(uid())  # perhaps one that was renewed before the end
    own.agent.seconds = 3600
    own.plugin.start()
    assert own.plugin.spec(uid()) == before
    wait_until(lambda: own.plugin.token(uid()) != token)
    assert own.kubelet.unprepare(FIRST) == [""]
    assert own.plugin.spec(uid()) is None


def test_the_kubelet_does_not_see_a_plugin_that_has_ended(own: Node) -> None:
    own.plugin.stop()
    assert not own.plugin.socket.exists()


def test_a_second_plugin_does_not_take_the_socket(node: Node) -> None:
    done = run_rgpu(
        "node-plugin", "--kubelet-dir", str(node.plugin.kubelet), "--state", str(node.plugin.state),
        "--cdi-dir", str(node.plugin.cdi), "--library", str(node.plugin.folder / "lib"),
        "--kubeconfig", str(node.plugin.folder / "kubeconfig"),
    )  # fmt: skip
    assert done.returncode == 1
    assert "another process serves at" in done.stderr
    node.kubelet.register()


def test_what_is_broken_in_its_folder_does_not_keep_it_from_starting(own: Node) -> None:
    own.has(claims.claim())
    own.kubelet.prepared(FIRST)
    own.plugin.stop()
    (own.plugin.state / uid() / "claim.json").write_text("{")
    (own.plugin.state / "stray").mkdir()
    own.plugin.start()
    assert "what is prepared of claim" in own.plugin.told()
    own.kubelet.prepared(FIRST)


def test_everything_is_removed_from_a_node_that_loses_the_plugin(own: Node) -> None:
    own.has(claims.claim())
    own.kubelet.prepared(FIRST)
    own.plugin.stop()
    with own.plugin.closing() as closing:
        assert "this node had 1 prepared claim;" in closing.told()
        assert [*closing.state.iterdir()] == []
        assert [*closing.cdi.iterdir()] == []
        with FakeKubelet(closing) as kubelet:
            kubelet.register()
            assert kubelet.unprepare(FIRST, SECOND) == ["", ""]
            assert "without --unprepare-all" in kubelet.refused(FIRST)


REFUSED = grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda node: node.api.remove("slices/gpu7-rgpu"), "whether `rgpu agent-node` runs there"),
        (lambda node: node.api.put("slices/gpu7-rgpu", published(agent="")), "start `rgpu agent-node` there with --listen"),
        (lambda node: node.api.put("slices/gpu7-rgpu", published(agent="127.0.0.1:1")), "NetworkPolicy"),
        (lambda node: node.api.put("slices/gpu7-rgpu", published(agent="a b")), "cannot be asked"),
        (lambda node: node.api.put("slices/gpu7-rgpu", published(agent="unix:/run/some.sock")), "not at HOST:PORT"),
        (lambda node: node.api.put("slices/gpu7-rgpu", published(agent="ucx:gpu7:7720")), "not at HOST:PORT"),
        (lambda node: setattr(node.agent, "refuses", (REFUSED, "no pod is here")), "no pod is here"),
        (lambda node: setattr(node.agent, "server", "x y"), "a credential without use"),
        (lambda node: setattr(node.agent, "lease", "a b"), "install the same release"),
        (lambda node: node.plugin.token_file.unlink(), "mount a ServiceAccount token"),
        (lambda node: setattr(node.api, "code", 403), "the right get on resourceclaims"),
        (lambda node: setattr(node.api, "code", 503), "it is asked again"),
        (lambda node: node.has(claims.claim(users=("gone",))), "no pod on node client-1"),
    ],
)  # fmt: skip
def test_a_claim_that_cannot_be_prepared_says_what_to_do(
    node: Node, change: Any, says: str
) -> None:
    node.has(claims.claim())
    change(node)
    sentence = node.kubelet.refused(FIRST)
    assert says in sentence
    assert "\n" not in sentence
    assert node.plugin.spec(uid()) is None
    assert not (node.plugin.state / uid()).exists()


def test_pods_with_their_own_tokens_need_no_credential(node: Node) -> None:
    node.api.put("slices/gpu7-rgpu", published(agent=""))
    env = [{"name": "RGPU_TOKEN_FILE", "value": "/var/run/secrets/rgpu.dev/token"}]
    node.has(claims.claim(), pod("pod-1", container(env=env)))
    node.kubelet.prepared(FIRST)
    found = node.plugin.environment_of(uid())
    assert (found["RGPU_SERVER"], found["RGPU_LEASE"]) == ("gpu7:7700", uid())
    assert "RGPU_TOKEN_FILE" not in found
    assert node.agent.asked == []


@pytest.mark.parametrize("name", ["FAILED_PRECONDITION", "RESOURCE_EXHAUSTED"])
def test_a_lease_that_is_there_soon_is_waited_for(node: Node, name: str) -> None:
    node.has(claims.claim())
    node.agent.refuses = (grpc.StatusCode[name], "ask again")
    node.agent.refuses_first = 2
    node.kubelet.prepared(FIRST)
    assert len(node.agent.asked) == 3


def test_a_uid_that_is_a_path(node: Node) -> None:
    node.has(claims.claim())
    evil = (NAMESPACE, "claim-1", "../../evil")
    assert "is no UID" in node.kubelet.refused(evil)
    assert "is no UID" in node.kubelet.unprepare(evil)[0]


def test_a_state_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run_rgpu(
        "node-plugin", "--state", str(tmp_path / "file" / "claims"), "--cdi-dir", str(tmp_path),
        "--library", str(tmp_path),
    )  # fmt: skip
    assert done.returncode == 1
    assert "name other folders with --state" in done.stderr
