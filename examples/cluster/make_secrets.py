"""Makes the secrets of the demo in a folder: access tokens, and a certificate of the proxy.

python examples/cluster/make_secrets.py FOLDER.  What is there already stays.  The files can be read
by everybody who may pass through the folder, which only its owner may: a container engine shows
each to the containers that name it, with the rights that it has here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path


def certificate(folder: Path, name: str) -> None:
    """A certificate that is its own authority."""
    if (folder / f"{name}.crt").exists():
        return
    if shutil.which("openssl") is None:
        sys.exit("install openssl: apt-get install openssl")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "30", "-subj", f"/CN={name}", "-addext"]
    command += [f"subjectAltName=DNS:{name}", "-keyout", str(folder / f"{name}.key")]
    subprocess.run([*command, "-out", str(folder / f"{name}.crt")], check=True, capture_output=True)


def access_token(folder: Path, tenant: str) -> None:
    """A tenant's access token in a file, and its hash in the server's."""
    if (folder / tenant).exists():
        return
    rgpu = shutil.which("rgpu", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if rgpu is None:
        sys.exit("install rgpu-cuda: python -m pip install .")
    files = ["--tokens", str(folder / "tokens.toml"), "--file", str(folder / tenant)]
    subprocess.run([rgpu, "token", "new", tenant, *files], check=True, capture_output=True)


def make(folder: Path) -> None:
    """Makes what is not there."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    certificate(folder, "proxy")
    for tenant in ("operator", "bob", "carol", "nodes"):
        access_token(folder, tenant)
    for file in folder.iterdir():
        file.chmod(0o644)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python make_secrets.py FOLDER")
    make(Path(sys.argv[1]))
