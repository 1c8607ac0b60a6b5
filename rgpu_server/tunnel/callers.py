"""Who calls: where from, and whom their certificate names."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from rgpu_common.errors import UsageError
from rgpu_common.wire.preface import Preface
from rgpu_server.identity.tokens import check_tenant

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rgpu_server.http2.call import Call

log = logging.getLogger("rgpu.tunnel")

TRANSPORT = "grpc"


class Callers:
    """tenant_uri: the tenant is what follows this in the only such URI of a certificate; None: it
    is the common name.
    """

    def __init__(self, tenant_uri: str | None) -> None:
        self._tenant_uri = tenant_uri

    def preface(self, call: Call) -> Preface:
        """Returns what the daemon is told of a call, whose certificate may name nobody."""
        where, certificate = call.session.where, call.session.certificate
        if not certificate:
            return Preface(TRANSPORT, where)
        try:
            tenant = self._tenant(certificate)
        except UsageError as error:
            log.info("%s: %s", where, error)
            return Preface(TRANSPORT, where)
        return Preface(TRANSPORT, where, tenant, authenticated=True)

    def _tenant(self, certificate: Mapping[str, Any]) -> str:
        """UsageError with a sentence."""
        if self._tenant_uri is None:
            parts = (part for name in certificate.get("subject", ()) for part in name)
            names = [value for key, value in parts if key == "commonName"]
        else:
            others = certificate.get("subjectAltName", ())
            uris = [value for kind, value in others if kind == "URI"]
            prefix = self._tenant_uri
            names = [uri.removeprefix(prefix) for uri in uris if uri.startswith(prefix)]
        if len(names) != 1:
            raise UsageError("the certificate names no tenant, or several")
        tenant = str(names[0])
        check_tenant(tenant)
        return tenant
