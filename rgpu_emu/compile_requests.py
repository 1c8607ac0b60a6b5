"""Requests: what a session's message asks of the compiler, and what its answers are."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from rgpu_emu import __version__, compile_job
from rgpu_emu.compile_process import MAX_NAME_BYTES
from rgpu_emu.compile_protocol import (
    LINK,
    LINKED,
    LOAD,
    LOADED,
    LOWER,
    LOWERED,
    ProtocolError,
    parse_inputs,
    parse_lower,
)
from rgpu_emu.lower.abi import KERNEL_ABI
from rgpu_emu.lower.codegen import host
from rgpu_emu.ptx.errors import CUDA_ERROR_NOT_FOUND, PtxError

if TYPE_CHECKING:
    from rgpu_emu.compile_cache import ModuleStore
    from rgpu_emu.compile_connection import Connection

Failure = Callable[[PtxError], bytes]


@dataclass(frozen=True, eq=False)
class Request:
    """A request for a job, and how to report its failure."""

    connection: Connection
    kind: int
    body: bytes
    key: bytes
    inputs: list[bytes]
    reply: int
    fail: Failure
    cache_key: str = ""


@lru_cache(maxsize=1)
def emitter_version() -> str:
    """Returns a hash of this compiler's release and source text, so that objects of other compilers
    are never used.
    """
    digest = hashlib.sha256(__version__.encode())
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def module_key(inputs: list[bytes]) -> bytes:
    """Returns the key of a list of inputs for this compiler on this machine."""
    digest = hashlib.sha256(f"{emitter_version()} {KERNEL_ABI} {host().fingerprint()}".encode())
    for data in inputs:
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.digest()


def read_request(
    connection: Connection, kind: int, body: bytes, modules: ModuleStore
) -> Request | None:
    """Returns the request of a message. None: the message is answered already.

    Raises:
        ProtocolError: it is not a request.
    """
    if kind == LOAD:
        inputs = parse_inputs(body)
        key = module_key(inputs)
        modules.put(key, inputs)
        failure: Failure = lambda error: compile_job.failed_load(error, key)  # noqa: E731
        name = key.hex() + ".load"
        return Request(connection, LOAD, key, key, inputs, LOADED, failure, name)
    if kind == LOWER:
        return _read_lower(connection, *parse_lower(body), modules)
    if kind == LINK:
        inputs = parse_inputs(body)
        return Request(connection, LINK, b"", b"", inputs, LINKED, compile_job.failed_link)
    raise ProtocolError(f"{kind} is not a request")


def _read_lower(
    connection: Connection, key: bytes, name: str, modules: ModuleStore
) -> Request | None:
    inputs = modules.get(key)
    encoded = name.encode()
    fail = compile_job.failed_lower
    if inputs is not None and len(encoded) <= MAX_NAME_BYTES:
        file = hashlib.sha256(key + encoded).hexdigest() + ".obj"
        return Request(connection, LOWER, encoded, key, inputs, LOWERED, fail, file)
    sentence = "the compiler no longer has this module: load it again"
    connection.send(LOWERED, fail(PtxError(sentence, result=CUDA_ERROR_NOT_FOUND)))
    return None
