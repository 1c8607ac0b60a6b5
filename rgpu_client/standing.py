"""The state that an earlier `rgpu_client.connect()` has left: its lease and the variables that it
has set. Also turns error sentences about options into sentences about arguments.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rgpu_client.session.start import CHOSEN
from rgpu_client.settings import FIELDS, variable_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rgpu_client.connection import Connection
    from rgpu_client.session.claim import Held
    from rgpu_common.errors import RgpuError

_PREFIX = "RGPU_"
_LEASE = "RGPU_LEASE"
_ARGUMENTS = {variable_of(name): name for name in (*FIELDS, "transport")}
_NAMES = "|".join(_ARGUMENTS.values())
# An option as error sentences of the command line name it, perhaps together with its variable.
_OPTION = re.compile(rf"(?:RGPU_[A-Z]+, )?--({_NAMES})\b(?! *[=-])(?: or RGPU_[A-Z]+)?")
_QUOTED = re.compile(r"(`[^`]*`|'[^']*')")


@dataclass(frozen=True, slots=True)
class Standing:
    """The result of a `connect`.

    named: whether the lease was named, by an argument or by RGPU_LEASE. before: the RGPU_*
    variables without those that `connect` sets. after: the variables as `connect` left them.
    """

    connection: Connection
    held: Held
    named: bool
    before: Mapping[str, str]
    after: Mapping[str, str]

    def without_own_lease(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Returns `environment` without the name of a lease that belongs to this process alone."""
        own = None if self.named else self.held.key
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


def rgpu_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the RGPU_* variables."""
    return {name: value for name, value in environment.items() if name.startswith(_PREFIX)}


def differences(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """Returns the RGPU_* variables that differ, apart from the note of how a path was chosen."""
    first, second = rgpu_variables(one), rgpu_variables(other)
    names = {*first, *second} - {CHOSEN}
    return sorted(name for name in names if first.get(name) != second.get(name))


def arguments_of(names: Iterable[str]) -> str:
    """Returns the arguments of `connect` that belong to these variables, as text for a sentence."""
    found = dict.fromkeys(_ARGUMENTS.get(name, "server") for name in names)
    return ", ".join(found)


def in_words_of_connect(error: RgpuError) -> RgpuError:
    """Returns the error with arguments in place of options, because the user has called a function.
    Commands that the sentence quotes stay unchanged.
    """
    pieces = _QUOTED.split(str(error))
    pieces[::2] = [_OPTION.sub(r"the argument \1", piece) for piece in pieces[::2]]
    return type(error)("".join(pieces))
