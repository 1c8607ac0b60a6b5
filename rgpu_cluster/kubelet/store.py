"""What lies on this node for prepared claims: their credentials and their CDI specifications."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rgpu_cluster.kubelet.claims import ClaimName, check_uid
from rgpu_cluster.kubelet.errors import PrepareError
from rgpu_common.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rgpu_cluster.kubelet.cdi import CdiFolder
    from rgpu_cluster.kubelet.shelf import Prepared, Shelf


class Store:
    """Changes both folders together. Each call raises PrepareError if it fails."""

    def __init__(self, shelf: Shelf, cdi: CdiFolder) -> None:
        self.shelf = shelf
        self._cdi = cdi

    def put(self, prepared: Prepared, spec: Mapping[str, Any] | None = None) -> None:
        """Writes the credentials of a claim. spec: its CDI specification; None: it stays."""
        try:
            self.shelf.put(prepared)
            if spec is not None:
                self._cdi.put(prepared.claim.uid, spec)
        except ConfigError as error:
            raise PrepareError(f"{prepared.claim} gets no authority: {error}") from None
        except OSError as error:
            raise PrepareError(
                f"the credential of {prepared.claim} cannot be written on this node: "
                f"{error.filename}: {error.strerror}; make room there, or name other folders with "
                "--state and --cdi-dir"
            ) from None

    def remove(self, claim: ClaimName) -> None:
        """Removes all that is there of a claim, if there is something."""
        check_uid(claim)
        try:
            self._cdi.remove(claim.uid)
            self.shelf.remove(claim.uid)
        except OSError as error:
            raise PrepareError(
                f"what was prepared of {claim} cannot be removed: {error.filename}: "
                f"{error.strerror}; remove it by hand"
            ) from None

    def remove_all(self) -> int:
        """Removes what is there of all claims; returns of how many."""
        uids = {*self.shelf.uids(), *self._cdi.uids()}
        for uid in sorted(uids):
            self.remove(ClaimName("", uid, uid))
        return len(uids)
