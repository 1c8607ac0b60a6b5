"""Requests: what a session's message asks of the compiler, and what its answers are."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from rgpu_common.wire import compiler as codec
from rgpu_common.wire import fields, scalars
from rgpu_common.wire.compiler import (
    Lower,
    MessageType,
    decode_link,
    decode_load,
    decode_lower,
)
from rgpu_common.wire.frame import WireError
from rgpu_emu import __version__, compile_job
from rgpu_emu.compile_process import MAX_NAME_BYTES
from rgpu_emu.lower.abi import KERNEL_ABI
from rgpu_emu.lower.codegen import host
from rgpu_emu.ptx.errors import CUDA_ERROR_NOT_FOUND, PtxError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rgpu_emu.compile_cache import ModuleStore
    from rgpu_emu.compile_connection import Connection

Failure = Callable[[PtxError], bytes]


@dataclass(frozen=True, eq=False)
class Request:
    """A request for a job, and how to report its failure."""

    connection: Connection
    kind: MessageType
    body: bytes
    key: bytes
    inputs: tuple[bytes, ...]
    reply: MessageType
    fail: Failure
    cache_key: str = ""


@lru_cache(maxsize=1)
def emitter_version() -> str:
    """Returns a hash of this compiler's release and source text, with the code that writes its
    replies, so that objects of other compilers are never used.
    """
    digest = hashlib.sha256(__version__.encode())
    replies = [Path(file) for file in (codec.__file__, fields.__file__, scalars.__file__)]
    for path in [*sorted(Path(__file__).parent.rglob("*.py")), *replies]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def module_key(inputs: Sequence[bytes]) -> bytes:
    """Returns the key of a list of inputs for this compiler on this machine."""
    digest = hashlib.sha256(f"{emitter_version()} {KERNEL_ABI} {host().fingerprint()}".encode())
    for data in inputs:
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.digest()


def read_request(
    connection: Connection, kind: MessageType, body: bytes, modules: ModuleStore
) -> Request | None:
    """Returns the request of a message. None: the message is answered already.

    Raises:
        WireError: it is not a request.
    """
    if kind is MessageType.LOAD:
        inputs = decode_load(body).inputs
        key = module_key(inputs)
        modules.put(key, inputs)
        failure: Failure = lambda error: compile_job.failed_load(error, key)  # noqa: E731
        name = key.hex() + ".load"
        return Request(connection, kind, key, key, inputs, MessageType.LOADED, failure, name)
    if kind is MessageType.LOWER:
        return _read_lower(connection, decode_lower(body), modules)
    if kind is MessageType.LINK:
        inputs = decode_link(body).inputs
        fail = compile_job.failed_link
        return Request(connection, kind, b"", b"", inputs, MessageType.LINKED, fail)
    raise WireError(f"{kind.name} is not a request")


def _read_lower(connection: Connection, asked: Lower, modules: ModuleStore) -> Request | None:
    key, encoded = asked.key, asked.name.encode()
    inputs = modules.get(key)
    fail = compile_job.failed_lower
    reply = MessageType.LOWERED
    if inputs is not None and len(encoded) <= MAX_NAME_BYTES:
        file = hashlib.sha256(key + encoded).hexdigest() + ".obj"
        return Request(connection, MessageType.LOWER, encoded, key, inputs, reply, fail, file)
    sentence = "the compiler no longer has this module: load it again"
    connection.send(reply, fail(PtxError(sentence, result=CUDA_ERROR_NOT_FOUND)))
    return None
