"""Who may join a manager, and who may ask it: access tokens and certificates, as servers have them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from queue import Queue

import grpc
import pytest
from helpers import pki
from helpers.command import run_rgpu, run_rgpu_plain
from helpers.manager import ManagerProcess, node
from helpers.nodes import ended, started, where
from helpers.server import Server
from helpers.waiting import wait_until

ALWAYS = '[identity]\nrequire = "always"\noperators = ["root"]\n'
NAMES = ("alice", "bob", "root", "nodes", "nodes:gpu1")


class Guarded:
    """A manager that asks everybody for a token. of: tenant -> its token."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        tokens = folder / "tokens.toml"
        self.of = {
            name: run_rgpu("token", "new", name, "--tokens", str(tokens)).stdout.split()[0]
            for name in NAMES
        }
        config = folder / "rgpu.toml"
        config.write_text(ALWAYS)
        self.options = ("--tokens", str(tokens), "--config", str(config))
        self.servers: dict[str, Server] = {}
        self._folder = folder
        self._stack = stack
        self.manager = stack.enter_context(
            ManagerProcess(*self.options, RGPU_TOKEN=self.of["root"])
        )

    def node(self, name: str, tenant: str) -> Server:
        """Starts a server that shows the token of a tenant to the manager."""
        token = self._folder / f"token-{len(list(self._folder.iterdir()))}"
        token.write_text(self.of.get(tenant, tenant) + "\n")
        token.chmod(0o600)
        server = self._stack.enter_context(
            node(
                self.manager.address, name, token.with_suffix(".state"), *self.options,
                "--join-token", str(token),
            )
        )  # fmt: skip
        self.servers.setdefault(name, server)  # a stranger may call itself as the first one
        return server

    def ask(self, tenant: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs a command with the token of a tenant."""
        shown = {"RGPU_TOKEN": self.of[tenant]} if tenant else {}
        return run_rgpu_plain(*words, "--manager", self.manager.address, **shown)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with ExitStack() as stack:
        found = Guarded(tmp_path_factory.mktemp("guarded"), stack)
        found.node("gpu1", "nodes:gpu1")
        found.manager.has("gpu1")
        yield found


def test_a_stranger_learns_nothing(guarded: Guarded) -> None:
    for words in (("pool",), ("explain", "run-" + "0" * 32)):
        done = guarded.ask("", *words)
        assert done.returncode != 0
        assert done.stdout == ""
        assert "token" in done.stderr
    done = run_rgpu_plain(
        "pool", "--manager", guarded.manager.address, RGPU_TOKEN="rgpu_" + "0" * 40
    )
    assert "not valid here" in done.stderr


def test_what_a_node_refuses_is_said_with_its_name(guarded: Guarded) -> None:
    """The caller has named the node, and asked by the manager."""
    for order in ("drain", "undrain"):
        said = guarded.ask("alice", order, "gpu1").stderr
        assert said.startswith(f"rgpu: node gpu1: only an operator may {order} the server: use the")
        assert "a tenant in identity.operators of this server's configuration" in said


@pytest.mark.full
def test_each_tenant_sees_its_own_requests_only(guarded: Guarded) -> None:
    address, of = guarded.manager.address, guarded.of
    with started(address, "-v", "--share", "90%", RGPU_TOKEN=of["alice"]) as hers:
        _, request = where(hers)
        with started(address, "--share", "50%", "--wait", RGPU_TOKEN=of["bob"]) as his:
            wait_until(lambda: bool(guarded.manager.pool()["waiting"]))
            (waiting,) = guarded.manager.pool()["waiting"]
            for tenant, theirs in (("bob", request), ("alice", waiting["request_id"])):
                done = guarded.ask(tenant, "explain", theirs)
                assert "the manager knows no request" in done.stderr
            for tenant in ("alice", "root"):
                assert (
                    f"request {request}: placed" in guarded.ask(tenant, "explain", request).stdout
                )
            shown = guarded.ask("bob", "pool").stdout
            assert request not in shown
            assert "1 of others" in shown
            assert "in line: 1 request of other tenants" in guarded.ask("alice", "pool").stdout
            assert request[:12] not in guarded.ask("bob", "pool", "--events").stdout
            assert request[:12] in guarded.ask("alice", "pool", "--events").stdout
            assert ended(hers)[0] == 0
            assert ended(his)[0] == 0
    # A lease ends a little later than its run, and the next tests count them.
    wait_until(lambda: not guarded.manager.leases())


def test_nobody_asks_for_another_tenant(guarded: Guarded) -> None:
    done = run_rgpu_plain(
        "run", "--manager", guarded.manager.address, "--tenant", "bob", "--", "true",
        RGPU_TOKEN=guarded.of["alice"],
    )  # fmt: skip
    assert done.returncode != 0
    assert "cannot ask for tenant 'bob'" in done.stderr


def test_nobody_gets_past_the_manager_at_its_nodes(guarded: Guarded) -> None:
    """Otherwise a quota of the manager would bind only those who ask the manager."""
    server = guarded.servers["gpu1"].tcp
    alice, root = ({"RGPU_TOKEN": guarded.of[tenant]} for tenant in ("alice", "root"))
    done = run_rgpu_plain("run", "--server", server, "--share", "90%", "--", "true", **alice)
    assert done.returncode != 0
    assert "ask the manager with `rgpu run --manager`" in done.stderr
    small = ("--share", "20%", "--memory", "64MiB")
    done = run_rgpu_plain("lease", "grant", "mine", "--server", server, *small, **alice)
    assert "ask the manager with `rgpu run --manager`" in done.stderr
    with started(guarded.manager.address, "-v", *small, **alice) as run:
        where(run)
        leases = json.loads(
            run_rgpu_plain("lease", "list", "--server", server, "--json", **alice).stdout
        )["leases"]
        (lease,) = (one["lease_id"] for one in leases)
        resize = ("lease", "resize", lease, "--server", server, "--share")
        done = run_rgpu_plain(*resize, "90%", **alice)
        assert done.returncode != 0
        assert "a lease grows only for the manager or an operator" in done.stderr
        assert run_rgpu_plain(*resize, "10%", **alice).returncode == 0
        assert run_rgpu_plain(*resize, "90%", **root).returncode == 0
        assert ended(run)[0] == 0


@pytest.mark.parametrize(
    ("name", "tenant", "sentence"),
    [
        ("gpu2", "alice", "tenant 'alice' may add no node: make an access token"),
        ("gpu3", "nodes:gpu1", "may not add the node gpu3"),
        ("gpu4", "rgpu_" + "0" * 40, "not valid here"),
        ("gpu1", "nodes", "another server is node gpu1 here"),
    ],
)
def test_a_stranger_cannot_join(guarded: Guarded, name: str, tenant: str, sentence: str) -> None:
    server = guarded.node(name, tenant)
    try:
        wait_until(lambda: any(sentence in line for line in server.log))
        assert {one["name"] for one in guarded.manager.pool()["nodes"]} == {"gpu1"}
    finally:
        server.stop()  # what it goes on to try counts against this address


@pytest.mark.full
def test_a_token_for_all_nodes_lets_any_node_in(guarded: Guarded) -> None:
    server = guarded.node("gpu9", "nodes")
    guarded.manager.has("gpu1", "gpu9")
    server.stop()
    wait_until(lambda: guarded.manager.connected() == {"gpu1"})
    wait_until(lambda: len(guarded.manager.pool()["nodes"]) == 1, 60)


def called(guarded: Guarded, tenant: str, *messages: bytes | None) -> grpc.RpcError:
    """Calls a method with these messages, None at the end: no more; returns the error."""
    said: Queue[bytes | None] = Queue()
    for message in messages:
        said.put(message)
    shown = [("authorization", f"Bearer {guarded.of[tenant]}")] if tenant else []
    with grpc.insecure_channel(guarded.manager.address) as channel:
        method = channel.stream_unary("/rgpu.v1.ManagerService/GetPool")
        with pytest.raises(grpc.RpcError) as refused:
            method(iter(said.get, None), timeout=60, metadata=shown)
        said.put(None)
    return refused.value


def test_a_stranger_is_refused_before_its_message_is_read(guarded: Guarded) -> None:
    """Otherwise it could have the manager keep the beginnings of very many messages."""
    error = called(guarded, "")
    assert error.code() is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.full
def test_a_call_whose_message_never_comes_is_ended(guarded: Guarded) -> None:
    error = called(guarded, "alice")
    assert "the message of the call did not come within 10 s" in error.details()
    assert called(guarded, "alice", None).details() == "the call has no message"


# Certificates


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ManagerProcess]:
    """A manager that takes certificates; a node has one too."""
    folder = tmp_path_factory.mktemp("secured")
    config = folder / "rgpu.toml"
    config.write_text(
        pki.config(more="require_client_cert = true")
        + '[nodes]\ntenant = "bob"\n'
        + ALWAYS.replace("root", "bob")
    )
    options = ("--config", str(config))
    with (
        ManagerProcess(*options, scheme="tls:", **pki.client("bob")) as manager,
        node(manager.address, "gpu1", folder / "state", **pki.client("bob")),
    ):
        manager.has("gpu1")
        yield manager


def test_a_certificate_names_the_tenant(secured: ManagerProcess) -> None:
    with started(secured.address, "-v", "--memory", "64MiB", **pki.client("alice")) as run:
        _, request = where(run)
        held = [lease for one in secured.pool()["nodes"] for lease in one["cards"][0]["leases"]]
        assert [(lease["request_id"], lease["tenant"]) for lease in held] == [(request, "alice")]
        assert ended(run)[0] == 0


@pytest.mark.parametrize(
    "certificate",
    ["", "expired-alice", "as-server-alice", "nul", "newline", "two-names", "stranger/alice"],
)
def test_a_bad_certificate_is_nobodys(secured: ManagerProcess, certificate: str) -> None:
    done = run_rgpu_plain("pool", "--manager", secured.address, **pki.client(certificate))
    assert done.returncode != 0
    assert done.stdout == ""
    assert done.stderr.startswith("rgpu: ")


def test_a_manager_with_another_authority_is_not_believed(secured: ManagerProcess) -> None:
    shown = pki.client("alice", ca="stranger/ca")
    done = run_rgpu_plain("pool", "--manager", secured.address, **shown)
    assert done.returncode != 0
    assert done.stdout == ""


def test_a_manager_takes_a_new_certificate_without_a_restart(tmp_path: Path) -> None:
    """The node that has joined stays, and newcomers see the new certificate."""
    mounted = pki.Mounted(tmp_path, "server")
    options = ("--insecure", *mounted.options())
    with (
        ManagerProcess(*options, scheme="tls:", **pki.client()) as manager,
        node(manager.address, "gpu1", tmp_path / "state", **pki.client()) as server,
    ):
        manager.has("gpu1")

        def asked(**shown: str) -> subprocess.CompletedProcess[str]:
            return run_rgpu_plain("pool", "--manager", manager.address, **shown)

        mounted.put("stranger/server")
        done = asked(**pki.client())
        assert "is not trusted" in done.stderr
        assert "name the authority that signed it in RGPU_TLS_CA" in done.stderr
        done = asked(**pki.client(ca="stranger/ca"))
        assert "gpu1" in done.stdout, done.stderr
        mounted.put("expired-server")
        assert "has expired: its operator has to renew it" in asked(**pki.client()).stderr
        mounted.put("elsewhere")
        done = asked(**pki.client())
        assert "is for another name" in done.stderr
        assert "gpu1" in asked(**pki.client(), RGPU_TLS_NAME="gpu.example").stdout
        assert not [line for line in server.log if "rgpu.agent" in line and "WARNING" in line]


def test_a_node_says_why_it_does_not_believe_its_manager(tmp_path: Path) -> None:
    mounted = pki.Mounted(tmp_path, "stranger/server")
    file = tmp_path / "ca.pem"
    shown = {"RGPU_TLS_CA": str(file)}
    with (
        ManagerProcess("--insecure", *mounted.options(), scheme="tls:", **pki.client()) as manager,
        node(manager.address, "gpu1", tmp_path / "state", **shown) as server,
    ):

        def says(text: str) -> None:
            wait_until(lambda: any(text in line for line in server.log))

        says(f"{file} (RGPU_TLS_CA) cannot be read")
        file.write_bytes((pki.folder() / "ca.pem").read_bytes())
        says("is not trusted (unable to get local issuer certificate): name the authority")
        mounted.put("server")
        manager.has("gpu1")


def test_certificates_are_asked_of_all_or_of_none(tmp_path: Path) -> None:
    config = tmp_path / "rgpu.toml"
    config.write_text(pki.config())
    done = run_rgpu_plain("manager", "--listen", "tls:127.0.0.1:0", "--config", str(config))
    assert done.returncode != 0
    assert "set tls.require_client_cert = true" in done.stderr


@pytest.mark.full
def test_a_manager_for_other_machines_needs_to_know_who_asks(tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    if os.geteuid() == 0 and Path("/etc/rgpu/tokens.toml").exists():
        pytest.skip("this machine has a tokens file")
    done = run_rgpu_plain("manager", "--listen", "0.0.0.0:0", **environment)
    assert done.returncode != 0
    assert "make access tokens" in done.stderr
