"""Objects with a process whose output a failing test shows."""

from __future__ import annotations

import sys
from abc import abstractmethod
from types import TracebackType

from rgpu_common.closing import Closing

# Whether the test that runs now has failed.  A fixture hears of no exception of its test.
test_failed = False


def note_test(*, failed: bool) -> None:
    """Notes how a test has gone so far, before its fixtures end."""
    global test_failed
    test_failed = failed


class Telling(Closing):
    """Closes itself when its `with` statement ends. If that ends by an exception, or in a fixture of
    a test that has failed, the output of the process goes to stderr.
    """

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
        if error is not None or test_failed:
            sys.stderr.write(f"--- {type(self).__name__.lower()}\n{self.told()}")

    @abstractmethod
    def told(self) -> str:
        """Returns what the process has said; called after `close`."""
