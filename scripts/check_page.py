"""Whether the page for browsers is built from its sources as they are; needs no Node.

python scripts/check_page.py    # after a change in web/: make page
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
WEB = ROOT / "web"
BUILT = ROOT / "rgpu_server" / "web" / "static" / "page.js"
# As in web/vite.config.ts, which writes the digest into what it builds.
SOURCES = ("index.html", "package-lock.json", "public", "src", "tsconfig.json", "vite.config.ts")


def digest() -> str:
    """Returns the digest of the sources."""
    found = hashlib.sha256()
    there = (one for name in SOURCES for one in (WEB / name, *(WEB / name).rglob("*")))
    for path in sorted(one.relative_to(WEB).as_posix() for one in there if one.is_file()):
        found.update(f"{path}\0".encode() + (WEB / path).read_bytes() + b"\0")
    return found.hexdigest()[:32]


if __name__ == "__main__":
    if f"Built from {digest()} */" not in BUILT.read_text(encoding="utf-8"):
        sys.exit("rgpu_server/web/static is not built from web/ as it is: run make page, commit it")
