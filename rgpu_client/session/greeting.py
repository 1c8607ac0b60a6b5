"""The HELLO of this process, as the `RGPU_*` variables describe its lease."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING

from rgpu_client.sizes import sizes_of
from rgpu_client.variables import variable
from rgpu_common import release
from rgpu_common.clusters import MAX_NAME, check_run_name
from rgpu_common.credentials import configured_access_token
from rgpu_common.texts import file_of_program
from rgpu_common.wire.fields import Wish, WishKey, clean_text
from rgpu_common.wire.handshake import MAX_NAME_BYTES, MAX_SENTENCE_BYTES
from rgpu_common.wire.hello import WISHES_MINOR, Hello

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# Interpreters, whose first word says nothing of the program, and their options with a value.
_INTERPRETER = re.compile(r"(python|pypy|ipython|julia|perl|ruby|node|Rscript)[0-9.]*")
_WITH_VALUE = ("-W", "-X")


def hello_of(
    environment: Mapping[str, str],
    program: str,
    key: str,
    device: int | None,
    wishes: Iterable[tuple[WishKey, int]],
    minor: int = WISHES_MINOR,
) -> Hello:
    """Returns a HELLO with the sizes that the variables ask for, and with further wishes.

    Raises:
        UsageError: a variable has a value that cannot be used.
    """
    sizes = sizes_of(environment)
    named = (
        (WishKey.MEMORY_PPM, sizes.memory.ppm or None),
        (WishKey.POLICY, None if sizes.policy is None else int(sizes.policy)),
        (WishKey.PRIORITY, sizes.priority),
        (WishKey.WEIGHT, sizes.weight),
        *wishes,
    )
    return Hello(
        minor=minor,
        release=release(),
        access_token=configured_access_token(environment),
        lease_key=key,
        tenant=sizes.tenant,
        container=clean_text(os.uname().nodename, MAX_NAME_BYTES),
        program=clean_text(program, MAX_SENTENCE_BYTES),
        pid=os.getpid(),
        device=-1 if device is None else device,
        memory_bytes=sizes.memory.bytes,
        share_request_ppm=sizes.share_ppm,
        share_limit_ppm=sizes.limit_ppm,
        wishes=tuple(Wish(name, value) for name, value in named if value is not None),
    )


def run_name(environment: Mapping[str, str], program: str) -> str:
    """Returns what a run is called: as RGPU_NAME says, else by its program's file.

    Raises:
        UsageError: RGPU_NAME is no name.
    """
    named = variable(environment, "RGPU_NAME", check_run_name)
    return named or file_of_program(program)[:MAX_NAME]


def program_name(words: Sequence[str] | None = None) -> str:
    """Returns the name of a program: of an interpreter also its script or module, never arguments,
    which may be secret. The driver library does the same (rgpu_client/shim/program.cc).

    words: the command line; by default that of this process.
    """
    words = sys.orig_argv if words is None else words
    if not words:
        return "python"
    name = words[0].rpartition("/")[2]
    if not _INTERPRETER.fullmatch(name):
        return name
    rest = iter(words[1:])
    for word in rest:
        if word in ("-c", "-"):
            return f"{name} {word}"
        if word == "-m":
            module = next(rest, "")
            return f"{name} -m {module}" if module else name
        if word in _WITH_VALUE:
            next(rest, "")
        elif word and not word.startswith("-"):
            return f"{name} {word.rpartition('/')[2]}"
    return name
