"""tls: which ends are trusted and accepted, and that strangers and slow clients cannot do harm."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import clients, pki
from helpers.server import Server, rgpu_command, run_client
from helpers.waiting import wait_until

from netprobe.native import Line
from rgpu_common.errors import ServerError
from rgpu_common.wire.attach import Attach, encode_attach
from rgpu_common.wire.frame import HEADER_BYTES, parse_header
from rgpu_common.wire.handshake import Handshake
from rgpu_common.wire.hello import Hello, encode_hello
from rgpu_common.wire.refused import decode_refused
from rgpu_common.wire.welcome import decode_welcome
from transport.tls_clients import HOLD, MTLS, opens, port, start

COPY = """
import os
cuda.open()
for size in (1, 16383, 16385, 3 << 20, (24 << 20) + 7):
    data = os.urandom(size)
    address = cuda.alloc(size)
    cuda.upload(address, data)
    assert cuda.download(address, size) == data
    cuda.free(address)
print("ok")
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(tls=pki.config(more=MTLS), device="emulated:256MiB") as running:
        yield running


def test_certificates_of_clients_are_their_tenants(server: Server) -> None:
    alice, bob = pki.client("alice"), pki.client("bob")
    status, output, errors = clients.run(server.tls, COPY, **alice)
    assert (status, output) == (0, "ok\n"), errors
    holder = start(server, HOLD, **alice)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "here\n"

    def ps(variables: dict[str, str]) -> str:
        return subprocess.run(
            [rgpu_command(), "ps", "--json", "--server", server.tls],
            env={**os.environ, **variables}, capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip

    shown = ps(alice)
    assert '"transport": "tls"' in shown
    assert '"tenant": "alice"' in shown
    assert '"tenant": "alice"' in ps(bob)
    done = run_client(
        server.tls, sys.executable, "-c", clients.PRELUDE + "cuda.open()",
        options=("--tenant", "bob"), PYTHONPATH=str(clients.TESTS), **alice,
    )  # fmt: skip
    assert "you are tenant 'alice' here" in done.stderr
    holder.communicate("x\n")


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        (pki.client, "without an access token or a certificate"),
        (lambda: pki.client("stranger/alice"), "does not trust the certificate in RGPU_TLS_CERT"),
        (lambda: pki.client("expired-alice"), "RGPU_TLS_CERT: have a new one made"),
        (lambda: pki.client("as-server-alice"), "ended the connection"),
        (lambda: pki.client("alice", ca="stranger/ca"), "is not trusted"),
        (lambda: pki.client("alice", ca=""), "is not trusted"),
        (lambda: pki.client("none"), "holds no certificate that can be read"),
        (lambda: {**pki.client(), "RGPU_TLS_CA": "/none"}, "holds no certificates that can be"),
        (
            lambda: {**pki.client("alice"), "RGPU_TLS_KEY": f"{pki.folder()}/bob.key"},
            "is not the key of",
        ),
    ],
    ids=[
        "none",
        "stranger",
        "expired",
        "purpose",
        "wrong ca",
        "system",
        "no file",
        "no ca",
        "wrong key",
    ],
)
def test_who_is_not_let_in_learns_why(
    server: Server,
    variables: object,
    sentence: str,
) -> None:
    assert callable(variables)
    found, text = opens(server.tls, {"RGPU_TLS_CA": "", **variables()})
    assert not found
    assert sentence in text, text


@pytest.mark.parametrize(
    ("certificate", "host", "sentence"),
    [
        ("expired-server", "127.0.0.1", "has expired"),
        ("elsewhere", "127.0.0.1", "is not for '127.0.0.1'"),
        ("elsewhere", "localhost", "is not for 'localhost'"),
        ("stranger/server", "127.0.0.1", "is not trusted"),
        ("as-client-server", "127.0.0.1", "is not trusted"),
    ],
)
def test_a_server_that_is_not_the_right_one(certificate: str, host: str, sentence: str) -> None:
    with Server(tls=pki.config(certificate)) as server:
        found, text = opens(f"tls:{host}:{port(server)}", pki.client("alice"))
        assert not found
        assert sentence in text, text


def test_without_a_required_certificate_nobody_shakes_hands() -> None:
    with Server(tls=pki.config().replace("client_ca", "require_client_cert = true\nclient_ca")) as (
        server
    ):
        found, text = opens(server.tls, pki.client())
        assert not found
        assert "certificate required; name your certificate and its key in RGPU_TLS_CERT" in text
        assert text.count("certificate required; name your") == 2, text
        assert opens(server.tls, pki.client("alice"))[0]
        wait_until(lambda: "peer did not return a certificate" in "".join(server.log))
        assert opens(f"tls:localhost:{port(server)}", pki.client("alice"))[0]


def test_names_that_are_none_are_nobodys() -> None:
    """A name that begins like a tenant's name is not accepted as that tenant."""
    with Server(tls=pki.config(more='[identity]\nrequire = "always"')) as server:
        for certificate in ("nul", "newline", "two-names"):
            found, text = opens(server.tls, pki.client(certificate))
            assert not found
            assert "without an access token or a certificate" in text, text
        assert "alice" not in "".join(server.log)


def test_access_tokens_go_over_tls(tmp_path: Path) -> None:
    def rgpu_token(*words: str) -> str:
        return subprocess.run(
            [rgpu_command(), "token", words[0], "--tokens", str(tmp_path / "tokens"), *words[1:]],
            capture_output=True, text=True, check=True,
        ).stdout.strip()  # fmt: skip

    secret = rgpu_token("new", "carol")
    more = f"[identity]\nrequire = 'always'\ntokens = '{tmp_path}/tokens'"
    with Server(tls=pki.config(more=more)) as server:
        carol = {**pki.client(), "RGPU_TOKEN": secret}
        assert opens(server.tls, carol)[0]
        both, text = opens(server.tls, {**pki.client("alice"), "RGPU_TOKEN": secret})
        assert not both
        assert "use one of the two" in text
        rgpu_token("revoke", "--tenant", "carol")
        found, text = opens(server.tls, carol)
        assert not found
        assert "was revoked" in text
        assert not [line for line in server.log if secret in line]


# Bytes that are not TLS, and certificates that are not ours


def test_plain_text_at_the_tls_port_and_the_other_way_round(server: Server) -> None:
    _, _, errors = clients.run(f"127.0.0.1:{port(server)}", "cuda.open()")
    assert "this port speaks TLS: write tls:HOST:PORT" in errors
    _, _, errors = clients.run(f"tls:{server.tcp}", "cuda.open()")
    assert "does not speak TLS 1.3" in errors
    done = subprocess.run(
        [rgpu_command(), "devices", "--server", f"127.0.0.1:{port(server)}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    for noise in (
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\xff\xff" + b"x" * 999,
        b"\x16",
        bytes(9),
    ):
        with socket.create_connection(("127.0.0.1", port(server))) as lane:
            lane.sendall(noise)
            lane.shutdown(socket.SHUT_WR)
            lane.settimeout(20)
            with contextlib.suppress(ConnectionResetError):
                while lane.recv(4096):
                    pass
    assert opens(server.tls, pki.client("alice"))[0]


def test_a_certificate_may_be_for_a_name_that_servers_share() -> None:
    with Server(tls=pki.config("elsewhere"), device="emulated:256MiB") as server:
        named = {**pki.client("alice"), "RGPU_TLS_NAME": "gpu.example"}
        assert opens(server.tls, named)[0]
        found, text = opens(server.tls, {**named, "RGPU_TLS_NAME": "other.example"})
        assert not found
        assert "is not for 'other.example' (RGPU_TLS_NAME): have one made for this name" in text
        # A name in the address counts as it is.
        found, text = opens(f"tls:localhost:{port(server)}", named)
        assert not found
        assert "is not for 'localhost'" in text


def test_a_program_reads_its_authorities_again(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "ca.pem"
    file.write_bytes((pki.folder() / "stranger" / "ca.pem").read_bytes())
    for name, text in {**pki.client("alice"), "RGPU_TLS_CA": str(file)}.items():
        monkeypatch.setenv(name, text)
    with pytest.raises(ServerError, match="is not trusted"):
        Line(server.tls)
    file.write_bytes((pki.folder() / "ca.pem").read_bytes())
    Line(server.tls).close()
    # What was read last serves on.
    file.write_text("no certificate")
    Line(server.tls).close()


def secure(server: Server, certificate: str = "alice", source: str = "127.0.0.1") -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=f"{pki.folder()}/ca.pem")
    if certificate:
        context.load_cert_chain(
            f"{pki.folder()}/{certificate}.pem", f"{pki.folder()}/{certificate}.key"
        )
    where = ("127.0.0.1", port(server))
    plain = socket.create_connection(where, timeout=30, source_address=(source, 0))
    return context.wrap_socket(plain, server_hostname="localhost")


def was_closed(lane: ssl.SSLSocket) -> bool:
    """Returns True if the server closes the connection, in whatever way. A time-out is none."""
    try:
        return lane.recv(1) == b""
    except (ssl.SSLError, ConnectionError) as error:
        return not isinstance(error, ssl.SSLWantReadError)


def frame(lane: ssl.SSLSocket) -> tuple[int, bytes]:
    def exactly(count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = lane.recv(count - len(data))
            assert piece, "the server closed"
            data += piece
        return data

    header = parse_header(exactly(HEADER_BYTES))
    return header.opcode, exactly(header.payload_bytes)


def test_older_versions_of_tls_are_refused(server: Server) -> None:
    context = ssl.create_default_context(cafile=f"{pki.folder()}/ca.pem")
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with (
        socket.create_connection(("127.0.0.1", port(server)), timeout=30) as plain,
        pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION"),
    ):
        context.wrap_socket(plain, server_hostname="localhost")


def test_other_protocols_are_refused(server: Server) -> None:
    context = ssl.create_default_context(cafile=f"{pki.folder()}/ca.pem")
    context.set_alpn_protocols(["http/1.1", "smtp"])
    with (
        socket.create_connection(("127.0.0.1", port(server)), timeout=30) as plain,
        pytest.raises(ssl.SSLError, match=r"(?i)no.application.protocol"),
    ):
        context.wrap_socket(plain, server_hostname="localhost")


def test_the_secret_of_a_session_is_good_once() -> None:
    with Server(tls=pki.config(), device="emulated:256MiB") as server:
        _attach_twice(server)


def _attach_twice(server: Server) -> None:
    bands = ((0x200000000000, 1 << 36), (0x280000000000, 1 << 36))
    pinned = ((0x300000000000, 1 << 34), (0x380000000000, 1 << 34))
    with secure(server) as lane, secure(server, "bob") as control, secure(server) as again:
        lane.sendall(encode_hello(Hello(minor=0, device_bands=bands, pinned_bands=pinned)))  # type: ignore[arg-type]
        opcode, head = frame(lane)
        assert opcode == Handshake.WELCOME
        welcome = decode_welcome(head)
        attach = encode_attach(Attach(welcome.session, welcome.secret))
        control.sendall(attach)
        assert frame(control)[0] == Handshake.ATTACHED
        again.sendall(attach)
        opcode, head = frame(again)
        assert opcode == Handshake.REFUSED
        assert "already used" in decode_refused(head).sentence
        # The last words come whole, then the stream ends in order.
        assert again.recv(1) == b""


# Floods, slow ones, and deaths


def test_strangers_who_say_nothing_make_room() -> None:
    more = "[sessions]\nhandshakes = 8\nhandshake_seconds = 30"
    with Server(tls=pki.config(more=more)) as server, contextlib.ExitStack() as stack:
        silent = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port(server))))
            for _ in range(40)
        ]
        assert opens(server.tls, pki.client("alice"))[0]
        silent[0].settimeout(20)
        with contextlib.suppress(ConnectionResetError):
            assert silent[0].recv(1) == b""
        # And those who have shaken hands and then say nothing: the front door has its own bound.
        hushed = [stack.enter_context(secure(server)) for _ in range(20)]
        assert opens(server.tls, pki.client("alice"))[0]
        hushed[0].settimeout(20)
        assert was_closed(hushed[0])


def test_one_network_does_not_take_all_places() -> None:
    """Strangers from another address use up all places: they finish the handshake and send
    nothing.
    """
    more = "[sessions]\ngateway_connections = 8\nhandshake_seconds = 60"
    with Server(tls=pki.config(more=more)) as server, contextlib.ExitStack() as stack:
        strangers = [stack.enter_context(secure(server, "", source="127.0.0.2")) for _ in range(8)]
        assert opens(server.tls, pki.client("alice"))[0]
        # Of their own crowd the newest go on.
        strangers += [stack.enter_context(secure(server, "", source="127.0.0.2")) for _ in range(8)]
        assert opens(server.tls, pki.client("alice"))[0]
        for stranger in strangers[:8]:
            stranger.settimeout(20)
            assert was_closed(stranger)


def test_a_handshake_has_a_deadline() -> None:
    with Server(tls=pki.config(more="[sessions]\nhandshake_seconds = 0.3")) as server:
        for first in (b"", b"\x16\x03\x01\x01\x00"):
            with socket.create_connection(("127.0.0.1", port(server)), timeout=20) as lane:
                lane.sendall(first)
                with contextlib.suppress(ConnectionResetError):
                    assert lane.recv(1) == b""


@pytest.mark.parametrize("order", ["before", "after", "never"])
def test_last_words_go_whoever_else_uses_openssl(server: Server, order: str) -> None:
    program = f"""
    if {order!r} == "before":
        import ssl
        ssl.create_default_context()
    cuda.open()
    address = cuda.alloc(1 << 20)
    if {order!r} == "after":
        import ssl
        ssl.create_default_context()
    cuda.upload(address, bytes(1 << 20))
    """
    key = f"exit-{order}"
    status, output, errors = clients.run(server.tls, program, RGPU_LEASE=key, **pki.client("alice"))
    assert (status, output, errors) == (0, "", "")

    def noted(event: str, name: str, value: object) -> dict[str, object] | None:
        for line in list(server.log):
            found = json.loads(line[line.index("{") :]) if f'"event":"{event}"' in line else {}
            if found.get(name) == value:
                return dict(found)
        return None

    def when_noted(event: str, name: str, value: object) -> dict[str, object]:
        """The log comes by a pipe, and may be behind the program."""
        wait_until(lambda: noted(event, name, value) is not None)
        found = noted(event, name, value)
        assert found is not None
        return found

    lease = when_noted("lease_granted", "key", key)
    session = when_noted("session_assigned", "lease", lease["lease"])
    ended = when_noted("session_ended", "session", session["session"])
    assert ended["reason"] == "the client said goodbye"


# Without OpenSSL


def test_without_openssl_there_is_a_sentence(server: Server) -> None:
    status, _, errors = clients.run(
        server.tls, "cuda.open()", RGPU_LIBSSL="/nowhere.so", **pki.client()
    )
    assert status != 0
    assert "tls: needs OpenSSL 3 or 1.1.1" in errors
    with pytest.raises(RuntimeError, match="tls: needs OpenSSL"):
        Server(tls=pki.config(), RGPU_LIBSSL="/nowhere.so").__enter__()


def test_a_server_without_its_files_does_not_start() -> None:
    for text, sentence in (
        (pki.config("none"), r"(?i)cannot be used \(no such file.*`rgpu tls init` makes both"),
        ("", "needs a certificate: set tls.certificate and tls.key"),
    ):
        with pytest.raises(RuntimeError, match=sentence):
            Server(tls=text).__enter__()
