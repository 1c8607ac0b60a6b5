"""The `[identity]` and `[tls]` tables of the configuration file."""

from __future__ import annotations

import os
import pwd
import ssl
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rgpu_common.errors import ConfigError, UsageError
from rgpu_server.core.identity import IdentityRules, Require
from rgpu_server.identity.tokens import check_tenant, default_tokens_file

if TYPE_CHECKING:
    from rgpu_common.config import Table

_REQUIRE = tuple(require.value for require in Require)


@dataclass(frozen=True, slots=True)
class Identity:
    """tokens: path of the tokens file, or "". users: uid -> tenant. certificate: which name in a
    client's certificate is its tenant, "cn" or "uri"; uri_prefix is removed from a "uri" name.
    """

    require: Require = Require.AUTO
    tokens: str = ""
    operators: tuple[str, ...] = ()
    users: dict[int, str] = field(default_factory=dict)
    certificate: str = "cn"
    uri_prefix: str = "rgpu://tenant/"

    def rules(self, certificates: bool, insecure: bool) -> IdentityRules:
        """Returns the rules for decisions. certificates: clients are asked for certificates."""
        return IdentityRules(
            require=self.require,
            configured=bool(self.tokens or certificates or self.users or self.operators),
            insecure=insecure,
            operators=frozenset(self.operators),
            users=self.users,
        )


@dataclass(frozen=True, slots=True)
class Tls:
    """Paths of PEM files. client_ca: the authority of clients' certificates; "" asks for none."""

    certificate: str = ""
    key: str = ""
    client_ca: str = ""
    require_client_cert: bool = False

    def check(self) -> None:
        """Raises ConfigError if the certificate and key cannot be used, because gRPC would not say
        why.
        """
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            # The server runs unattended: nobody can type a password.
            context.load_cert_chain(self.certificate, self.key, password=lambda: "")
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"tls.certificate {self.certificate!r} and tls.key {self.key!r} cannot be used "
                f"({_why(error)}): give a certificate in PEM and its key without a password"
            ) from None

    def files(self) -> list[str]:
        """The paths in the order in which a gateway expects the open files."""
        return [path for path in (self.certificate, self.key, self.client_ca) if path]

    def age(self) -> tuple[int, ...]:
        """Returns when the files were last written; raises OSError."""
        return tuple(os.stat(path).st_mtime_ns for path in self.files())

    def words(self) -> list[str]:
        """Returns the options for a gateway's command line."""
        files = {"certificate": self.certificate, "key": self.key, "client-ca": self.client_ca}
        words = [word for name, file in files.items() if file for word in (f"--{name}", file)]
        return [*words, "--require-client-certificate"] if self.require_client_cert else words


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "not PEM").replace("_", " ").lower()
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def tls_of(table: Table) -> Tls:
    """Reads `[tls]`; raises ConfigError with the key."""
    tls = Tls(
        certificate=_absolute(table.text("certificate", "")),
        key=_absolute(table.text("key", "")),
        client_ca=_absolute(table.text("client_ca", "")),
        require_client_cert=table.flag("require_client_cert", False),
    )
    table.done()
    if tls.require_client_cert and not tls.client_ca:
        raise table.refuse(
            "require_client_cert", "also set tls.client_ca, the authority that signs them"
        )
    return tls


def identity_of(table: Table, tokens: str | None) -> Identity:
    """Reads `[identity]`; `tokens` is the command line's value. Raises ConfigError with the key."""
    low = Identity()
    written = table.text("tokens", low.tokens)
    identity = Identity(
        require=Require(table.choice("require", low.require.value, _REQUIRE)),
        tokens=_absolute(written) if tokens is None else _absolute(tokens),
        operators=tuple(_tenants(table, table.texts("operators", []))),
        users=_users(table.table("users")),
        certificate=table.choice("certificate", low.certificate, ("cn", "uri")),
        uri_prefix=table.text("uri_prefix", low.uri_prefix),
    )
    table.done()
    return identity


def with_default_tokens(identity: Identity, tls: Tls) -> Identity:
    """Returns `identity` with the tokens file that `rgpu token` writes, where neither a tokens file
    nor certificates say who clients are and that file is there.
    """
    file = default_tokens_file()
    if identity.tokens or tls.client_ca or not file.is_file():
        return identity
    return replace(identity, tokens=str(file))


def _absolute(path: str) -> str:
    return str(Path(path).expanduser().absolute()) if path else ""


def _tenants(table: Table, names: list[str]) -> list[str]:
    for name in names:
        _check(table, "operators", name)
    return names


def _users(table: Table) -> dict[int, str]:
    users = {}
    for name in table.names():
        tenant = table.text(name, "")
        _check(table, name, tenant)
        try:
            uid = int(name) if name.isdecimal() else pwd.getpwnam(name).pw_uid
        except KeyError:
            raise table.refuse(
                name, "this machine has no such user; give a user name or a uid"
            ) from None
        users[uid] = tenant
    return users


def _check(table: Table, key: str, tenant: str) -> None:
    try:
        check_tenant(tenant)
    except UsageError as error:
        raise table.refuse(key, str(error)) from None
