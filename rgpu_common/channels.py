"""Channels to the control-plane API of a server, with and without TLS."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

# gRPC would print its own lines about a server that is not there.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc

from rgpu_common.endpoints import TcpEndpoint, certificate_name, speaks_tls
from rgpu_common.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rgpu_common.endpoints import Endpoint

CHANNEL_OPTIONS: Final = (("grpc.enable_http_proxy", 0),)
# Words of gRPC about a TLS handshake.
_UNVERIFIED = re.compile(r"CERTIFICATE_VERIFY_FAILED: ([\w ,-]+)")
_OTHER_NAME = ("Hostname Verification Check failed", "is not in peer certificate")
_NO_TLS = ("WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST")
# The files in which systems keep the authorities that they trust. gRPC would use its own list.
_SYSTEM_STORES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")


def open_channel(
    server: Endpoint, environment: Mapping[str, str], most_bytes: int = 4 << 20
) -> grpc.Channel:
    """Returns a channel.  For `tls:` and `grpcs:` the variables are those that the driver library
    reads: RGPU_TLS_CA, RGPU_TLS_CERT, RGPU_TLS_KEY, RGPU_TLS_NAME.

    most_bytes: the largest answer that is read.

    Raises:
        UsageError: a file that one of them names cannot be read.
    """
    options = (*CHANNEL_OPTIONS, ("grpc.max_receive_message_length", most_bytes))
    if not speaks_tls(server):
        return grpc.insecure_channel(server.grpc_target, options=options)
    named = (*options, *name_options(server, environment))
    return grpc.secure_channel(server.grpc_target, tls_credentials(environment), options=named)


def name_options(server: Endpoint, environment: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Returns the option of a channel to a server whose certificate is for another name than the
    host of its address.
    """
    if not isinstance(server, TcpEndpoint):
        return ()
    name = certificate_name(server, environment)
    return () if name == server.host else (("grpc.ssl_target_name_override", name),)


def tls_credentials(environment: Mapping[str, str]) -> grpc.ChannelCredentials:
    """Returns the authorities that the environment trusts, and its certificate and key.

    Raises:
        UsageError: as `open_channel`.
    """
    certificate = environment.get("RGPU_TLS_CERT", "")
    key = environment.get("RGPU_TLS_KEY", "") or certificate
    return grpc.ssl_channel_credentials(
        root_certificates=_authorities(environment),
        private_key=_read("RGPU_TLS_KEY", key) if certificate else None,
        certificate_chain=_read("RGPU_TLS_CERT", certificate) if certificate else None,
    )


def tls_refusal(server: Endpoint, details: str) -> str:
    """Returns a sentence about the TLS handshake that a call failed with; "" if it was not that.

    details: gRPC's own words, which say that nobody answers, and the reason at their end.
    """
    if not speaks_tls(server):
        return ""
    at = f"the certificate of the server at {server}"
    if any(words in details for words in _OTHER_NAME):
        return (
            f"{at} is for another name: use a name that it is for, set RGPU_TLS_NAME to it, or "
            "have one made for this name"
        )
    found = _UNVERIFIED.search(details)
    if found is None:
        wrong = any(word in details for word in _NO_TLS)
        return f"what listens at {server} speaks no TLS: leave tls: out" if wrong else ""
    if "expired" in found[1]:
        return f"{at} has expired: its operator has to renew it"
    if "not yet valid" in found[1]:
        return f"{at} is not valid yet: check the clocks of both machines"
    return f"{at} is not trusted ({found[1]}): name the authority that signed it in RGPU_TLS_CA"


def _authorities(environment: Mapping[str, str]) -> bytes | None:
    named = environment.get("RGPU_TLS_CA", "")
    if named and Path(named).is_dir():
        files = sorted(path for path in Path(named).iterdir() if path.is_file())
        return b"\n".join(_read("RGPU_TLS_CA", str(path)) for path in files)
    if named:
        return _read("RGPU_TLS_CA", named)
    stores = [environment.get("SSL_CERT_FILE", ""), *_SYSTEM_STORES]
    store = next((path for path in stores if path and Path(path).is_file()), None)
    return None if store is None else _read("SSL_CERT_FILE", store)


def _read(name: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"{path} ({name}) cannot be read: {error.strerror}") from None
