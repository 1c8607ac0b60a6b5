"""The state that an earlier `rgpu_client.connect()` has left: its lease and the variables that it
has set.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rgpu_client.program_environment import rgpu_variables
from rgpu_client.session.start import CHOSEN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rgpu_client.lease import Lease

_LEASE = "RGPU_LEASE"


@dataclass(frozen=True, slots=True)
class Standing:
    """The result of a `connect`.

    named: whether the lease was named, by an argument or by RGPU_LEASE. before: the RGPU_*
    variables without those that `connect` sets. after: the variables as `connect` left them.
    """

    lease: Lease
    named: bool
    before: Mapping[str, str]
    after: Mapping[str, str]

    def without_own_lease(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Returns `environment` without the name of a lease that belongs to this process alone."""
        own = None if self.named else self.lease.key
        return {k: v for k, v in environment.items() if not (k == _LEASE and v == own)}

    def undone(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Returns `environment` as it would be without `connect`, so that each call stands alone.
        A variable that the program has changed since keeps its value.
        """
        result = dict(environment)
        for name in {*self.before, *self.after} - {CHOSEN}:
            if result.get(name) != self.after.get(name):
                continue
            result.pop(name, None)
            if name in self.before:
                result[name] = self.before[name]
        return result

    def undo(self) -> None:
        """Restores the variables of this process."""
        undone = self.undone(os.environ)
        for name in rgpu_variables(os.environ):
            if name not in undone:
                del os.environ[name]
        os.environ.update(undone)


def differences(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """Returns the RGPU_* variables that differ, apart from the note of how a path was chosen."""
    first, second = rgpu_variables(one), rgpu_variables(other)
    names = {*first, *second} - {CHOSEN}
    return sorted(name for name in names if first.get(name) != second.get(name))
