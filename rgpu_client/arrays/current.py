"""The array sessions of this process: one for each array library, opened when it is first used."""

from __future__ import annotations

import atexit
import threading
import warnings
from typing import TYPE_CHECKING

from rgpu_common.errors import NoSessionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rgpu_client.arrays.issuer import Issuer
    from rgpu_common.arrays.messages import Failure
    from rgpu_common.arrays.seams import Seam


class Current:
    """The session of one array library.

    raising: makes the exception for a failure on the node. begun: called with each session that is
    opened, before anything else uses it.
    """

    def __init__(self, seam: Seam, raising: Callable[[Failure], BaseException]) -> None:
        self._seam = seam
        self._raising = raising
        self._opening = threading.Lock()
        self._warned = ""
        self.begun: Callable[[Issuer], None] | None = None
        # None before the first use. Read without the lock, because every operation asks.
        self.issuer: Issuer | None = None

    def use(self, issuer: Issuer | None) -> None:
        """Makes a session the current one; None: the next use opens one."""
        self.issuer = issuer

    def current(self) -> Issuer:
        """Returns the session. The first use opens it, as the `RGPU_*` variables describe it.

        Raises:
            NoSessionError: the server does not answer, or refuses; the sentence says why.
            UsageError: a variable has a value that cannot be used.
        """
        if self.issuer is None:
            with self._opening:
                if self.issuer is None:
                    self.issuer = self._open()
        return self.issuer

    def available(self, *, warning: bool) -> bool:
        """Returns whether there is a session, and opens it if need be.

        warning: where there is none, a warning of the caller's caller says why, once. A program
        that asks goes on without the GPU.
        """
        try:
            self.current()
        except NoSessionError as error:
            if warning and str(error) != self._warned:
                self._warned = str(error)
                warnings.warn(str(error), stacklevel=3)
            return False
        return True

    def close(self) -> None:
        """Ends the session, if there is one."""
        issuer, self.issuer = self.issuer, None
        if issuer is not None:
            issuer.close()

    def _open(self) -> Issuer:
        from rgpu_client.arrays.opening import open_session

        try:
            opened = open_session(self._seam, self._raising)
        except NoSessionError as error:
            raise NoSessionError(
                f"{self._seam.title} has no session with a GPU node: {error}"
            ) from None
        atexit.register(self.close)
        if self.begun is not None:
            self.begun(opened.issuer)
        return opened.issuer
