"""What our clients asked the API server in a story, and what it said, as it is kept in a file.

An entry of a tape is a dictionary, and one line of the file:

- `{"user": WHAT}`: somebody does something to the cluster that our code sees only by its effects;
- `{"ask": "METHOD PATH", "type": TYPE, "sent": CONTENT, "code": 200, "content": CONTENT}`: a call,
  with what it sent if it sent something;
- `{"watch": "GET PATH"}`: a watch was opened; `{"event": N, "content": CONTENT}`: the watch that was
  opened as the N-th, from 0, said this.

Their order is that in which they happened, a call at the moment when it was made.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

Entry = dict[str, Any]
FOLDER = Path(__file__).parent / "recorded"

_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
_KNOWN = re.compile(r"00000000-0000-4000-8000-\d{12}")
# The names of our events, and of the volume with a pod's token.
_EVENT = re.compile(r"(?<=\.)[0-9a-f]{12}$")
_VOLUME = re.compile(r"(?<=^kube-api-access-)[a-z0-9]{5}$")
_OLD = re.compile(r"(?<=too old resource version: )\d+ \(\d+\)")
_VERSION = "resourceVersion"
_NOBODYS = "00000000-0000-4000-8000-000000000000"


@dataclass
class Plain:
    """Takes out what is other each time: times, UIDs, versions, random names, managedFields.

    known: the plain UIDs of those that the server has told. versions: the same of versions.
    """

    known: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def told(self, content: Any) -> Any:
        """Returns what the server said."""
        return self._walk(content, self._learn)

    def sent(self, content: Any) -> Any:
        """Returns what our code sent.  UIDs that it made up are all the same."""
        return self._walk(content, self._recall)

    def path(self, path: str) -> str:
        """Returns the path of a call with its query in order."""
        url = urlsplit(path)
        words = [(k, self._version(v) if k == _VERSION else v) for k, v in parse_qsl(url.query)]
        return url.path + ("?" + urlencode(sorted(words), safe="/=,*") if words else "")

    def _learn(self, uid: str) -> str:
        return self.known.setdefault(uid, f"00000000-0000-4000-8000-{len(self.known) + 1:012}")

    def _recall(self, uid: str) -> str:
        return uid if _KNOWN.fullmatch(uid) else self.known.get(uid, _NOBODYS)

    def _version(self, version: str) -> str:
        return self.versions.get(version, version)

    def _walk(self, value: Any, uids: Callable[[str], str], key: str = "") -> Any:
        if isinstance(value, dict):
            return {k: self._walk(v, uids, k) for k, v in value.items() if k != "managedFields"}
        if isinstance(value, list):
            return [self._walk(one, uids) for one in value]
        if not isinstance(value, str):
            return value
        if key == _VERSION:
            return self._version(value)
        if _TIME.fullmatch(value):
            return "2026-01-01T00:00:00Z"
        value = _OLD.sub("1 (2)", _VOLUME.sub("00000", _EVENT.sub("0" * 12, value)))
        return _UUID.sub(lambda found: uids(found[0]), value)


def plain(entries: Iterable[Entry]) -> list[Entry]:
    """Returns a tape without what is other at each recording."""
    entries = [*entries]
    numbers = sorted({int(v) for one in entries for v in _versions(one) if v.isdecimal()} - {0})
    way = Plain(versions={str(v): str(n) for n, v in enumerate(numbers, 1)})
    return [_plain(way, one) for one in entries]


def _plain(way: Plain, entry: Entry) -> Entry:
    made = dict(entry)
    for key in ("ask", "watch"):
        if key in made:
            method, path = made[key].split(" ", 1)
            made[key] = f"{method} {way.path(path)}"
    if "sent" in made:
        made["sent"] = way.sent(made["sent"])
    if "content" in made:
        made["content"] = way.told(made["content"])
    return made


def _versions(value: Any, key: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for name, one in value.items():
            yield from _versions(one, name)
    elif isinstance(value, list):
        for one in value:
            yield from _versions(one)
    elif key == _VERSION:
        yield str(value)


def write(name: str, version: str, entries: Iterable[Entry]) -> None:
    """Writes the tape of a story. version: that of Kubernetes."""
    FOLDER.mkdir(exist_ok=True)
    rows = ",\n".join(json.dumps(one, sort_keys=True) for one in entries)
    (FOLDER / f"{name}.json").write_text(f'{{"kubernetes": "{version}", "tape": [\n{rows}\n]}}\n')


def read(name: str) -> list[Entry]:
    """Returns the tape of a story."""
    return list(json.loads((FOLDER / f"{name}.json").read_text())["tape"])
