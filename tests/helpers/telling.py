"""Objects with a process whose output a failing test shows."""

from __future__ import annotations

import sys
from abc import abstractmethod
from types import TracebackType

from rgpu_common.closing import Closing


class Telling(Closing):
    """Closes itself when its `with` statement ends. If that ends by an exception, the output of the
    process goes to stderr.
    """

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
        if error is not None:
            sys.stderr.write(f"--- {type(self).__name__.lower()}\n{self.told()}")

    @abstractmethod
    def told(self) -> str:
        """Returns what the process has said; called after `close`."""
