"""Messages of the array seam (docs/adr/0040-array-seam.md).

A message is a frame with a head in msgpack and a body of raw bytes. The client sends OPERATIONS, a
list that the worker executes in order. The worker sends an ANSWER to each operation that asks.

    DEFINE    [1, template, operation, arguments, keywords, outputs]
    RUN       [2, template, slots, ids]      executes a template; its results get the ids
    PUT       [3, id, dtype, shape, bytes]   makes an array of the next bytes of the body
    FREE      [4, ids]
    READ      [5, request, id]               -> dtype, shape, and the elements as the body
    DESCRIBE  [6, request, ids]              -> a description of each object
    SYNC      [7, request]                   -> nothing; everything before is done
    FORGET    [8, template]
    ASK       [9, request, question, details]    -> what the library answers
    COPY      [10, request, id, source, dtype, shape, digest]
                                             -> whether the new array has the elements of `source`,
                                             which must have this SHA-256; if not, there is none
    MARK      [11, request, bytes, beside]   -> for how many ns the worker has worked for what came
                                             before, and how many bytes more the lease has room for;
                                             refused if it has none for `bytes` and `beside`, of
                                             which the text of the error names `bytes`. 0: not asked

The client does not wait for the answer to a MARK: it is how it knows how far the worker is.

Ids of objects, templates and requests are numbers from 1 that the client chooses. An operation that
fails makes its results *poisoned*: whoever reads one gets the error of that operation.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

# Opcodes of the two messages.
OPERATIONS: Final = 1
ANSWER: Final = 2

# A head that is longer is cut into several messages; one operation must fit.
MOST_HEAD_BYTES: Final = 64 << 10
MOST_TEMPLATES: Final = 16384
# Parts of the arguments of all templates of a session.
MOST_PARTS: Final = 1 << 19
MOST_OBJECTS: Final = 1 << 20
MOST_ID: Final = (1 << 63) - 1
MOST_DIMENSIONS: Final = 64
MOST_ITEMS: Final = 65536
MOST_DEPTH: Final = 8
MOST_BODY_BYTES: Final = 1 << 40


class Op(IntEnum):
    """The first element of an operation."""

    DEFINE = 1
    RUN = 2
    PUT = 3
    FREE = 4
    READ = 5
    DESCRIBE = 6
    SYNC = 7
    FORGET = 8
    ASK = 9
    COPY = 10
    MARK = 11


class Tag:
    """The first element of a list in a template's arguments. What is no list stands for itself.

    SLOT_OBJECT, SLOT_VALUE, SLOT_COMPLEX and SLOT_SCALAR take the next value of a RUN: an id; a
    number, None or text; two floats; a number, or two floats, that become a scalar of the dtype
    named here.
    """

    SLOT_OBJECT = "a"
    SLOT_VALUE = "v"
    SLOT_COMPLEX = "c"
    SLOT_SCALAR = "k"
    LIST = "l"
    TUPLE = "t"
    MAP = "m"
    DTYPE = "T"
    COMPLEX = "C"
    SLICE = "S"
    ELLIPSIS = "E"
    # Something that only the library knows, as a memory format: [LIBRARY, kind, text].
    LIBRARY = "L"


# The client does not know how many results an operation has; all of them become one list object.
UNKNOWN_OUTPUTS: Final = -1


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an operation failed.

    type: the name of the exception's class with its module, as `builtins.ValueError`. number: the
    operation's place among all DEFINE, RUN and PUT of the session, from 1. name: what it is called.
    """

    type: str
    text: str
    number: int = 0
    name: str = ""

    def packed(self) -> list[Any]:
        """Returns the form in an answer."""
        return [self.type, self.text, self.number, self.name]

    @classmethod
    def of(cls, packed: list[Any]) -> Failure:
        """Returns what `packed` returned."""
        kind, text, number, name = packed
        return cls(str(kind), str(text), int(number), str(name))
