"""Who somebody is and what that allows, from what a connection showed."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from rgpu_server.core.model import DEFAULT_TENANT, Code, Refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

_HOW = (
    "set RGPU_TOKEN_FILE to the file that holds your token (the server's operator makes one with "
    "`rgpu token new TENANT`)"
)


class Require(Enum):
    """Of whom a token or a certificate is asked.  AUTO: of callers from other machines, and of
    callers over loopback where users of this machine are configured.
    """

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class Proof(Enum):
    """What somebody's identity rests on.  OWNER: the server's own user, or root.  PLACE: nothing
    but where the connection comes from.
    """

    TOKEN = "token"
    CERTIFICATE = "certificate"
    USER = "user"
    OWNER = "owner"
    PLACE = "place"


@dataclass(frozen=True, slots=True)
class IdentityRules:
    """What the operator set.

    configured: there are tokens, certificates, users or operators.
    insecure: who comes from another machine is believed as well.
    operators: tenants that may do everything.
    users: uid of a process on this machine -> the tenant that it is.
    """

    require: Require = Require.AUTO
    configured: bool = False
    insecure: bool = False
    operators: frozenset[str] = frozenset()
    users: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a connection showed.

    local: it comes from this machine.  uid: over a Unix socket; own: the server's user or root.
    certificate: the tenant that its certificate names, "" for none.
    token: the tenant of its token, "" for none; bad_token: it has one that is not valid.
    """

    local: bool = False
    uid: int | None = None
    own: bool = False
    certificate: str = ""
    token: str = ""
    bad_token: bool = False


@dataclass(frozen=True, slots=True)
class Identity:
    """tenant: None may say which one it is.  operator: sees and changes what is of others."""

    tenant: str | None
    operator: bool
    proof: Proof

    def speaks_for(self, said: str) -> str | Refusal:
        """Returns whose the things are that somebody asks for who said that tenant ("": none)."""
        if self.tenant is None:
            return said or DEFAULT_TENANT
        if not said or said == self.tenant:
            return self.tenant
        if self.operator:
            return said
        sentence = (
            f"you are tenant {self.tenant!r} here and cannot ask for tenant {said!r}: leave the "
            "tenant out (RGPU_TENANT, --tenant), or use that tenant's token"
        )
        return Refusal(Code.NOT_ALLOWED, sentence)

    def sees(self, tenant: str) -> bool:
        """True if what is of that tenant is shown, and may be changed."""
        return self.operator or self.tenant is None or self.tenant == tenant


def identify(rules: IdentityRules, evidence: Evidence) -> Identity | Refusal:
    """Returns who it is, or why it may not come in."""
    if evidence.bad_token:
        sentence = (
            "this token is not valid here: it is wrong, was revoked or has expired; ask the "
            "server's operator for a new one"
        )
        return Refusal(Code.NOT_IDENTIFIED, sentence)
    if evidence.token and evidence.certificate and evidence.token != evidence.certificate:
        sentence = (
            f"the certificate is of tenant {evidence.certificate!r} and the token of "
            f"{evidence.token!r}: use one of the two"
        )
        return Refusal(Code.NOT_IDENTIFIED, sentence)
    if evidence.token or evidence.certificate:
        proof = Proof.TOKEN if evidence.token else Proof.CERTIFICATE
        return _named(rules, evidence.token or evidence.certificate, proof)
    if evidence.uid is not None and evidence.own:
        return Identity(None, True, Proof.OWNER)
    if evidence.uid is not None and evidence.uid in rules.users:
        return _named(rules, rules.users[evidence.uid], Proof.USER)
    return _believe(rules, evidence)


def _named(rules: IdentityRules, tenant: str, proof: Proof) -> Identity:
    return Identity(tenant, tenant in rules.operators, proof)


def _believe(rules: IdentityRules, evidence: Evidence) -> Identity | Refusal:
    """Decides about callers that show nothing.  Where users of this machine are configured, a
    connection from this machine has to say which user it is, and one over loopback cannot.
    """
    from_here = evidence.uid is not None or (evidence.local and not rules.insecure)
    stranger = from_here and bool(rules.users)
    if rules.require is Require.NEVER or (
        rules.require is Require.AUTO and (rules.insecure or evidence.local) and not stranger
    ):
        return Identity(None, not rules.configured, Proof.PLACE)
    if stranger and evidence.uid is None:
        sentence = (
            "without a token or a certificate this server lets in only the users in "
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
    sentence = f"this server lets nobody in without a token or a certificate: {_HOW}"
    return Refusal(Code.NOT_IDENTIFIED, sentence)
