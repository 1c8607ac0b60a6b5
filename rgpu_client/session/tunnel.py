"""The agent of a `grpc:` server: a Unix socket whose connections travel inside gRPC streams.

    python -m rgpu_client.session.tunnel --server grpc:HOST:PORT --listen-fd N ...

The driver library contains no gRPC: it connects to the socket. Each connection gets a stream over
an HTTP/2 connection of its own. When the stream breaks, both connections are closed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import re
import signal
import socket
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import grpc

from rgpu_client.session.detach import add_agent_options, own_folder
from rgpu_client.session.trust import look, trust
from rgpu_common import release
from rgpu_common.channels import CHANNEL_OPTIONS, name_options, tls_credentials
from rgpu_common.credentials import configured_access_token
from rgpu_common.endpoints import GrpcEndpoint, parse_endpoint
from rgpu_common.errors import ProtocolError, UsageError
from rgpu_common.tunnel import process
from rgpu_common.tunnel.chunk import MAX_DATA_BYTES, MAX_MESSAGE_BYTES, OPEN, PREFIX_BYTES
from rgpu_common.tunnel.local import LocalEnd
from rgpu_common.tunnel.relay import End, Patrol, PeerSilentError, Relay, StreamLostError
from rgpu_common.wire.frame import HEADER_BYTES, Kind, WireError, parse_header
from rgpu_common.wire.handshake import Handshake
from rgpu_common.wire.refused import encode_refused
from rgpu_common.wire.status import CUDA_ERROR_DEVICE_UNAVAILABLE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

log = logging.getLogger("rgpu.agent")

_ACCEPT_PAUSE_SECONDS = 0.05
_LOOK_SECONDS = 0.25
_CONNECT_SECONDS = 10.0
# How many bytes the server may send before the program reads them.
_WINDOW_BYTES = 4 << 20
_OPTIONS = (
    *CHANNEL_OPTIONS,
    # Each tunnel has its own HTTP/2 connection, so a slow tunnel delays no other.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
    ("grpc.min_reconnect_backoff_ms", round(_CONNECT_SECONDS * 1000)),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.http2.max_frame_size", MAX_DATA_BYTES),
    ("grpc.http2.lookahead_bytes", _WINDOW_BYTES),
    ("grpc.primary_user_agent", f"rgpu-agent/{release()}"),
)
# gRPC begins a message with _BY_HTTP when an answer is HTTP and not gRPC; _HTTP replaces that.
_BY_HTTP, _HTTP = "Received http2 header with status:", "HTTP status"
# gRPC's client makes these up about an answer that breaks the protocol; no gateway of rgpu sends
# them.
_NEVER_OURS = (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL)
_NOT_GRPC = "an HTTP answer that is not gRPC's"
# What gRPC writes before the reason for which a connection failed.
_CONNECTION_FAILED = re.compile(
    r"failed to connect to all addresses; last error: \w+: \S+: "
    r"(Failed to connect to remote host: )?"
)
_END = End(grpc.aio.EOF, (grpc.aio.AioRpcError, asyncio.InvalidStateError))


@dataclass(frozen=True, slots=True)
class Access:
    """The credentials with which the agent connects.

    tls: None for `grpc:`. environment: the variables from which the credentials were made.
    """

    access_token: str = field(default="", repr=False)
    tls: grpc.ChannelCredentials | None = field(default=None, repr=False)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)

    @staticmethod
    def of(server: GrpcEndpoint, environment: Mapping[str, str]) -> Access:
        """Reads the credentials from the variables; UsageError if a file cannot be used."""
        tls = None
        if server.secure:
            # gRPC's own errors do not say which file is not a certificate.
            trust(environment)
            tls = tls_credentials(environment)
        return Access(configured_access_token(environment), tls, environment)


class Agent:
    """Carries every connection of `listener` to `server`, until `run` is cancelled."""

    def __init__(self, server: GrpcEndpoint, access: Access, listener: socket.socket) -> None:
        self._server = server
        self._listener = listener
        self._access = access
        self._metadata: list[tuple[str, str]] = []
        if access.access_token:
            self._metadata = [("authorization", f"Bearer {access.access_token}")]
        self._patrol = Patrol()
        self._carriers: set[asyncio.Task[None]] = set()
        listener.setblocking(False)

    @property
    def idle(self) -> bool:
        """True if no connection is open."""
        return not self._carriers

    async def run(self) -> None:
        """Accepts connections until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._listener)
            except OSError as error:
                # No descriptors are left, or the program has closed its end already.
                log.warning("accept: %s", error)
                await asyncio.sleep(_ACCEPT_PAUSE_SECONDS)
                continue
            task = asyncio.ensure_future(self._carry(LocalEnd(connection)))
            self._carriers.add(task)
            task.add_done_callback(self._carriers.discard)

    async def close(self) -> None:
        """Closes all open connections."""
        for task in list(self._carriers):
            task.cancel()
        await asyncio.gather(*self._carriers, return_exceptions=True)

    async def _carry(self, local: LocalEnd) -> None:
        try:
            first = await local.take()
            if first:
                await self._relay(local, first)
        finally:
            local.close()

    async def _relay(self, local: LocalEnd, first: bytes) -> None:
        async with self._channel() as channel:
            call = channel.stream_stream(OPEN)(metadata=self._metadata)
            relay = Relay(call, local, _END)
            try:
                with self._patrol.over(relay):
                    await relay.run(first)
            except (StreamLostError, PeerSilentError, ProtocolError) as error:
                unanswered = relay.received == 0
                sentence = await self._sentence(call, error, unanswered)
                await self._refuse(local, first, sentence, unanswered)
            finally:
                call.cancel()

    def _channel(self) -> grpc.aio.Channel:
        target, tls = self._server.grpc_target, self._access.tls
        if tls is None:
            return grpc.aio.insecure_channel(target, options=_OPTIONS)
        named = name_options(self._server, self._access.environment)
        return grpc.aio.secure_channel(target, tls, options=(*_OPTIONS, *named))

    async def _refuse(
        self, local: LocalEnd, first: bytes, sentence: str, unanswered: bool = True
    ) -> None:
        """Reports why no tunnel opens: to the log, and to a client that opens a session or a
        probe.
        """
        log.warning("%s", sentence)
        if unanswered and _is_first(first[PREFIX_BYTES:]):
            with contextlib.suppress(OSError):
                await local.put(encode_refused(CUDA_ERROR_DEVICE_UNAVAILABLE, sentence))

    def _perhaps(self) -> str:
        """Returns another possible remedy for a connection that the server's side has closed."""
        if not self._server.secure:
            return "write grpcs: where TLS is spoken, "
        if not self._access.environment.get("RGPU_TLS_CERT"):
            return "name your certificate in RGPU_TLS_CERT where one is asked for, "
        return ""

    def _nobody(self, why: str, more: str = "") -> str:
        scheme = "grpcs" if self._server.secure else "grpc"
        return (
            f"no rgpu server answers at {self._server} ({why}): start one with `rgpu serve "
            f"--listen {scheme}:HOST:PORT`, {more}or say where it is with --server or RGPU_SERVER"
        )

    async def _sentence(
        self, call: grpc.aio.StreamStreamCall, error: Exception, unanswered: bool
    ) -> str:
        if not (call.done() and isinstance(error, StreamLostError)):
            return f"the tunnel to {self._server} is given up: {error}"
        code, details = await call.code(), await call.details() or "no reason was given"
        # A proxy's error page may end before gRPC has read its HTTP status.
        page = unanswered and code in _NEVER_OURS
        by_http = page or details.startswith(_BY_HTTP)
        details = _NOT_GRPC if page else _without_addresses(details.replace(_BY_HTTP, _HTTP))
        if page or code is grpc.StatusCode.UNAVAILABLE:
            # gRPC's own words do not name what is wrong with a certificate.
            sentence = await asyncio.to_thread(
                look, self._server, self._access.environment, _CONNECT_SECONDS
            )
            # After an answer by HTTP the TLS handshake is done, so a certificate is not the reason.
            more = "look at the log of the proxy there, " if by_http else self._perhaps()
            return sentence or self._nobody(details, more)
        if code is grpc.StatusCode.UNIMPLEMENTED:
            return (
                f"the server at {self._server} takes no tunnels ({details}): check that it is an "
                "rgpu server"
            )
        return f"the tunnel to {self._server} ended: {details}"


def _without_addresses(details: str) -> str:
    """Returns gRPC's message about a failed connection without the addresses that gRPC tried: the
    sentence around it names the server as the user wrote it.
    """
    return _CONNECTION_FAILED.sub("", details)


def _is_first(data: bytes) -> bool:
    """True if the bytes begin a session or a probe: only these clients read why no tunnel opens."""
    try:
        header = parse_header(data[:HEADER_BYTES])
    except WireError:
        return False
    return header.kind == Kind.HANDSHAKE and header.opcode in (Handshake.HELLO, Handshake.PROBE)


async def serve(server: GrpcEndpoint, listener: socket.socket, program_fd: int = -1) -> None:
    """Carries connections until a signal; or until the program of that pidfd and the last
    connection of its children have ended.
    """
    loop = asyncio.get_running_loop()
    stop, ended = asyncio.Event(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if program_fd >= 0:
        loop.add_reader(program_fd, ended.set)
    agent = Agent(server, Access.of(server, os.environ), listener)
    runner = asyncio.ensure_future(agent.run())
    try:
        waits = [asyncio.ensure_future(event.wait()) for event in (stop, ended)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if ended.is_set():
            loop.remove_reader(program_fd)
        while not stop.is_set() and not agent.idle:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(stop.wait(), _LOOK_SECONDS)
        for wait in waits:
            wait.cancel()
    finally:
        runner.cancel()
        await agent.close()
        listener.close()


def run(server: GrpcEndpoint, listener: socket.socket, program_fd: int = -1) -> None:
    """Runs `serve` in an event loop of its own."""
    process.run(serve(server, listener, program_fd))


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="rgpu_client.session.tunnel")
    parser.add_argument("--server", required=True)
    add_agent_options(parser)
    arguments = parser.parse_args(argv)
    with own_folder(arguments.folder, arguments.ready_fd):
        server = parse_endpoint(arguments.server)
        if not isinstance(server, GrpcEndpoint):
            raise UsageError(f"{server} needs no agent")
        logging.basicConfig(level=logging.INFO, format="rgpu agent: %(message)s")
        run(server, socket.socket(fileno=arguments.listen_fd), arguments.program_fd)


if __name__ == "__main__":
    main(sys.argv[1:])
