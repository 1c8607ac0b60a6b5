"""The Certificates of docs/how-to/kubernetes.md, by cert-manager's own CRDs.

cert-manager itself does not run: a cluster that has it makes the Secrets that these name.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from helpers import certmanager, pages
from helpers.kube_deploy import BASE
from helpers.kube_objects import Space, install_crds, make
from helpers.kubernetes import ControlPlane
from helpers.needs import fixture_needs
from lightkube import ApiError
from lightkube.generic_resource import create_namespaced_resource
from lightkube.resources.apiextensions_v1 import CustomResourceDefinition

PAGE = "how-to/kubernetes.md"
KINDS = ("certificates", "issuers")
Certificate = create_namespaced_resource("cert-manager.io", "v1", "Certificate", "certificates")
Issuer = create_namespaced_resource("cert-manager.io", "v1", "Issuer", "issuers")


@pytest.fixture(scope="module")
@fixture_needs("certmanager")
def served(plane: ControlPlane) -> Iterator[None]:
    """The API server knows Certificates and Issuers."""
    client = plane.client()
    folder = certmanager.folder(offline=True)
    install_crds(client, [folder / f"cert-manager.io_{kind}.yaml" for kind in KINDS])
    yield
    for kind in KINDS:
        client.delete(CustomResourceDefinition, f"{kind}.cert-manager.io")


def written() -> list[dict[str, Any]]:
    """Returns the Certificates of the page."""
    found = re.search(r"```\n(apiVersion: cert-manager.*?)```", pages.text_of(PAGE), re.DOTALL)
    assert found
    return list(yaml.safe_load_all(found[1]))


def mounted() -> set[str]:
    """Returns the Secrets with certificates that the manifests mount."""
    return set(
        re.findall(r"secretName: (rgpu-tls[\w-]*)", "".join(map(_text, BASE.glob("*.yaml"))))
    )


def _text(file: Any) -> str:
    return str(file.read_text())


def put(space: Space, content: dict[str, Any]) -> dict[str, Any]:
    """Creates the object in the test's namespace; returns its spec as the API server keeps it."""
    metadata = {**content["metadata"], "namespace": space.name}
    return dict(make(space.client, {**content, "metadata": metadata}).to_dict()["spec"])


@pytest.mark.usefixtures("served")
def test_the_certificates_of_the_page_are_cert_managers(space: Space) -> None:
    certificates = written()
    assert {one["spec"]["secretName"] for one in certificates} == mounted()
    for one in certificates:
        # It drops what it does not know.
        assert put(space, one) == one["spec"]
    # And it does look: a usage that there is not, and a key too small for any.
    for wrong in ({"usages": ["server-auth"]}, {"privateKey": {"algorithm": "AES"}}):
        bad = copy.deepcopy(certificates[0])
        bad["metadata"]["name"] = "bad"
        bad["spec"].update(wrong)
        with pytest.raises(ApiError, match="Unsupported value"):
            put(space, bad)


@pytest.mark.usefixtures("served")
def test_the_issuer_of_the_page_is_cert_managers(space: Space) -> None:
    (text,) = re.findall(r"\(such as `(ca: \{.*?\})`\)", pages.text_of(PAGE))
    spec = yaml.safe_load(text.replace("...", "authority"))
    issuer = {"apiVersion": "cert-manager.io/v1", "kind": "Issuer", "metadata": {"name": "rgpu"}}
    assert put(space, {**issuer, "spec": spec}) == spec
    names = {
        (one["spec"]["issuerRef"]["kind"], one["spec"]["issuerRef"]["name"]) for one in written()
    }
    assert names == {("Issuer", "rgpu")}
