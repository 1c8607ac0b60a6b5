"""TLS for clients of `grpcs:`: the authorities to trust and the client's certificate, from the
files of `RGPU_TLS_*`.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from rgpu_common.endpoints import TcpEndpoint, certificate_name
from rgpu_common.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rgpu_common.endpoints import GrpcEndpoint

# Error numbers of OpenSSL's X509_verify_cert_error_string.
_NOT_YET, _EXPIRED, _OTHER_NAME = 9, 10, (62, 64)
_NO_TLS = ("WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST")


def trust(environment: Mapping[str, str]) -> ssl.SSLContext:
    """Returns an SSL context from the variables `RGPU_TLS_*`.

    Raises:
        UsageError: a file cannot be used; the sentence names the variable.
    """
    context = _authorities(environment.get("RGPU_TLS_CA", ""))
    if certificate := environment.get("RGPU_TLS_CERT"):
        key = environment.get("RGPU_TLS_KEY") or certificate
        try:
            # Without this OpenSSL would ask for a password on the terminal.
            context.load_cert_chain(certificate, key, password=lambda: "")
        except (OSError, ValueError) as error:
            raise UsageError(
                f"RGPU_TLS_CERT={certificate} and RGPU_TLS_KEY={key} cannot be used "
                f"({_reason(error)}): they are a certificate in PEM and its key, without a password"
            ) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2"])
    return context


def look(server: GrpcEndpoint, environment: Mapping[str, str], seconds: float) -> str:
    """Connects, and returns a sentence that says why that fails; "" if it works or no reason is
    known.
    """
    try:
        with socket.create_connection((server.host, server.port), seconds) as connection:
            if server.secure:
                name = certificate_name(server, environment)
                trust(environment).wrap_socket(connection, server_hostname=name).close()
    except UsageError as error:
        return str(error)
    except OSError as error:
        return connection_fault(server, error, environment)
    return ""


def connection_fault(server: GrpcEndpoint, error: OSError, environment: Mapping[str, str]) -> str:
    """Returns a sentence with the reason and the remedy of a failed connection; "" if no server
    listens.
    """
    if isinstance(error, ssl.SSLError):
        return tls_fault(server, error, environment)
    if isinstance(error, socket.gaierror):
        return (
            f"the host name {server.host!r} cannot be resolved ({error.strerror}): correct the "
            "address (--server or RGPU_SERVER) or the name service"
        )
    return ""


def tls_fault(server: TcpEndpoint, error: ssl.SSLError, environment: Mapping[str, str]) -> str:
    """Returns a sentence with the reason and the remedy of a failed handshake, worded as for
    `tls:`.
    """
    at = f"the certificate of the server at {server}"
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _OTHER_NAME:
            name = certificate_name(server, environment)
            if name != server.host:
                return (
                    f"{at} is not for {name!r} (RGPU_TLS_NAME): have one made for this name, or "
                    "unset the variable if the certificate is for the address"
                )
            return (
                f"{at} is not for {name!r}: use a name that it is for (--server or "
                "RGPU_SERVER), or have one made for this name"
            )
        if error.verify_code == _EXPIRED:
            return f"{at} has expired: its operator has to renew it"
        if error.verify_code == _NOT_YET:
            return f"{at} is not valid yet: check the clocks of both machines"
        return (
            f"{at} is not trusted ({error.verify_message}): name the authority that signed it in "
            "RGPU_TLS_CA"
        )
    if error.reason in _NO_TLS:
        where = TcpEndpoint.__str__(server)
        return f"what listens at {where} speaks no TLS: write grpc:{where}, or use another port"
    why = (error.reason or str(error)).replace("_", " ").lower()
    return f"the server at {server} and this agent do not agree on TLS ({why}): see its log"


def _authorities(ca: str) -> ssl.SSLContext:
    if not ca:
        return ssl.create_default_context()
    try:
        if not Path(ca).is_dir():
            return ssl.create_default_context(cafile=ca)
        context = None
        for file in sorted(Path(ca).iterdir()):
            # Such folders may also hold keys, revocation lists and links.
            with contextlib.suppress(ssl.SSLError, IsADirectoryError, PermissionError):
                if context is None:
                    context = ssl.create_default_context(cafile=file)
                else:
                    context.load_verify_locations(file)
        if context is None:
            raise OSError("no file in it holds a certificate")
    except OSError as error:
        raise UsageError(
            f"RGPU_TLS_CA={ca} cannot be used ({_reason(error)}): it is a file in PEM, or a folder "
            "of such files, with the authorities to trust"
        ) from None
    return context


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "not PEM").replace("_", " ").lower()
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
