"""Whether a question comes from the page itself. Pure.

A browser sends questions for every page that it shows, also from a stranger's page to an address
that only this machine can reach. Such a question names the stranger in `Origin`, says `cross-site`
in `Sec-Fetch-Site`, and cannot hold a header that the stranger's page was not allowed to set. A
stranger's name that suddenly leads to our address is still in `Host`.
"""

from __future__ import annotations

import hmac
import ipaddress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

# A header that only the page itself can set; its value is given to nobody else.
SECRET_HEADER = "x-rgpu-page"
# Headers by which a proxy says that the question comes from elsewhere.
_FORWARDED = frozenset(
    {"forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip"}
)


def strange_host(host: str, names: Collection[str]) -> str:
    """Returns why the page does not answer to the name in `Host`; "" if it does."""
    try:
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        name = ""
    if not name:
        return "the question names no host"
    if name == "localhost" or name.endswith(".localhost") or name in names:
        return ""
    try:
        ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return (
            f"this page is not known as {name[:100]!r}: use its IP address or `localhost`, or have "
            "the operator add the name to web.hosts"
        )
    return ""


def strange_origin(headers: Mapping[str, str]) -> str:
    """Returns why a question comes from another page; "" if it does not."""
    origin, host = headers.get("origin"), headers.get("host", "")
    if origin is not None and _netloc(origin) != host.lower():
        return "the question comes from another page than this one"
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return "the question comes from another site than this one"
    return ""


def _netloc(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def knows_secret(headers: Mapping[str, str], secret: str) -> bool:
    """True if an order was made by a page that has asked this process who it is."""
    return hmac.compare_digest(headers.get(SECRET_HEADER, "").encode(), secret.encode())


def was_forwarded(headers: Mapping[str, str]) -> bool:
    """True if a proxy has brought the question, which may come from any machine then."""
    return not _FORWARDED.isdisjoint(headers)
