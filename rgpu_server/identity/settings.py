"""The `[identity]` and `[tls]` tables of the configuration file."""

from __future__ import annotations

import pwd
import ssl
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rgpu_common import keys
from rgpu_common.claim_tokens import key_in
from rgpu_common.clusters import KUBERNETES_GROUP
from rgpu_common.errors import ConfigError, UsageError
from rgpu_common.key_kinds import Choice, File, Flag, Text, Texts
from rgpu_common.keys import Kind, Option
from rgpu_server.core.identity import IdentityRules, Require
from rgpu_server.identity.access_tokens import check_tenant, default_tokens_file
from rgpu_server.identity.claim_access import ClaimAccess
from rgpu_server.identity.pod_tokens import PodTokens

if TYPE_CHECKING:
    from rgpu_common.config import Table


class Users(Kind["dict[int, str]"]):
    """A table: a user of this machine, by name or number -> the tenant that the user is."""

    accepted = '`{worker = "alice"}`'

    def read(self, table: Table, name: str, default: dict[int, str]) -> dict[int, str]:
        del default
        return _users(table.table(name))


class Operators(Texts):
    """Names of tenants."""

    accepted = "list of tenants"

    def read(self, table: Table, name: str, default: tuple[str, ...]) -> tuple[str, ...]:
        tenants = super().read(table, name, default)
        for tenant in tenants:
            _check(table, name, tenant)
        return tenants


@dataclass(frozen=True, slots=True)
class Identity:
    """`[identity]`: who clients are. tokens: path of the tokens file, or ""."""

    require: Require = keys.key(
        "identity.require", Choice({one.value: one for one in Require}), Require.AUTO,
        'Of whom an access token or a certificate is asked. `"auto"`: of callers from other '
        "machines; with `identity.users` of callers over loopback, too. Never of the own user and "
        "root at its Unix socket.",
    )  # fmt: skip
    tokens: str = keys.key(
        "identity.tokens", File(), "",
        "Clients on other machines show an access token of this file; `rgpu token` writes it.",
        option=Option("--tokens", "FILE"),
        unset="none; the default file of `rgpu token` where other machines can reach the server, "
        'or `identity.require` is `"always"`',
    )  # fmt: skip
    operators: tuple[str, ...] = keys.key(
        "identity.operators", Operators(), (),
        "The tenants that may drain the server, and see and change what belongs to others.",
    )  # fmt: skip
    users: dict[int, str] = keys.key(
        "identity.users", Users(), {},
        "The users of this machine, by name or number, and the tenant that each of them is.",
        unset="none",
    )  # fmt: skip
    certificate: str = keys.key(
        "identity.certificate", Choice({"cn": "cn", "uri": "uri"}), "cn",
        "Which name of a client's certificate is its tenant. `\"cn\"`: the subject's common name. "
        "`\"uri\"`: what follows `identity.uri_prefix` in a URI of the subject alternative names.",
    )  # fmt: skip
    uri_prefix: str = keys.key(
        "identity.uri_prefix", Text(), "rgpu://tenant/", "What precedes the tenant in such a URI."
    )
    claim_key: str = keys.key(
        "identity.claim_key", File(), "",
        "The file with this node's key for the credentials of Kubernetes claims "
        "([Kubernetes](../how-to/kubernetes.md)).", unset="none: there are no such credentials",
    )  # fmt: skip
    pod_keys: str = keys.key(
        "identity.pod_keys", File(), "",
        "The file with the keys of Kubernetes' API server (`kubectl get --raw /openid/v1/jwks`). "
        "With it the ServiceAccount token of a pod, for the audience `rgpu.dev`, opens sessions in "
        "the leases of the pod and of its claims.", unset="none: such tokens are not accepted",
    )  # fmt: skip
    pod_issuer: str = keys.key(
        "identity.pod_issuer", Text(), "",
        "The issuer of these tokens, if its keys sign for several.", unset="any",
    )  # fmt: skip

    def rules(self, certificates: bool, insecure: bool) -> IdentityRules:
        """Returns the rules for decisions. certificates: clients are asked for certificates."""
        configured = self.tokens, self.users, self.operators, self.claim_key, self.pod_keys
        return IdentityRules(
            require=self.require,
            configured=certificates or any(configured),
            insecure=insecure,
            operators=frozenset(self.operators),
            users=self.users,
        )

    def claim_access(self) -> ClaimAccess | None:
        """Returns what knows the credentials of claims; None if there are none here.

        Raises:
            ConfigError: a file cannot be used.
        """
        if not self.claim_key and not self.pod_keys:
            return None
        key = key_in(Path(self.claim_key)) if self.claim_key else None
        pods = None
        if self.pod_keys:
            pods = PodTokens(Path(self.pod_keys), self.pod_issuer, KUBERNETES_GROUP)
        return ClaimAccess(key, pods)


@dataclass(frozen=True, slots=True)
class Tls:
    """`[tls]`: paths of PEM files."""

    certificate: str = keys.key(
        "tls.certificate", File(), "",
        "PEM file of the server's certificate, for its [`tls:`](../explanation/transports.md#tls) "
        "addresses. The file is read again when it changes.",
        option=Option("--tls-cert", "FILE"), unset="none",
    )  # fmt: skip
    key: str = keys.key(
        "tls.key", File(), "", "PEM file of that certificate's key.",
        option=Option("--tls-key", "FILE"), unset="none",
    )  # fmt: skip
    client_ca: str = keys.key(
        "tls.client_ca", File(), "",
        "PEM file of the authority that signs clients' certificates. Without it no client is asked "
        "for a certificate.", unset="none",
    )  # fmt: skip
    require_client_cert: bool = keys.key(
        "tls.require_client_cert", Flag(), False,
        "Refuse clients without a certificate; needs `tls.client_ca`.",
    )  # fmt: skip

    def check(self) -> None:
        """Raises ConfigError if a file cannot be used, because gRPC would not say why."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        if self.certificate or self.key:
            self._check_certificate(context)
        if self.client_ca:
            self._check_authority(context)

    def _check_certificate(self, context: ssl.SSLContext) -> None:
        try:
            # The server runs unattended: nobody can type a password.
            context.load_cert_chain(self.certificate, self.key, password=lambda: "")
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"tls.certificate {self.certificate!r} and tls.key {self.key!r} cannot be used "
                f"({_why(error)}): give a certificate in PEM and its key without a password (`rgpu "
                "tls init` makes both, on Kubernetes deploy/kubernetes/make-secrets.sh)"
            ) from None

    def _check_authority(self, context: ssl.SSLContext) -> None:
        try:
            context.load_verify_locations(self.client_ca)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"tls.client_ca {self.client_ca!r} cannot be used ({_why(error)}): give the "
                "authority's certificate in PEM"
            ) from None

    def files(self) -> list[str]:
        """The paths in the order in which a gateway expects the open files."""
        return [path for path in (self.certificate, self.key, self.client_ca) if path]

    def words(self) -> list[str]:
        """Returns the options for a gateway's command line."""
        files = {"certificate": self.certificate, "key": self.key, "client-ca": self.client_ca}
        words = [word for name, file in files.items() if file for word in (f"--{name}", file)]
        return [*words, "--require-client-certificate"] if self.require_client_cert else words


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "not PEM").replace("_", " ").lower()
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def with_default_tokens_file(identity: Identity, tls: Tls) -> Identity:
    """Returns `identity` with the tokens file that `rgpu token` writes, where neither a tokens file
    nor certificates say who clients are and that file is there.
    """
    file = default_tokens_file()
    if identity.tokens or tls.client_ca or not file.is_file():
        return identity
    return replace(identity, tokens=str(file))


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
