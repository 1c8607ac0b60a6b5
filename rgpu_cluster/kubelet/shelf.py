"""The folder with the credentials of the claims that are prepared on this node.

```
CLAIM-UID/
  claim.json       what is prepared, for a plugin that starts again
  credentials/     mounted into the containers of the claim
    0              the credential for the first GPU node; 1 for the second
    ca.crt         the authorities that sign the servers' certificates, if the plugin has some
```

The folder is mounted, not the file: a mounted file would stay the old one after a rename. Only root
can enter the folder of all claims, and a container sees the credentials of its own claims alone.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import asdict

from rgpu_cluster.kubelet.claims import ClaimName, is_uid
from rgpu_cluster.kubelet.credentials import Credential
from rgpu_cluster.kubelet.files import replace_file
from rgpu_cluster.kubernetes.authority import read_authority

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger("rgpu.node-plugin")

CREDENTIALS, AUTHORITIES = "credentials", "ca.crt"
_RECORD = "claim.json"
_FORMAT = 1


class Held(Struct, frozen=True):
    """The credential of a claim for one GPU node. agent: who gave it; "": nobody. asked: when, in
    seconds since 1970. credential: without its token, if it was read from a file.
    """

    pool: str
    agent: str
    asked: float
    credential: Credential


class Prepared(Struct, frozen=True):
    """A claim that is prepared. user: who may read its credentials."""

    claim: ClaimName
    user: int
    held: tuple[Held, ...]


class Shelf:
    """root: the folder of all claims. authorities: a file for the containers; None: there is none.

    Raises:
        OSError: the folder cannot be made.
    """

    def __init__(self, root: Path, authorities: Path | None = None) -> None:
        self._root = root
        self._authorities = authorities
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        root.chmod(0o700)

    def credentials(self, uid: str) -> Path:
        """Returns the folder that the containers of a claim see."""
        return self._root / uid / CREDENTIALS

    @property
    def has_authorities(self) -> bool:
        """True if the containers get a file with authorities."""
        return self._authorities is not None

    def put(self, prepared: Prepared) -> None:
        """Writes credentials and record; OSError, or ConfigError about the authorities. What was
        there of this claim is replaced.
        """
        folder = self.credentials(prepared.claim.uid)
        folder.parent.mkdir(mode=0o700, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        os.chown(folder, prepared.user, -1)
        # The authorities are for whatever user an image names; each token is for its own alone.
        folder.chmod(0o555)
        for number, held in enumerate(prepared.held):
            if held.credential.token:
                token = f"{held.credential.token}\n"
                replace_file(folder / str(number), token, 0o400, prepared.user)
        if self._authorities is not None:
            replace_file(folder / AUTHORITIES, read_authority(self._authorities), 0o444)
        replace_file(folder.parent / _RECORD, _written(prepared), 0o600)

    def renew_authorities(self) -> int:
        """Gives the containers of all claims the authorities that there are now; returns how many
        had others. OSError, ConfigError.
        """
        if self._authorities is None:
            return 0
        text, count = read_authority(self._authorities), 0
        for uid in self.uids():
            file = self.credentials(uid) / AUTHORITIES
            if file.exists() and file.read_text(encoding="utf-8") != text:
                replace_file(file, text, 0o444)
                count += 1
        return count

    def remove(self, uid: str) -> None:
        """Removes all of a claim, if there is something; OSError."""
        folder = self._root / uid
        if folder.exists():
            # Without its record nobody takes it for prepared, even if the rest is not removed.
            (folder / _RECORD).unlink(missing_ok=True)
            shutil.rmtree(folder)

    def uids(self) -> list[str]:
        """Returns the UIDs of all claims that have something here."""
        return sorted(one.name for one in self._root.iterdir() if is_uid(one.name))

    def read(self) -> dict[str, Prepared]:
        """Returns the claims that are prepared, by UID, without those whose record is broken."""
        found = {}
        for uid in self.uids():
            try:
                text = (self._root / uid / _RECORD).read_text(encoding="utf-8")
                prepared = _read(json.loads(text))
            except (OSError, ValueError, KeyError, TypeError) as error:
                log.warning("what is prepared of claim %s is not known: %s", uid, error)
                continue
            if prepared.claim.uid == uid:
                found[uid] = prepared
        return found


def _written(prepared: Prepared) -> str:
    held = [
        {
            "pool": one.pool,
            "agent": one.agent,
            "asked": one.asked,
            "credential": one.credential.without_token(),
        }
        for one in prepared.held
    ]
    record = {
        "format": _FORMAT,
        "claim": asdict(prepared.claim),
        "user": prepared.user,
        "held": held,
    }
    return json.dumps(record, indent=1)


def _read(record: dict[str, Any]) -> Prepared:
    if record["format"] != _FORMAT:
        raise ValueError(f"its format is {record['format']}, not {_FORMAT}")
    held = tuple(
        Held(
            str(one["pool"]),
            str(one["agent"]),
            float(one["asked"]),
            Credential(token="", **one["credential"]),
        )
        for one in record["held"]
    )
    return Prepared(ClaimName(**record["claim"]), int(record["user"]), held)
