"""A claim: asks a server for the lease of a run, over the path that the run's sessions will take.

A claim costs one connection and one round trip. The server checks everything for which it would
refuse a session: the access token, the version, the sizes. The lease is held for as long as the
connection is open. The program inherits the connection's descriptor.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from rgpu_client.program import background_run
from rgpu_client.session.greeting import hello_of, run_name
from rgpu_client.settings import SILENT_REMEDY, SILENT_SECONDS
from rgpu_client.sizes import sizes_of
from rgpu_common.errors import NoSessionError
from rgpu_common.parts import native_library
from rgpu_common.wire.claim import Claim, Claimed, Place, decode_claimed, decode_place
from rgpu_common.wire.fields import WishKey
from rgpu_common.wire.frame import MAX_HEAD_BYTES, WireError
from rgpu_common.wire.handshake import Handshake
from rgpu_common.wire.hello import Hello, encode_hello

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Progress = Callable[[Place | None], None]

FOR_EVER = math.inf
_CONNECT_SECONDS = 10.0
# A server without a line answers at once. A server of an earlier release may start a worker first,
# and one whose lease is in use waits until it is not: they answer a probe meanwhile.
_ANSWER_SECONDS = 60.0
_PROBE_SECONDS = 8.0
_SLICE_SECONDS = 0.2
_MOST_WAIT_MS = 1 << 50
_TEXT_BYTES = 1024
# Programs use low numbers for their own files, and a shell script may name any number below this.
_LOWEST_DESCRIPTOR = 300


class Held(NamedTuple):
    """A claim that was granted.

    key: the value for RGPU_LEASE. server: the address that answered. descriptor: holds the lease
    while it is open; -1 if no descriptor holds it.
    """

    claimed: Claimed
    key: str
    server: str
    descriptor: int


def claim(
    environment: Mapping[str, str],
    program: str,
    wait_seconds: float = 0.0,
    progress: Progress | None = None,
) -> Held:
    """Claims the lease that RGPU_LEASE in `environment` names, or without it a lease for this run
    alone.

    progress: called with each place in line, and every so often with None.

    Raises:
        UsageError: a variable has a value that cannot be used, or names several devices.
        NoSessionError: the server does not answer, or refuses; the sentence says why.
    """
    key = environment.get("RGPU_LEASE", "")
    device = sizes_of(environment).device
    return claim_named(environment, program, key, device, wait_seconds, progress)


def claim_named(
    environment: Mapping[str, str],
    program: str,
    key: str,
    device: int | None,
    wait_seconds: float,
    progress: Progress | None,
    own: bool = False,
) -> Held:
    """Claims the lease `key` on a device; "" means a lease for this run alone.

    own: the lease is for this run alone although it has a key. Other arguments and errors as
    `claim`.
    """
    paths = [environment["RGPU_SERVER"], *_others(environment)]
    own = (own or not key) and not paths[0].startswith("ucx:")
    key = key or new_key()
    hello = encode_hello(_hello(environment, program, key, own, device, wait_seconds))
    handle, server = _open_first(paths, hello)
    try:
        claimed = _Answers(handle, server).wait(wait_seconds > 0, progress)
        descriptor = _native().rgpu_claim_descriptor(handle, _LOWEST_DESCRIPTOR)
    except BaseException:
        _native().rgpu_claim_close(handle)
        raise
    if descriptor < 0:
        _native().rgpu_claim_close(handle)
    # Otherwise the connection stays open: an orderly close would end the claim.
    return Held(claimed, key, server, descriptor)


def new_key() -> str:
    """Returns the key of a new lease: the id of the run in the background, if it is that run's."""
    return background_run() or f"run-{os.urandom(6).hex()}"


def let_go(held: Held) -> None:
    """Ends a claim that this process holds."""
    if held.descriptor >= 0:
        import socket

        with socket.socket(fileno=held.descriptor) as connection:
            connection.shutdown(socket.SHUT_RDWR)


def _others(environment: Mapping[str, str]) -> list[str]:
    return list(filter(None, environment.get("RGPU_PATHS", "").split(";")))


def _open_first(paths: list[str], hello: bytes) -> tuple[int, str]:
    """Connects to the first path that accepts a connection, in the order in which a session tries
    them.
    """
    first = ""
    for path in paths:
        # Only sessions have a ring in shared memory. A claim uses the ring's Unix socket.
        uri = "unix:" + path.removeprefix("shm:") if path.startswith("shm:") else path
        why = ctypes.create_string_buffer(_TEXT_BYTES)
        handle = _native().rgpu_claim_open(
            uri.encode(), round(_CONNECT_SECONDS * 1000), hello, len(hello), why, len(why)
        )
        if handle is not None:
            return handle, path
        first = first or _shown(why.value)
    raise NoSessionError(first)


def _hello(
    environment: Mapping[str, str],
    program: str,
    key: str,
    own: bool,
    device: int | None,
    wait_seconds: float,
) -> Hello:
    wait = min(round(min(wait_seconds, _MOST_WAIT_MS / 1000) * 1000), _MOST_WAIT_MS)
    wishes = [(WishKey.CLAIM, int(Claim.WANTED | (Claim.OWN if own else 0)))]
    if wait:
        wishes.append((WishKey.WAIT, wait))
    return hello_of(environment, run_name(environment, program), key, device, wishes)


class _Answers:
    """Reads the server's answers to a claim."""

    def __init__(self, handle: int, server: str) -> None:
        self._handle = handle
        self._server = server

    def wait(self, patient: bool, progress: Progress | None) -> Claimed:
        """Returns the lease; NoSessionError if there is none.

        patient: a claim in line may wait for any time.
        """
        begun = time.monotonic()
        until, alive = begun + _ANSWER_SECONDS, False
        while time.monotonic() < until:
            found = self._next()
            if found is None:
                if progress is not None:
                    progress(None)
                if not alive and time.monotonic() > begun + SILENT_SECONDS - _PROBE_SECONDS:
                    alive = self._check_alive()
                continue
            alive = True
            answer = self._read(*found)
            if isinstance(answer, Claimed):
                return answer
            until = math.inf if patient else until
            if progress is not None:
                progress(answer)
        raise NoSessionError(f"the server at {self._server} does not answer{SILENT_REMEDY}")

    def _check_alive(self) -> bool:
        """Returns True if the server answers a probe; NoSessionError if it is silent there too."""
        from netprobe.candidates import TUNNELLED
        from netprobe.schemes import scheme_of
        from netprobe.survey import find
        from rgpu_common.errors import ServerError

        if scheme_of(self._server) in TUNNELLED:  # no probe gets there without an agent
            return True
        with suppress(ServerError):
            find(self._server, _PROBE_SECONDS)
            return True
        raise NoSessionError(
            f"the server at {self._server} did not answer within {SILENT_SECONDS:g} s"
            f"{SILENT_REMEDY}"
        )

    def _next(self) -> tuple[int, bytes] | None:
        opcode, status = ctypes.c_uint16(), ctypes.c_int32()
        head = ctypes.create_string_buffer(MAX_HEAD_BYTES)
        size = ctypes.c_size_t(len(head))
        why = ctypes.create_string_buffer(_TEXT_BYTES)
        state = _native().rgpu_claim_next(
            self._handle, round(_SLICE_SECONDS * 1000), ctypes.byref(opcode), ctypes.byref(status),
            head, ctypes.byref(size), why, len(why),
        )  # fmt: skip
        if state < 0:
            reason = _shown(why.value)
            raise NoSessionError(
                f"the server at {self._server} ended the connection: {reason}" if reason else
                f"what listens at {self._server} is no rgpu server; check --server or RGPU_SERVER"
            )  # fmt: skip
        return (opcode.value, head.raw[: size.value]) if state else None

    def _read(self, opcode: int, head: bytes) -> Claimed | Place:
        try:
            if opcode == Handshake.CLAIMED:
                return decode_claimed(head)
            if opcode == Handshake.PLACE:
                return decode_place(head)
            if opcode == Handshake.REFUSED:
                from rgpu_common.wire.refused import decode_refused

                raise NoSessionError(decode_refused(head).sentence)
            if opcode == Handshake.WELCOME:
                return _from_welcome(head)
        except WireError:
            pass
        raise NoSessionError(
            f"the server at {self._server} answers in a way this release does not know; install "
            "the same release on both sides"
        )


def _from_welcome(head: bytes) -> Claimed:
    """Returns the answer of a server that does not know claims and has opened a session.

    That session ends with this connection. So the server would serve the program, but it keeps no
    lease for it.
    """
    from rgpu_common.wire.welcome import decode_welcome

    welcome = decode_welcome(head)
    name, size = (
        (welcome.devices[0].name, welcome.devices[0].total_bytes) if welcome.devices else ("", 0)
    )
    return Claimed(
        release=welcome.release,
        device_name=name,
        device_bytes=size,
        memory_bytes=welcome.memory_limit_bytes,
    )


@functools.lru_cache(maxsize=1)
def _native() -> ctypes.CDLL:
    library = ctypes.CDLL(str(native_library()))
    pointer, text, number, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_size_t
    sizes = ctypes.POINTER(size)
    for name, result, arguments in (
        ("rgpu_claim_open", pointer, (text, number, text, size, text, size)),
        (
            "rgpu_claim_next",
            number,
            (
                pointer,
                number,
                ctypes.POINTER(ctypes.c_uint16),
                ctypes.POINTER(ctypes.c_int32),
                text,
                sizes,
                text,
                size,
            ),
        ),
        ("rgpu_claim_descriptor", number, (pointer, number)),
        ("rgpu_claim_close", None, (pointer,)),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, list(arguments)
    return library


def _shown(sentence: bytes) -> str:
    """Returns a peer's sentence without characters that a terminal would act on."""
    text = sentence.decode(errors="replace")
    return "".join(c if c.isprintable() else "?" for c in text)
