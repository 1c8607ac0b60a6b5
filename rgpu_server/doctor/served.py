"""What a GPU node would serve: addresses, access tokens, quotas, and the room for them."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rgpu_common.doctor.findings import note, ok, warning, wrong
from rgpu_common.endpoints import TcpEndpoint, UnixEndpoint, speaks_tls
from rgpu_common.errors import ServerError
from rgpu_common.units import counted, format_bytes, format_share
from rgpu_server.descriptors import fitted
from rgpu_server.devices import strange_models, take_inventory
from rgpu_server.doctor.configured import configuration
from rgpu_server.identity.access_tokens import read_access_tokens
from rgpu_server.identity.certificate_files import end_sentence
from rgpu_server.service.taken import check_free
from rgpu_server.tokens.home import state_path

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from rgpu_common.doctor.findings import Finding
    from rgpu_server.config import ServerConfig

# Compiled kernels, the record of usage and the state of leases.
_LEAST_DISK_BYTES = 256 << 20
_NEIGHBOUR = "in use by another rgpu server"


def ports(arguments: argparse.Namespace) -> Iterator[Finding]:
    """Yields whether the server can listen where it is to."""
    config = configuration(arguments)
    for endpoint in config.listen:
        if isinstance(endpoint, UnixEndpoint):
            yield from _socket(endpoint)
        elif type(endpoint) is TcpEndpoint:
            yield from _port(endpoint)
        else:
            yield ok("port", f"the server is to listen on {endpoint}")
        if config.identity.tokens and not (endpoint.loopback or speaks_tls(endpoint)):
            yield warning(
                "port", f"access tokens come to {endpoint} unencrypted",
                "listen on a tls: address: `rgpu help transports`",
            )  # fmt: skip
    if any(speaks_tls(endpoint) for endpoint in config.listen):
        config.tls.check()
        yield ok("port", f"the certificate {config.tls.certificate} and its key fit together")
        ends, _, remedy = end_sentence(config.tls.certificate, time.time()).partition(": ")
        if ends:
            yield warning("port", ends, remedy)


def _port(endpoint: TcpEndpoint) -> Iterator[Finding]:
    try:
        check_free([endpoint])
    except ServerError as error:
        if _NEIGHBOUR not in str(error):
            raise
        yield ok("port", f"an rgpu server runs on {endpoint} already")
    else:
        yield ok("port", f"{endpoint} is free")


def _socket(endpoint: UnixEndpoint) -> Iterator[Finding]:
    folder = Path(endpoint.path).parent
    if folder.is_dir() and os.access(folder, os.W_OK | os.X_OK):
        yield ok("port", f"{endpoint} can be made")
    else:
        yield wrong(
            "port", f"no socket can be made in {folder}",
            f"make the folder, or let this user write to it: mkdir -p {folder}",
        )  # fmt: skip


def token(arguments: argparse.Namespace) -> Iterator[Finding]:
    """Yields who may come in. ConfigError: the tokens file makes no sense."""
    config = configuration(arguments)
    if config.insecure:
        yield warning(
            "token", "everybody who can reach the server is believed",
            "make access tokens (`rgpu token new`) and leave out --insecure",
        )  # fmt: skip
    if not config.identity.tokens:
        yield ok("token", "no access tokens: programs of this machine need none")
        return
    path = Path(config.identity.tokens)
    if not path.exists():
        yield wrong(
            "token", f"there is no tokens file {path}",
            f"`rgpu token new TENANT --tokens {path}` makes one",
        )  # fmt: skip
        return
    rows, now = read_access_tokens(path), time.time()
    ended = [row for row in rows if row.expires is not None and row.expires <= now]
    yield ok("token", f"{counted(len(rows), 'access token')} in {path}")
    for tenant in sorted(
        {row.tenant for row in ended} - {r.tenant for r in rows if r not in ended}
    ):
        yield warning(
            "token", f"every access token of tenant {tenant} has ended",
            f"`rgpu token new {tenant} --tokens {path}` makes a new one",
        )  # fmt: skip


def quota(arguments: argparse.Namespace) -> Iterator[Finding]:
    """Yields what leases may have; errors as `take_inventory`."""
    config = configuration(arguments)
    inventory = take_inventory(config)
    for sentence in strange_models(config, inventory):
        subject, _, _ = sentence.partition("; ")
        yield warning("quota", subject, "correct the model's name; `rgpu devices` shows it")
    policy = config.policy
    share = format_share(policy.default_share_request_ppm)
    limit = format_share(policy.default_share_limit_ppm)
    tenants = [name for name in config.tenants if name != "*"]
    yield ok(
        "quota", f"a lease that asks for nothing gets share {share}, limit {limit}; "
        f"{counted(len(tenants), 'tenant')} with rules of their own",
    )  # fmt: skip
    if not config.enforcement.enforce:
        yield warning("quota", "shares are recorded and not enforced", "set quota.enforce = true")
    yield from _emulated_memory(config)


def _emulated_memory(config: ServerConfig) -> Iterator[Finding]:
    """An emulated device's memory is this machine's, and is used when programs use it."""
    memory = sum(spec.memory_bytes for spec in config.devices if spec.kind == "emulated")
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    if memory > pages * size:
        yield note(
            "quota", f"the emulated devices have {format_bytes(memory)}, and this machine "
            f"{format_bytes(pages * size)}",
            "serve less if programs are to use all of it: --device emulated:1GiB",
        )  # fmt: skip


def limits(arguments: argparse.Namespace) -> Iterator[Finding]:
    """Yields whether the system lets the server have what it may need."""
    config = configuration(arguments)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    _, lowered = fitted(config, None if hard == resource.RLIM_INFINITY else hard)
    if lowered:
        sentence, _, remedy = lowered.partition("; ")
        yield warning("limits", sentence, remedy)
    else:
        yield ok("limits", "enough open files are allowed")
    state = Path(config.state) if config.state else state_path(config.listen)
    there = next(folder for folder in (state, *state.absolute().parents) if folder.is_dir())
    if not os.access(there, os.W_OK | os.X_OK):
        yield wrong(
            "limits", f"the state folder {state} cannot be made in {there}",
            "name another one with --state-dir",
        )  # fmt: skip
        return
    facts = os.statvfs(there)
    free = facts.f_bavail * facts.f_frsize
    if free < _LEAST_DISK_BYTES:
        yield warning(
            "limits", f"{there} has {format_bytes(free)} free for the state of the server",
            "make room there, or name another folder with --state-dir",
        )  # fmt: skip
    else:
        yield ok("limits", f"{format_bytes(free)} are free for the state folder {state}")
