"""Commands at a server, or a manager, that puts into every text what would move a terminal's
cursor, clear it, or change its title.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping
from concurrent import futures
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor
from helpers import clients, pki
from helpers.command import run_rgpu_plain as rgpu

import rgpu_client
from rgpu_client.cluster.asking import ManagerClient
from rgpu_client.cluster.servers import Server, Servers
from rgpu_client.control import ControlClient
from rgpu_client.settings import SILENT_REMEDY
from rgpu_cluster.core.limits import Limits
from rgpu_cluster.core.node import MAX_CARDS_PER_NODE
from rgpu_common.clusters import MAX_MESSAGE_BYTES, MAX_NAME
from rgpu_common.endpoints import parse_endpoint
from rgpu_common.v1 import agent_pb2, cluster_pb2

for module in ("cluster", "device", "lease", "log", "node", "observe", "session"):
    import_module(f"rgpu_common.v1.{module}_pb2")

EVIL = "\x1b[2J\x1b]0;title\x07\nrow"
# Also what is no time, and what no release calls anything.
NUMBERS = {
    FieldDescriptor.TYPE_UINT64: 7,
    FieldDescriptor.TYPE_UINT32: 7,
    FieldDescriptor.TYPE_ENUM: 99,
    FieldDescriptor.TYPE_DOUBLE: 1e300,
    FieldDescriptor.TYPE_BOOL: True,
}
LARGE = {
    FieldDescriptor.TYPE_UINT64: 1 << 62,
    FieldDescriptor.TYPE_UINT32: (1 << 32) - 1,
}
COMMANDS = (
    "devices", "ps", "top --once", "lease list", "lease grant key", "lease pause key",
    "lease resize key --memory 1MiB", "logs", "logs key", "tenants", "quota report --since 5s",
    "drain", "undrain", "pool", "pool --events", "explain key", "release key", "reserve --for 1h",
    "doctor", "ps --all", "cancel key",
)  # fmt: skip


def filled(
    message: Any, depth: int = 0, text: str = EVIL, numbers: Mapping[int, Any] = NUMBERS
) -> Any:
    """Sets every field of a message, those of its messages too."""
    for field in message.DESCRIPTOR.fields:
        repeated = hasattr(getattr(message, field.name), "append")
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            if field.message_type.GetOptions().map_entry or depth == 3:
                continue
            part = getattr(message, field.name)
            filled(part.add() if repeated else part, depth + 1, text, numbers)
            if not repeated:
                part.SetInParent()
            continue
        value = text if field.type == FieldDescriptor.TYPE_STRING else numbers.get(field.type)
        if value is not None and repeated:
            getattr(message, field.name).append(value)
        elif value is not None:
            setattr(message, field.name, value)
    return message


class Hostile(grpc.GenericRpcHandler):
    """Answers every method, or refuses it, with such texts."""

    def __init__(self, refuses: bool) -> None:
        self._refuses = refuses
        self.address = ""

    def service(self, details: Any) -> grpc.RpcMethodHandler | None:
        service, _, name = details.method.strip("/").rpartition("/")
        method = descriptor_pool.Default().FindServiceByName(service).FindMethodByName(name)
        if method.server_streaming:
            return None
        answer = message_factory.GetMessageClass(method.output_type)

        def call(request: bytes, context: grpc.ServicerContext) -> Any:
            if self._refuses:
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"no: {EVIL}")
            found = filled(answer())
            if name == "GetPool":
                found.nodes[0].address = self.address
            return found

        return grpc.unary_unary_rpc_method_handler(
            call, response_serializer=lambda message: message.SerializeToString()
        )


@pytest.fixture(scope="module", params=[False, True], ids=["answers", "refuses"])
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    pool = futures.ThreadPoolExecutor(2)
    server = grpc.server(pool)
    hostile = Hostile(request.param)
    server.add_generic_rpc_handlers((hostile,))
    hostile.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    yield hostile.address
    server.stop(None).wait()
    pool.shutdown()


@pytest.mark.parametrize("named", [True, False], ids=["server", "cluster"])
@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_prints_what_a_terminal_would_act_on(
    address: str, command: str, named: bool
) -> None:
    done = rgpu(*command.split(), RGPU_SERVER=address if named else "", RGPU_MANAGER=address)
    said = done.stdout + done.stderr
    assert "Traceback" not in said
    assert said
    assert not {c for c in said if not c.isprintable()} - {"\n"}


def test_a_server_that_never_answers_is_named_with_what_to_look_at() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with ControlClient(parse_endpoint(f"127.0.0.1:{port}"), 0.5) as client:
            sentence = f"127.0.0.1:{port} did not answer within 0.5 s{SILENT_REMEDY}"
            with pytest.raises(rgpu_client.ServerError, match=sentence):
                client.devices()


def test_a_silent_server_and_a_silent_manager_are_given_up_after_one_time() -> None:
    """By all commands: what listens there takes connections and never says anything."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        commands = [
            ("ps", "--server", address), ("run", "--server", address, "--", "true"),
            ("pool", "--manager", address), ("run", "--manager", address, "--", "true"),
            ("reserve", "--manager", address, "--for", "1h"),
        ]  # fmt: skip
        with futures.ThreadPoolExecutor(len(commands)) as together:
            done = list(together.map(lambda words: rgpu(*words), commands))
    for words, one in zip(commands, done, strict=True):
        who = "server" if "--server" in words else "manager"
        said = one.stderr.splitlines()
        # Who reads it may sit at a laptop, and read no server's log.
        assert said[-1] == (
            f"rgpu: the {who} at {address} did not answer within 15 s: it is overloaded, or another "
            "program listens there; try `rgpu doctor`, and have its operator look at its log"
        )
        assert all(address in line for line in said)


@pytest.mark.parametrize("address", [False], indirect=True)
def test_hundreds_of_silent_nodes_have_one_time_together(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """And keep no node that answers from being asked, here the last of them."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        where = f"127.0.0.1:{silent.getsockname()[1]}"
        nodes = [Server(where, f"gpu{number}") for number in range(300)]
        servers = Servers("manager", (*nodes, Server(address, "last")), whole=True)
        answers = servers.ask(lambda client: client.devices(), seconds=6.0)
    assert [server.node for server, _ in answers] == ["last"]
    assert answers.complain() == 1
    said = capsys.readouterr().err.splitlines()
    assert sorted(said) == sorted(
        f"rgpu: node {one.node}: the server at {where} did not answer within the 6 s that all nodes "
        f"have together{SILENT_REMEDY}"
        for one in nodes
    )


@pytest.mark.parametrize("address", [True], indirect=True)
def test_an_error_of_the_python_api_is_one_line(address: str) -> None:
    with pytest.raises(rgpu_client.ServerError, match="no: ") as caught:
        rgpu_client.devices(address)
    assert str(caught.value).isprintable()


def test_a_full_line_of_long_names_keeps_no_command_from_the_pool() -> None:
    """Else tenants could keep operators from `rgpu drain NODE` and `rgpu cancel`."""
    word = "\U0001d518" * MAX_NAME
    one = cluster_pb2.PoolWaiting(
        request_id="r" * 64, tenant="t" * 64, asked=word, sentence=3 * word, name=word, gang=word
    )
    answer = cluster_pb2.GetPoolResponse(waiting=[one] * Limits().line)
    handler = grpc.method_handlers_generic_handler(
        "rgpu.v1.ManagerService",
        {
            "GetPool": grpc.unary_unary_rpc_method_handler(
                lambda _request, _context: answer.SerializeToString()
            )
        },
    )
    pool = futures.ThreadPoolExecutor(1)
    server = grpc.server(pool)
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with ManagerClient(parse_endpoint(f"127.0.0.1:{port}")) as client:
        assert len(client.pool().waiting) == Limits().line
    server.stop(None).wait()
    pool.shutdown()


def test_a_full_report_of_long_names_fits_into_a_message() -> None:
    lease = filled(agent_pb2.HeldLease(), 0, "a" * 64, {**NUMBERS, **LARGE})
    lease.name = "\U0001d518" * MAX_NAME
    assert MAX_CARDS_PER_NODE * 56 * lease.ByteSize() < MAX_MESSAGE_BYTES


@pytest.mark.parametrize("server", ["10.0.0.1:7700", "grpc:10.0.0.1:7700"])
def test_a_manager_over_tls_sends_no_token_where_it_can_be_read(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Server(server, "gpu1", True).client().close()
    monkeypatch.setenv("RGPU_TOKEN", "secret")
    with pytest.raises(rgpu_client.ServerError, match="could read your access token"):
        Server(server, "gpu1", True).client()
    for told in (Server(server, "gpu1"), Server("tls:gpu1:7700", "gpu1", True),
                 Server("127.0.0.1:7700", "gpu1", True)):  # fmt: skip
        told.client().close()


class Placing:
    """A manager over TLS that places every run at one address, and what was said there.

    0.0.0.0 leads to this machine, and counts as any other machine's address.
    """

    def __init__(self) -> None:
        self.heard = b""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.plain = f"0.0.0.0:{self._listener.getsockname()[1]}"
        self._placed = cluster_pb2.PlacedAt(node="gpu1", address=self.plain, ordinals=[0])
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                with connection:
                    self.heard += connection.recv(1 << 16)

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Yields the manager's address."""
        answers: dict[str, grpc.RpcMethodHandler] = {
            name: grpc.unary_unary_rpc_method_handler(
                lambda _request, _context, answer=answer: answer.SerializeToString()
            )
            for name, answer in (
                ("FindReservation", self._placed),
                ("Withdraw", cluster_pb2.WithdrawResponse()),
                ("GetPool", cluster_pb2.GetPoolResponse()),
            )
        }
        placed = cluster_pb2.SubmitResponse(placed=self._placed)
        answers["Submit"] = grpc.unary_stream_rpc_method_handler(
            lambda _request, _context: iter([placed.SerializeToString()])
        )
        service = "rgpu.v1.ManagerService"
        key, certificate = (
            (pki.folder() / f"server.{kind}").read_bytes() for kind in ("key", "pem")
        )
        threads = futures.ThreadPoolExecutor(4)
        server = grpc.server(threads)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, answers),))
        identity = grpc.ssl_server_credentials([(key, certificate)])
        port = server.add_secure_port("127.0.0.1:0", identity)
        server.start()
        yield f"tls:127.0.0.1:{port}"
        server.stop(None).wait()
        threads.shutdown()
        self._listener.close()


@pytest.mark.parametrize("words", [(), ("--lease", "mine"), ("--reservation", "room")])
def test_a_run_that_a_manager_over_tls_places_sends_no_token_where_it_can_be_read(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    placing = Placing()
    environment = {**clients.trust(), "RGPU_TOKEN": "rgpu-s3cr3t", "XDG_RUNTIME_DIR": str(tmp_path)}
    with placing.serving() as manager:
        done = rgpu("run", "--manager", manager, *words, "--", "true", **environment)
        assert b"s3cr3t" not in placing.heard
        assert done.stderr == (
            f"rgpu: the node that was chosen has the address {placing.plain}, where everybody on "
            "the network could read your access token, and its manager is asked over TLS: give the "
            "server a tls: address, and name it with --advertise; or name a transport here, as "
            "--transport tcp, if nobody can read it on the way\n"
        )
        assert done.returncode == 125
        # The user's word that the path is good enough.
        rgpu("run", "--manager", manager, *words, "--transport", "tcp", "--", "true", **environment)
        assert b"s3cr3t" in placing.heard


def test_a_node_sees_the_token_that_is_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("own")
    monkeypatch.setenv("RGPU_TOKEN", "all")
    monkeypatch.setenv("RGPU_TOKEN_FILES", f"b:7700={tmp_path / 'token'}")
    for address, token in (("a:7700", "all"), ("b:7700", "own")):
        with Server(address, "gpu1").client() as client:
            assert client._metadata == (("authorization", f"Bearer {token}"),)
