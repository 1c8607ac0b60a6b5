"""Starts `netprobe-responder`, the C++ program that answers probes."""

from __future__ import annotations

import socket
import subprocess
from typing import TYPE_CHECKING

from netprobe.native import MAX_ENDPOINTS
from rgpu_common.endpoints import Endpoint, UnixEndpoint, cannot_listen
from rgpu_common.parts import compiled_part
from rgpu_common.unix import bind_unix

if TYPE_CHECKING:
    from collections.abc import Sequence

    from netprobe.identity import HostIdentity

_BACKLOG = 64
# Nothing of the parent's own environment reaches the responder.
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}


def responder_command(identity: HostIdentity, endpoints: Sequence[str]) -> list[str]:
    """Returns the command line, without the option that names its descriptors."""
    program = compiled_part("netprobe", "bin/netprobe-responder")
    command = [str(program), "--server", identity.server.hex(), "--nonce", identity.nonce.hex()]
    command += ["--host", identity.host.hex()]
    for uri in endpoints[:MAX_ENDPOINTS]:
        command += ["--endpoint", uri]
    return command


def start_responder(
    command: Sequence[str], option: str, descriptors: Sequence[int], output: int | None = None
) -> subprocess.Popen[bytes]:
    """Starts a responder that gets its connections from `descriptors`; raises OSError.

    option: "--control-fd" or "--listen-fd". output: a descriptor for its output (default: our own).
    """
    options = [word for fd in descriptors for word in (option, str(fd))]
    return subprocess.Popen(
        [*command, *options],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env=_ENVIRONMENT,
        cwd="/",
        pass_fds=tuple(descriptors),
        start_new_session=option == "--control-fd",
    )


def listen_on(endpoint: Endpoint) -> socket.socket:
    """Returns a listening socket; raises ServerError if the address cannot be listened on."""
    try:
        if isinstance(endpoint, UnixEndpoint):
            listener = bind_unix(endpoint.path)
        else:
            family, kind, protocol, _, address = socket.getaddrinfo(
                endpoint.host, endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            listener = socket.socket(family, kind, protocol)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                # 0.0.0.0 and [::] with one port stay two addresses, as for a server.
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        raise cannot_listen(endpoint, error) from None
    return listener
