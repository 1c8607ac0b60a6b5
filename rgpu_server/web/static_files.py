"""The files of the page, which `make page` builds from `web/`."""

from __future__ import annotations

import hashlib
from importlib.resources import files

from msgspec import Struct

from rgpu_common.errors import MissingPartError

_KINDS = {
    "index.html": "text/html; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "page.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


class StaticFile(Struct, frozen=True):
    """tag: for browsers that have the file already."""

    kind: str
    content: bytes
    tag: str


def static_files() -> dict[str, StaticFile]:
    """Returns path -> file; MissingPartError if the package was built without them."""
    found = {}
    folder = files("rgpu_server.web") / "static"
    for name, kind in _KINDS.items():
        try:
            content = (folder / name).read_bytes()
        except OSError:
            raise MissingPartError(
                f"the page's file {name} is not installed: install the wheel again, or run "
                "`make page` in the sources"
            ) from None
        tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        found["/" if name == "index.html" else f"/{name}"] = StaticFile(kind, content, tag)
    return found
