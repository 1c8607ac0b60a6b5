"""Decides from a connection's credentials which tenant it belongs to, and what it may do."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from msgspec import Struct, field

from rgpu_common.clusters import KUBERNETES_GROUP, is_lease_of
from rgpu_server.core.model import DEFAULT_TENANT, Code, Refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

_HOW = (
    "set RGPU_TOKEN_FILE to the file that holds your access token (the server's operator makes one "
    "with `rgpu token new TENANT`)"
)


class Require(Enum):
    """Which callers need an access token or a certificate.

    AUTO: callers from other machines. If users of this machine are configured, callers over
    loopback need one too.
    """

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class Proof(Enum):
    """The proof of an identity.

    OWNER: the caller is the server's own user, or root. PLACE: no proof but the connection's
    origin.
    """

    ACCESS_TOKEN = "token"
    CLAIM = "claim"
    CERTIFICATE = "certificate"
    USER = "user"
    OWNER = "owner"
    PLACE = "place"


class IdentityRules(Struct, frozen=True):
    """The operator's settings.

    configured: access tokens, certificates, users or operators are configured. insecure: callers
    from other machines need no proof either. operators: tenants that may do everything. users: uid
    of a process on this machine -> its tenant.
    """

    require: Require = Require.AUTO
    configured: bool = False
    insecure: bool = False
    operators: frozenset[str] = frozenset()
    users: Mapping[int, str] = field(default_factory=dict)


class Evidence(Struct, frozen=True):
    """The credentials and the origin of a connection.

    local: it comes from this machine. uid: of the peer on a Unix socket; own: the uid is the
    server's or root's. certificate: the tenant that its certificate names, "" without one.
    access_token: the tenant of its access token, "" without one; bad_access_token: it has one that
    is not valid. requests: the token is for the leases of these requests alone; None: for all that
    the tenant may do.
    """

    local: bool = False
    uid: int | None = None
    own: bool = False
    certificate: str = ""
    access_token: str = ""
    bad_access_token: bool = False
    requests: frozenset[str] | None = None


class Identity(Struct, frozen=True):
    """tenant: None if the caller may name any tenant. operator: may see and change everything of
    others. requests: it may use the leases of these requests and do nothing else; None: no such
    bound.
    """

    tenant: str | None
    operator: bool
    proof: Proof
    requests: frozenset[str] | None = None

    def speaks_for(self, said: str) -> str | Refusal:
        """Returns the tenant for a request that names the tenant `said` ("": none), or a
        refusal.
        """
        if self.tenant is None:
            return said or DEFAULT_TENANT
        if not said or said == self.tenant:
            return self.tenant
        if self.operator:
            return said
        sentence = (
            f"you are tenant {self.tenant!r} here and cannot ask for tenant {said!r}: leave the "
            "tenant out (RGPU_TENANT, --tenant), or use that tenant's access token"
        )
        return Refusal(Code.NOT_ALLOWED, sentence)

    def sees(self, tenant: str) -> bool:
        """True if the caller may see and change the leases and sessions of that tenant."""
        if self.requests is not None:
            return False
        return self.operator or self.tenant is None or self.tenant == tenant

    def may_use(self, key: str) -> Refusal | None:
        """Returns why the caller may not use the lease of a key, or may not ask for a lease ("");
        None: it may.
        """
        if self.requests is None or any(is_lease_of(key, one) for one in self.requests):
            return None
        sentence = (
            "this credential opens sessions in the leases of its own Kubernetes claim and of no "
            f"other: set RGPU_LEASE to what the pod's annotation {KUBERNETES_GROUP}/lease says"
        )
        return Refusal(Code.NOT_ALLOWED, sentence)


def identify(rules: IdentityRules, evidence: Evidence) -> Identity | Refusal:
    """Returns the identity of a connection, or the refusal of it."""
    if evidence.bad_access_token:
        sentence = (
            "this access token is not valid here: it is wrong, was revoked or has expired; ask "
            "the operator for a new one"
        )
        return Refusal(Code.NOT_IDENTIFIED, sentence)
    by_token = evidence.access_token
    if by_token and evidence.certificate and by_token != evidence.certificate:
        sentence = (
            f"the certificate is of tenant {evidence.certificate!r} and the access token "
            f"of {by_token!r}: use one of the two"
        )
        return Refusal(Code.NOT_IDENTIFIED, sentence)
    if by_token or evidence.certificate:
        if by_token and evidence.requests is not None:
            return Identity(by_token, False, Proof.CLAIM, evidence.requests)
        proof = Proof.ACCESS_TOKEN if by_token else Proof.CERTIFICATE
        return _named(rules, by_token or evidence.certificate, proof)
    if evidence.uid is not None and evidence.own:
        return Identity(None, True, Proof.OWNER)
    if evidence.uid is not None and evidence.uid in rules.users:
        return _named(rules, rules.users[evidence.uid], Proof.USER)
    return _believe(rules, evidence)


def _named(rules: IdentityRules, tenant: str, proof: Proof) -> Identity:
    return Identity(tenant, tenant in rules.operators, proof)


def _place_tenant(rules: IdentityRules) -> str | None:
    """Returns the tenant of a caller without credentials, or None if it may name any tenant.

    Where others prove their tenant, a process of the server's machine that proves nothing is the
    default tenant: it could see and change the leases of all others otherwise. `never` and
    `--insecure` are the operator's word that callers may name their tenants.
    """
    trusted = rules.insecure or rules.require is Require.NEVER or not rules.configured
    return None if trusted else DEFAULT_TENANT


def _believe(rules: IdentityRules, evidence: Evidence) -> Identity | Refusal:
    """Decides about callers without credentials.

    If users of this machine are configured, a connection from this machine needs a user's uid,
    which a connection over loopback does not have.
    """
    from_here = evidence.uid is not None or (evidence.local and not rules.insecure)
    stranger = from_here and bool(rules.users)
    if rules.require is Require.NEVER or (
        rules.require is Require.AUTO and (rules.insecure or evidence.local) and not stranger
    ):
        return Identity(_place_tenant(rules), not rules.configured, Proof.PLACE)
    if stranger and evidence.uid is None:
        sentence = (
            "without an access token or a certificate this server lets in only the users in "
            "identity.users, and a connection over loopback does not say which user it is: connect "
            f"to the server's Unix socket, or {_HOW}"
        )
        return Refusal(Code.NOT_IDENTIFIED, sentence)
    if stranger:
        sentence = (
            f"this server does not know user {evidence.uid} of its machine: {_HOW}, or let the "
            "operator add the user to identity.users"
        )
        return Refusal(Code.NOT_IDENTIFIED, sentence)
    sentence = (
        "this server lets nobody in without an access token or a certificate, but for its own user "
        f"and root at its Unix socket: {_HOW}"
    )
    return Refusal(Code.NOT_IDENTIFIED, sentence)
