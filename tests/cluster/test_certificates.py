"""The tenant of a certificate, by gRPC's words for it."""

from __future__ import annotations

import pytest

from rgpu_cluster.manager.certificates import tenant_of


@pytest.mark.parametrize(
    ("subject", "tenant"),
    [
        (b"CN=alice", "alice"),
        (b"CN=alice,O=lab", "alice"),
        (b"O=lab,CN=alice", "alice"),
        (rb"CN=a\,b", "a,b"),
        (rb"CN=J\C3\B6rg", "J\u00f6rg"),
        (rb"CN=a\+CN=b", "a+CN=b"),
        (rb"O=x\,CN=bob,CN=alice", "alice"),
        (b"O=lab", ""),
        (b"CN=bob,CN=alice", ""),
        (b"CN=bob+CN=alice", ""),
        (rb"CN=alice\00bob", ""),
        (rb"CN=alice\0Abob", ""),
        (rb"CN=\FF", ""),
        (b"CN=*", ""),
        (b"CN=", ""),
    ],
)
def test_the_only_common_name_is_the_tenant(subject: bytes, tenant: str) -> None:
    assert tenant_of({"x509_subject": [subject], "x509_common_name": [b"alice"]}, "") == tenant


def test_the_tenant_in_a_uri() -> None:
    prefix = "rgpu://tenant/"
    uris = [b"spiffe://x/y", b"rgpu://tenant/alice"]
    assert tenant_of({"peer_uri": uris, "x509_subject": [b"CN=bob"]}, prefix) == "alice"
    assert tenant_of({"x509_subject": [b"CN=bob"]}, prefix) == ""
    assert tenant_of({"peer_uri": [*uris, b"rgpu://tenant/bob"]}, prefix) == ""


def test_without_a_certificate_there_is_none() -> None:
    assert tenant_of({"transport_security_type": [b"ssl"]}, "") == ""
