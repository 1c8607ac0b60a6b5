"""Issues a function of the list: looks its signature up, or works out what the result will be.

A rule says what the result is without asking the node. Where there is none, the client asks the
first time, and remembers the answer for this signature if no element's value decides it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rgpu_client.cupy import _catalogue
from rgpu_client.cupy._form import Scan, node
from rgpu_client.cupy._handle import Handle, Opaque
from rgpu_client.cupy._meta import DTYPES, Meta, meta
from rgpu_client.cupy._session import learned
from rgpu_client.cupy._session import session as current_session
from rgpu_common.arrays.messages import UNKNOWN_OUTPUTS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rgpu_client.cupy._session import Entry, Session

    Rule = Callable[..., Any]


class _Nothing:
    """The result of an operation that has none."""


NOTHING: Final = _Nothing()
# What a rule returns if only the node can know, and the answer is good for this call alone.
ASK: Final = None


class Unsure(Exception):
    """A rule does not cover these arguments: the node is asked once for the signature."""


# Rules by name, and what a function's results depend on.
RULES: Final[dict[str, Rule]] = {}
# Functions whose whole numbers are values.
VALUES: Final[set[str]] = set()
# Functions of whose floating-point numbers the shape may depend.
CONSTANTS: Final[set[str]] = set()
# Functions whose results' shapes depend on elements, without a rule.
DYNAMIC: Final[set[str]] = set()
# Functions that return a list where the node returns several results.
LISTS: Final[set[str]] = set()
# What makes Python's objects of ids on the node, by the first letter of a description.
MAKERS: Final[dict[str, Callable[..., Handle]]] = {}


def call(name: str, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
    """Issues a function and returns its results, or `out` if that is given.

    Raises:
        TypeError: an argument is not of a type that CuPy takes.
        Exception: what the rule says is wrong, with NumPy's type and text.
    """
    quick = _quick(name, arguments) if not keywords else None
    if quick is not None:
        session, key, slots = quick
        entry = session.entries.get(key)
        if entry is not None:
            return finish(session, entry, key, slots, name)
    scan = Scan(name, None, name in VALUES, name in CONSTANTS or name not in RULES)
    for value in arguments:
        scan.add(value)
    for keyword, value in keywords.items():
        scan.key.append(keyword)
        scan.add(value)
    session = scan.session or current_session()
    key = tuple(scan.key)
    entry = session.entries.get(key)
    if entry is None:
        entry = _learn(session, key, scan, arguments, keywords)
    out = keywords.get("out")
    return finish(session, entry, key, scan.slots, name, out)


def _quick(name: str, arguments: Sequence[Any]) -> Any:
    """Returns session, key and slots of a call of arrays and small constants; else None. It does
    for the usual calls what Scan does for all.
    """
    key: list[Any] = [name]
    slots = []
    session = None
    values = name in VALUES
    for value in arguments:
        kind = type(value)
        if kind is int:
            if values:
                return None
            key += (int, value)
        elif value is None:
            key += (kind, None)
        elif isinstance(value, Handle):
            if value._session is not session:
                if session is not None:
                    return None
                session = value._session
            key.append(value._meta)
            slots.append(value._id)
        else:
            return None
    return None if session is None else (session, tuple(key), slots)


def finish(
    session: Session, entry: Entry, key: Any, slots: Sequence[Any], name: str, out: Any = None
) -> Any:
    """Runs a template and returns what its entry says."""
    result = entry.result
    if type(result) is Meta:
        made = session.new_id()
        session.run(entry.template, slots, (made,))
        return MAKERS["a"](session, made, result)
    if result is NOTHING:
        session.run(entry.template, slots, ())
        return out
    if result is None:
        return _ask(session, entry, key, slots, name)
    return _several(session, entry, slots)


def _several(session: Session, entry: Entry, slots: Sequence[Any]) -> Any:
    result = entry.result
    if isinstance(result, Parts | Other):
        made = session.new_id()
        session.run(entry.template, slots, (made,))
        if isinstance(result, Other):
            return _made(session, made, result)
        return _apart(session, Opaque(session, made, Opaque), result.kind, result.metas)
    ids = [session.new_id() for _ in result]
    session.run(entry.template, slots, ids)
    make = MAKERS["a"]
    return type(result)([make(session, one, known) for one, known in zip(ids, result, strict=True)])


class Parts:
    """Several results that the node keeps as one, of which the client takes each."""

    def __init__(self, kind: type, metas: Sequence[Any]) -> None:
        self.kind = kind
        self.metas = metas


def _learn(
    session: Session, key: Any, scan: Scan, arguments: Sequence[Any], keywords: Mapping[str, Any]
) -> Entry:
    name = scan.key[0]
    row = _catalogue.listed()[name]
    names = row.names(arguments, keywords)
    rule, result = RULES.get(name), None
    out = keywords.get("out")
    if rule is not None:
        try:
            result = rule(*arguments, **keywords)
        except Unsure:
            result = None
    if out is not None:
        result = NOTHING
    outputs = UNKNOWN_OUTPUTS
    if result is NOTHING:
        outputs = 0
    elif isinstance(result, tuple | list):
        outputs = len(result)
    elif result is not None:
        outputs = 1
    values, constants = scan.values, scan.constants
    given = [
        node(value, values, constants, parameter)
        for parameter, value in zip(names, arguments, strict=True)
    ]
    named = {word: node(value, values, constants, word) for word, value in keywords.items()}
    return session.learn(key, (name, given, named), result, outputs)


def _ask(session: Session, entry: Entry, key: Any, slots: Sequence[Any], name: str) -> Any:
    """Runs a template, asks what came out, and remembers it unless it depends on elements."""
    made = session.new_id()
    session.run(entry.template, slots, (made,))
    kept = Opaque(session, made, Opaque)
    described = session.issuer.describe([made])[0]
    known = _known(described, list if name in LISTS else tuple)
    if name not in DYNAMIC and entry.result is ASK:
        learned(entry, name, known)
        session.entries[key] = entry
    if isinstance(known, Parts):
        return _apart(session, kept, known.kind, known.metas)
    return _become(kept, known)


def _known(described: Any, kind: type) -> Any:
    """Returns a Meta, a Parts, or a key of another kind of object for a description."""
    if described[0] == "a":
        _, dtype, shape, strides = described
        return meta(DTYPES[dtype], tuple(shape), tuple(strides))
    if described[0] == "t":
        return Parts(kind, [_known(one, kind) for one in described[1]])
    return Other(described)


class Other:
    """What is known of an object that is no array: its description."""

    def __init__(self, described: Sequence[Any]) -> None:
        self.described = described


def _become(kept: Opaque, known: Any) -> Handle:
    """Returns an object for an id that was asked for. `kept` gives it up."""
    session, made = kept._session, kept._id
    # The new object frees it.
    del kept._id
    return _made(session, made, known)


def _made(session: Session, made: int, known: Any) -> Handle:
    if type(known) is Meta:
        return MAKERS["a"](session, made, known)
    make = MAKERS.get(known.described[0], Opaque)
    return make(session, made, _frozen(known.described))


def _frozen(described: Any) -> Any:
    """Returns a description that can be part of a key."""
    if isinstance(described, dict):
        return tuple((name, _frozen(value)) for name, value in sorted(described.items()))
    return tuple(map(_frozen, described)) if isinstance(described, list) else described


def _apart(session: Session, kept: Opaque, kind: type, metas: Sequence[Any]) -> Any:
    """Takes the parts of a result that the node keeps as one."""
    parts: list[Any] = []
    for at, known in enumerate(metas):
        entry = session.entries.get(("rgpu.part", at))
        if entry is None:
            operation: Any = ("rgpu.part", [["a"], at], {})
            entry = session.learn(("rgpu.part", at), operation, NOTHING, 1)
        made = session.new_id()
        session.run(entry.template, (kept._id,), (made,))
        if isinstance(known, Parts):
            inner = Opaque(session, made, Opaque)
            parts.append(_apart(session, inner, known.kind, known.metas))
        else:
            parts.append(_made(session, made, known))
    return kind(parts)
