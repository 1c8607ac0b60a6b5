"""Finds out whether two processes run on one machine, without revealing anything else.

A server publishes a random nonce and the SHA-256 of the nonce and the kernel's boot id. Only a
process that reads the same boot id computes the same hash. Containers of one machine share the boot
id but may not share files, so a Unix path counts only if the same server answers there.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path
from typing import NamedTuple

from netprobe.native import HOST_BYTES, ID_BYTES

FILE = "identity"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class HostIdentity(NamedTuple):
    """server: random, one per server. host: the hash by which processes on its machine recognise
    it.
    """

    server: bytes
    nonce: bytes
    host: bytes


def read_boot_id() -> str | None:
    """Returns the kernel's boot id; None if it is hidden."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip() or None
    except OSError:
        return None


def host_sum(nonce: bytes, boot_id: str | None) -> bytes:
    """Returns the hash of nonce and boot id; without boot id zeros, which match nothing."""
    if boot_id is None:
        return bytes(HOST_BYTES)
    return hashlib.sha256(nonce + boot_id.encode()).digest()


def machine_name(boot_id: str | None) -> bytes:
    """Returns a name of this machine until it boots again; b"" if its boot id is hidden."""
    return b"" if boot_id is None else host_sum(b"rgpu machine", boot_id)


def is_this_host(nonce: bytes, host: bytes) -> bool:
    """Returns True if `host` is this machine's hash for the nonce."""
    boot_id = read_boot_id()
    return boot_id is not None and host_sum(nonce, boot_id) == host


def make_identity(server: bytes | None = None) -> HostIdentity:
    """Returns an identity of this machine with a new nonce."""
    nonce = os.urandom(ID_BYTES)
    return HostIdentity(server or os.urandom(ID_BYTES), nonce, host_sum(nonce, read_boot_id()))


def identity_in(folder: Path) -> HostIdentity:
    """Returns the identity of the server with this state folder; creates it at the first use.

    Raises:
        OSError: it can be neither read nor written.
    """
    path = folder / FILE
    with contextlib.suppress(FileNotFoundError, ValueError):
        kept = bytes.fromhex(path.read_text(encoding="ascii").strip())
        if len(kept) == ID_BYTES:
            return make_identity(kept)
    identity = make_identity()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with open(descriptor, "w", encoding="ascii") as file:
        file.write(identity.server.hex() + "\n")
    return identity
