"""Addresses of servers: `HOST:PORT`, `[V6]:PORT`, `tcp:`, `tls:`, `ucx:`, `unix:/PATH`,
`shm:/PATH`.
"""

from __future__ import annotations

import errno
import ipaddress
import re
from typing import TYPE_CHECKING, Final

from rgpu_common.errors import EndpointError, ServerError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Self

DEFAULT_PORT = 7700
ACCEPTED = (
    "HOST:PORT, tcp:HOST:PORT, [IPV6]:PORT, tls:HOST:PORT, ucx:HOST:PORT, grpc:HOST:PORT, "
    "grpcs:HOST:PORT, unix:/PATH or shm:/PATH"
)
# The size of a Unix socket address (sun_path), without its final zero.
MAX_UNIX_PATH_BYTES = 107
_ANOTHER = "name another address with --listen"
_REMEDIES = {
    errno.EADDRINUSE: f"end what listens there, or {_ANOTHER}",
    errno.EADDRNOTAVAIL: "name an address of this machine with --listen",
    errno.ENOENT: "name a path in a folder that exists with --listen",
}

_TCP = re.compile(r"(?:\[([0-9A-Fa-f:.]+(?:%[\w.-]+)?)\]|([^\[\]:/\s]+))(?::([0-9]{1,5}))?")

# An access token as `rgpu token new` makes it, the credential of a claim (`claim_tokens`), a JSON
# Web Token, and a secret that is named.
# HoldsSecret in rgpu_common/native/transport/address.cc has the same rules.
_SECRET = re.compile(
    r"(?i:rgpu_[0-9a-f]{12}_[\w-]|(?:token|password|secret)=)|rgpuc1\.eyJ"
    r"|eyJ[\w-]{4,}\.[\w-]+\.[\w-]",
    re.ASCII,
)
# No HOST:PORT has these. In other programs' addresses secrets stand beside them:
# `user:password@host`, `host?key=word`, `host#word`.
_BESIDE_SECRETS = re.compile(r"[@?#=]")
# An address comes from other programs, too.
_MOST_CHARACTERS = 16_384
# An IPv6 address with a zone: its percent sign encodes nothing, and %40 is the 40th interface.
_ZONED = re.compile(r"\[[0-9A-Fa-f.]*:[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*%[\w.-]+\]", re.ASCII)
# Characters that are taken for others: the first, the last, and what the first one is taken for.
# None: they are not seen, or separate words. kTakenFor in address.cc is the same table.
_TAKEN_FOR = (
    (0xFF01, 0xFF5E, "!"),  # full width
    (0xFE13, 0xFE13, ":"), (0xFE55, 0xFE55, ":"), (0x2236, 0x2236, ":"), (0xA789, 0xA789, ":"),
    (0xFE16, 0xFE16, "?"), (0xFE56, 0xFE56, "?"), (0xFE5F, 0xFE5F, "#"), (0xFE66, 0xFE66, "="),
    (0xFE6A, 0xFE6A, "%"), (0xFE6B, 0xFE6B, "@"),
    (0x0000, 0x0020, None), (0x007F, 0x00A0, None), (0x00AD, 0x00AD, None),
    (0x1680, 0x1680, None), (0x2000, 0x200F, None), (0x2028, 0x202F, None),
    (0x205F, 0x206F, None), (0x3000, 0x3000, None), (0xFE00, 0xFE0F, None),
    (0xFEFF, 0xFEFF, None),
)  # fmt: skip


class _Endpoint:
    """Equal are endpoints of one class whose fields are. `Endpoint` lists the classes.

    They are not data classes, because every `rgpu run` waits until it has made its classes.
    """

    __slots__ = ()

    def _fields(self) -> tuple[object, ...]:
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Endpoint) or type(other) is not type(self):
            return NotImplemented
        return self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash((type(self).__name__, *self._fields()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}{self._fields()!r}"


class TcpEndpoint(_Endpoint):
    """A TCP port. Port 0 is only for listening: the system then chooses a free port."""

    __slots__ = ("host", "port")

    def __init__(self, host: str, port: int) -> None:
        self.host: Final = host
        self.port: Final = port

    def _fields(self) -> tuple[object, ...]:
        return self.host, self.port

    def at(self, host: str, port: int) -> Self:
        """Returns such an endpoint at another host or port."""
        return type(self)(host, port)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def loopback(self) -> bool:
        """True if only this machine can reach it. Names other than localhost are not resolved."""
        return self.host == "localhost" or bool(self._number and self._number.is_loopback)

    @property
    def is_number(self) -> bool:
        """True if the host is an IP address."""
        return self._number is not None

    @property
    def _number(self) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
        try:
            return ipaddress.ip_address(self.host.partition("%")[0])
        except ValueError:
            return None

    @property
    def grpc_target(self) -> str:
        return f"ipv6:{self}" if ":" in self.host else f"dns:///{self}"


class UnixEndpoint(_Endpoint):
    """A Unix stream socket in the file system. With `shared`, a session uses memory that both ends
    share (`shm:`), which is passed over this socket.
    """

    __slots__ = ("path", "shared")

    def __init__(self, path: str, shared: bool = False) -> None:
        self.path: Final = path
        self.shared: Final = shared

    def _fields(self) -> tuple[object, ...]:
        return self.path, self.shared

    def __str__(self) -> str:
        return f"{'shm' if self.shared else 'unix'}:{self.path}"

    @property
    def loopback(self) -> bool:
        return True

    @property
    def grpc_target(self) -> str:
        return f"unix:{self.path}"


class TlsEndpoint(TcpEndpoint):
    """A TCP port whose server speaks TLS 1.3."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"tls:{TcpEndpoint.__str__(self)}"

    @property
    def grpc_target(self) -> str:
        where = TcpEndpoint.__str__(self)
        return f"ipv6:{where}" if ":" in self.host else f"dns:///{where}"


class UcxEndpoint(TcpEndpoint):
    """An address for UCX connections. They carry sessions, but not the control-plane API."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"ucx:{TcpEndpoint.__str__(self)}"

    @property
    def loopback(self) -> bool:
        """False: UCX opens ports on all interfaces that it may use."""
        return False

    @property
    def grpc_target(self) -> str:
        """Raises EndpointError, because UCX does not carry gRPC."""
        raise EndpointError(
            f"{self} carries sessions, not the API: use another address of the server here"
        )


class GrpcEndpoint(TcpEndpoint):
    """An HTTP/2 port that carries tunnels and the control-plane API. With `secure`, over TLS."""

    __slots__ = ("secure",)

    def __init__(self, host: str, port: int, secure: bool = False) -> None:
        super().__init__(host, port)
        self.secure: Final = secure

    def _fields(self) -> tuple[object, ...]:
        return self.host, self.port, self.secure

    def at(self, host: str, port: int) -> Self:
        return type(self)(host, port, self.secure)

    def __str__(self) -> str:
        return f"{'grpcs' if self.secure else 'grpc'}:{TcpEndpoint.__str__(self)}"

    @property
    def loopback(self) -> bool:
        """False: a proxy on this machine may bring clients from anywhere."""
        return False

    @property
    def grpc_target(self) -> str:
        where = TcpEndpoint.__str__(self)
        return f"ipv6:{where}" if ":" in self.host else f"dns:///{where}"


Endpoint = TcpEndpoint | UnixEndpoint | TlsEndpoint | UcxEndpoint | GrpcEndpoint


def speaks_tls(endpoint: Endpoint) -> bool:
    """Returns whether every connection to this endpoint uses TLS."""
    return isinstance(endpoint, TlsEndpoint) or (
        isinstance(endpoint, GrpcEndpoint) and endpoint.secure
    )


def certificate_name(server: TcpEndpoint, environment: Mapping[str, str]) -> str:
    """Returns the name that the server's certificate must be for. NameOf in
    rgpu_common/native/transport/tls/connect_tls.cc has the same rule: servers whose addresses
    nobody knew when their certificate was made have a name in common, RGPU_TLS_NAME, and are
    reached by numbers.
    """
    name = environment.get("RGPU_TLS_NAME", "")
    return name if name and server.is_number else server.host


def cannot_listen(endpoint: Endpoint, error: OSError) -> ServerError:
    """Returns the error for an address at which a socket cannot listen, with the remedy."""
    remedy = _REMEDIES.get(error.errno or 0, _ANOTHER)
    return ServerError(f"cannot listen on {endpoint}: {error.strerror or error}; {remedy}")


def refuse_secret(text: str) -> None:
    """Raises EndpointError if an access token, a user or a password stands in an address.

    The error does not repeat the text, because logs and terminals keep errors.
    """
    if len(text) > _MOST_CHARACTERS:
        raise EndpointError(f"an address has at most {_MOST_CHARACTERS:,} characters")
    if any(_SECRET.search(one) or _has_mark(one) for one in (text, _as_read(text))):
        raise EndpointError(
            "an address holds no access token, user or password: write it as HOST:PORT or "
            "unix:/PATH, and name the file with the access token in RGPU_TOKEN_FILE"
        )


def _has_mark(text: str) -> bool:
    """Returns whether the text has what separates an address from a secret."""
    scheme, _, path = text.partition(":")
    if scheme not in ("unix", "shm"):
        return _BESIDE_SECRETS.search(text) is not None
    # Folders have names such as user@1000.service.
    before, at, _ = path.rpartition("@")
    in_path = before.startswith("/") and not before.startswith("//") and ":" not in before
    return "?" in path or (at != "" and not in_path)


def _as_read(text: str) -> str:
    """Returns the text without what hides a secret from a rule and from no reader:
    percent-encoding, however often, look-alikes of other scripts, and blanks.
    """
    read = bytearray()
    for byte in _ZONED.sub("[]", text).encode(errors="surrogatepass"):
        read.append(byte)
        while _shortened(read):
            pass
    return read.decode("latin-1")


def _shortened(read: bytearray) -> bool:
    """Replaces what ends the text by what it is taken for, and returns whether there was such."""
    encoded = read[-3:]
    if encoded[:1] == b"%" and re.fullmatch(rb"[0-9A-Fa-f]{2}", encoded[1:]):
        read[-3:] = bytes.fromhex(encoded[1:].decode())
        return True
    for size in (1, 2, 3):  # bytes of a character; those of four are in no table
        try:
            code = ord(read[-size:].decode())
        except (UnicodeDecodeError, TypeError):
            continue
        for first, last, taken in _TAKEN_FOR:
            if first <= code <= last:
                read[-size:] = b"" if taken is None else bytes([ord(taken) + code - first])
                return True
    return False


def parse_endpoint(text: str) -> Endpoint:
    """Returns the endpoint that `text` names. The default port is 7700; for `grpc:` it is 80, for
    `grpcs:` 443.

    Raises:
        EndpointError: `text` is not an address. The message lists the accepted forms.
    """
    refuse_secret(text)
    # Bytes of the environment or a command line that are not UTF-8 are not printable, either.
    if not text.isprintable():
        raise EndpointError(
            f"{text!r} is not an address: it holds characters that cannot be printed; write "
            f"{ACCEPTED}"
        )
    if text.startswith(("unix:", "shm:")):
        return _parse_unix(text)
    if text.startswith("tls:"):
        return TlsEndpoint(*_host_port(text, text.removeprefix("tls:"), DEFAULT_PORT))
    if text.startswith("ucx:"):
        return UcxEndpoint(*_host_port(text, text.removeprefix("ucx:"), DEFAULT_PORT))
    for scheme, secure, default in (("grpc:", False, 80), ("grpcs:", True, 443)):
        if text.startswith(scheme):
            host, port = _host_port(text, text.removeprefix(scheme), default)
            return GrpcEndpoint(host, port, secure)
    return TcpEndpoint(*_host_port(text, text.removeprefix("tcp:"), DEFAULT_PORT))


def _host_port(text: str, rest: str, default: int) -> tuple[str, int]:
    match = _TCP.fullmatch(rest)
    if match is None:
        raise EndpointError(f"{text!r} is not an address: write {ACCEPTED}")
    port = default if match[3] is None else int(match[3])
    if port > 65535:
        raise EndpointError(f"{text!r} has the port {port}: ports go from 0 to 65535")
    return match[1] or match[2], port


def parse_listener(text: str) -> Endpoint:
    """Like `parse_endpoint`, for an address at which a server listens.

    Raises:
        EndpointError: also for `shm:`, because a server listens on `unix:` and clients choose
            `shm:`.
    """
    endpoint = parse_endpoint(text)
    if isinstance(endpoint, UnixEndpoint) and endpoint.shared:
        raise EndpointError(
            f"a server listens on unix:{endpoint.path}, and clients choose shm:{endpoint.path} "
            "themselves"
        )
    return endpoint


def _parse_unix(text: str) -> UnixEndpoint:
    scheme, _, path = text.partition(":")
    if not path.startswith("/") or "\0" in path:
        raise EndpointError(f"{text!r} is not an address: a Unix socket is written {scheme}:/PATH")
    if len(path.encode()) > MAX_UNIX_PATH_BYTES:
        raise EndpointError(
            f"{text!r} is too long: the path of a Unix socket has at most "
            f"{MAX_UNIX_PATH_BYTES} bytes"
        )
    return UnixEndpoint(path, shared=scheme == "shm")
