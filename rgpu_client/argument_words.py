"""Turns error sentences about options into sentences about arguments of functions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rgpu_client.settings import FIELDS, variable_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rgpu_common.errors import RgpuError

_ARGUMENTS = {variable_of(name): name for name in (*FIELDS, "transport")}
_NAMES = "|".join(_ARGUMENTS.values())
# An option as error sentences of the command line name it, perhaps together with its variable.
_OPTION = re.compile(rf"(?:RGPU_[A-Z]+, )?--({_NAMES})\b(?! *[=-])(?: or RGPU_[A-Z]+)?")
_QUOTED = re.compile(r"(`[^`]*`|'[^']*')")


def arguments_of(names: Iterable[str]) -> str:
    """Returns the arguments of `connect` that belong to these variables, as text for a sentence."""
    found = dict.fromkeys(_ARGUMENTS.get(name, "server") for name in names)
    return ", ".join(found)


def in_words_of_connect(error: RgpuError) -> RgpuError:
    """Returns the error with arguments in place of options, because the user has called a function.
    Commands that the sentence quotes stay unchanged.
    """
    pieces = _QUOTED.split(str(error))
    pieces[::2] = [
        _OPTION.sub(r"the argument \1", piece).replace("add --wait", "pass wait=True")
        for piece in pieces[::2]
    ]
    return type(error)("".join(pieces))
