"""Writes docs/reference/json.md and json-schema.json: what commands print with --json.

python scripts/gen_json_page.py

Most commands print messages of the control-plane API, whose fields are read from the protos, with
the comments there. Other commands print objects that a TypedDict or a dataclass describes.
"""

from __future__ import annotations

import json
import re
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from netprobe.forms import Probed
from rgpu_client.background.list import BackgroundRow
from rgpu_client.cluster.reserve import Reserved
from rgpu_client.observe.nvml import Node
from rgpu_client.trace import Trace
from rgpu_cluster.kubernetes.explain_cli import Explained
from rgpu_common.doctor.findings import Report
from rgpu_common.v1 import (
    cluster_pb2,
    device_pb2,
    lease_pb2,
    log_pb2,
    node_pb2,
    observe_pb2,
    session_pb2,
)
from rgpu_server.identity.cli import TokenList

ROOT = Path(__file__).parent.parent
PROTOS = ROOT / "protos" / "rgpu_common" / "v1"
PAGE = ROOT / "docs" / "reference" / "json.md"
SCHEMA = ROOT / "docs" / "reference" / "json-schema.json"


@dataclass(frozen=True)
class Listing:
    """What a command prints: a message, lists of messages or types and numbers by name, or a type.

    cluster: it asks all nodes of a cluster if a manager is named.
    """

    command: str
    name: str = ""
    message: Any = None
    groups: dict[str, Any] = field(default_factory=dict)
    numbers: dict[str, str] = field(default_factory=dict)
    forms: dict[str, Any] = field(default_factory=dict)
    form: Any = None
    cluster: bool = False


LISTINGS = (
    Listing("rgpu devices --json", message=device_pb2.ListDevicesResponse, cluster=True),
    Listing("rgpu ps --json", "Ps",
            groups={"sessions": session_pb2.Session, "leases": session_pb2.LeaseUsage,
                    "waiting": session_pb2.WaitingClaim},
            numbers={"others_waiting": "Claims of other tenants that wait."}, cluster=True),
    Listing("rgpu ps --all --json", "PsAll",
            groups={"sessions": session_pb2.Session, "leases": session_pb2.LeaseUsage,
                    "waiting": session_pb2.WaitingClaim, "ended": log_pb2.LogEntry},
            numbers={"others_waiting": "Claims of other tenants that wait."},
            forms={"background": BackgroundRow}),
    Listing("rgpu top --json", message=observe_pb2.GetNowResponse, cluster=True),
    Listing("rgpu smi --json", form=Node, cluster=True),
    Listing("rgpu quota report --json", message=observe_pb2.GetRecordResponse, cluster=True),
    Listing("rgpu lease list --json", "LeaseList", groups={"leases": lease_pb2.Lease},
            cluster=True),
    Listing("rgpu logs --json", message=log_pb2.GetLogResponse, cluster=True),
    Listing("rgpu logs --follow --json", message=log_pb2.LogEntry),
    Listing("rgpu tenants --json", "TenantList", groups={"tenants": node_pb2.TenantQuota},
            cluster=True),
    Listing("rgpu token list --json", form=TokenList),
    Listing("rgpu pool --json", message=cluster_pb2.GetPoolResponse),
    Listing("rgpu pool --events --json", "Events", groups={"events": cluster_pb2.ClusterEvent}),
    Listing("rgpu explain REQUEST --json", message=cluster_pb2.ExplainResponse),
    Listing("rgpu explain pod/NAME --json", form=Explained),
    Listing("rgpu reserve --json", form=Reserved),
    Listing("rgpu probe --json", form=Probed),
    Listing("rgpu trace --json", form=Trace),
    Listing("rgpu doctor --json", form=Report),
)  # fmt: skip
INTRO = """# JSON output

For people who read what commands print with a program. Every command that lists something takes
`--json` and then prints one JSON object. `scripts/gen_json_page.py` writes this page, and the same
as a [JSON Schema](json-schema.json) (draft 2020-12), from the code; a test holds the output of each
command against it.

Sizes are bytes, times seconds (names that end in `_ns`: nanoseconds), shares millionths of a device
(`_ppm`). A field is always there; `null` means that it does not apply. Later releases add fields,
and do not rename or remove any within a major version: skip fields that you do not know.

A command that asks [all nodes of a cluster](../how-to/small-cluster.md#one-view) prints
`{"nodes": [...]}` with a row for each node: its name `node`, the address `server` of its server,
`answer` with what the table below says, and `failure` with a sentence if there is no answer (else
one of the two is `null`). `rgpu ps` adds `waiting` and `others_waiting`, the requests that wait at
the manager, as `rgpu pool` prints them. In the schema these are `commands_of_a_cluster`.

```sh
rgpu ps --json | python -c 'import json, sys; print(len(json.load(sys.stdin)["sessions"]))'
```
"""


def schema() -> dict[str, Any]:
    """Returns the JSON Schema of all commands."""
    comments = read_comments()
    definitions: dict[str, Any] = {}
    commands, of_clusters = {}, {}
    for listing in LISTINGS:
        name = _define(listing, definitions, comments)
        commands[listing.command] = {"$ref": f"#/$defs/{name}"}
        if listing.cluster:
            of_clusters[listing.command] = _of_cluster(name, waiting=listing.name == "Ps")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What commands of rgpu print with --json",
        "commands": commands,
        "commands_of_a_cluster": of_clusters,
        "$defs": dict(sorted(definitions.items())),
    }


def _of_cluster(name: str, *, waiting: bool) -> dict[str, Any]:
    """Returns what is printed for all nodes of a cluster. name: what one of them answers."""
    text = {"type": "string"}
    row = {
        "node": text,
        "server": text,
        "failure": {"anyOf": [text, {"type": "null"}]},
        "answer": {"anyOf": [{"$ref": f"#/$defs/{name}"}, {"type": "null"}]},
    }
    fields: dict[str, Any] = {"nodes": {"type": "array", "items": _object(row, "")}}
    if waiting:
        fields["waiting"] = {"type": "array", "items": {"$ref": "#/$defs/PoolWaiting"}}
        fields["others_waiting"] = {"type": "integer"}
    return _object(fields, "")


def _define(listing: Listing, definitions: dict[str, Any], comments: Comments) -> str:
    """Adds what the command prints, and returns its name."""
    if listing.form is not None:
        return _form(listing.form, definitions)
    if listing.message is not None:
        return _message(listing.message.DESCRIPTOR, definitions, comments)
    fields: dict[str, Any] = {}
    for name, message in listing.groups.items():
        target = _message(message.DESCRIPTOR, definitions, comments)
        fields[name] = {"type": "array", "items": {"$ref": f"#/$defs/{target}"}}
    for name, form in listing.forms.items():
        target = _form(form, definitions)
        fields[name] = {"type": "array", "items": {"$ref": f"#/$defs/{target}"}}
    for name, about in listing.numbers.items():
        fields[name] = {"type": "integer", "description": about}
    _add(definitions, {listing.name: _object(fields, "")})
    return listing.name


def _form(form: Any, definitions: dict[str, Any]) -> str:
    """Adds a type, and returns its name."""
    plain, parts = msgspec.json.schema_components([form], ref_template="#/$defs/{name}")
    for part in parts.values():
        part.pop("additionalProperties", None)
        part["description"] = _joined(part.get("description", ""))
        if "properties" in part:
            part["required"] = list(part["properties"])
            for one in part["properties"].values():
                one.pop("default", None)
    _add(definitions, parts)
    return str(plain[0]["$ref"]).rpartition("/")[2]


def _object(fields: dict[str, Any], about: str) -> dict[str, Any]:
    described = {"description": about} if about else {}
    return {"type": "object", **described, "properties": fields, "required": list(fields)}


def _add(definitions: dict[str, Any], more: dict[str, Any]) -> None:
    for name, one in more.items():
        if definitions.setdefault(name, one) != one:
            raise ValueError(f"two objects have the name {name}")


def _message(descriptor: Any, definitions: dict[str, Any], comments: Comments) -> str:
    name = str(descriptor.name)
    if name not in definitions:
        definitions[name] = {}  # a message may contain itself
        about, of_fields = comments.get(name, ("", {}))
        fields = {}
        for one in descriptor.fields:
            form = _field(one, definitions, comments)
            said = of_fields.get(one.name, "")
            fields[one.name] = {**form, "description": said} if said else form
        definitions[name] = _object(fields, about)
    return name


_SCALARS = {"float": "number", "str": "string", "bool": "boolean", "int": "integer"}


def _field(one: Any, definitions: dict[str, Any], comments: Comments) -> dict[str, Any]:
    if one.message_type is not None:
        form = {"$ref": f"#/$defs/{_message(one.message_type, definitions, comments)}"}
    elif one.enum_type is not None:
        # A number: a later release has a name for it.
        form = {"enum": [value.name for value in one.enum_type.values]}
        form = {"anyOf": [form, {"type": "integer"}]}
    else:
        form = {"type": _SCALARS[type(one.default_value if not one.is_repeated else
                                      _default(one)).__name__]}  # fmt: skip
    if one.is_repeated:
        return {"type": "array", "items": form}
    if one.has_presence:
        return {"anyOf": [form, {"type": "null"}]}
    return form


def _default(one: Any) -> Any:
    """Returns a value of the type of a repeated field's items."""
    return {
        one.CPPTYPE_STRING: "", one.CPPTYPE_BOOL: False, one.CPPTYPE_DOUBLE: 0.0,
        one.CPPTYPE_FLOAT: 0.0,
    }.get(one.cpp_type, 0)  # fmt: skip


# Message -> (its comment, field -> the field's comment).
Comments = dict[str, tuple[str, dict[str, str]]]
_MESSAGE = re.compile(r"message (\w+) \{")
_FIELD = re.compile(r"(?:optional |repeated )?[\w.]+ (\w+) = \d+;")


def read_comments() -> Comments:
    """Returns the comments of the protos."""
    found: Comments = {}
    for path in sorted(PROTOS.glob("*.proto")):
        said: list[str] = []
        fields: dict[str, str] = {}
        for line in map(str.strip, path.read_text(encoding="utf-8").splitlines()):
            if line.startswith("//"):
                said.append(line.removeprefix("//").strip())
                continue
            if message := _MESSAGE.match(line):
                fields = {}
                found[message[1]] = (" ".join(said), fields)
            elif one := _FIELD.match(line):
                fields[one[1]] = " ".join(said)
            said = []
    return found


def _joined(text: str) -> str:
    return " ".join(text.split())


def page(whole: dict[str, Any]) -> str:
    """Returns the page in Markdown."""
    lines = [INTRO, "## Commands", "", "| command | prints |", "| -- | -- |"]
    for command, form in whole["commands"].items():
        lines.append(f"| `{command}` | {_type(form)} |")
    lines += ["", "## Objects", ""]
    for name, one in whole["$defs"].items():
        lines += [f"### {name}", ""]
        if one.get("description"):
            prose = _prose(one["description"])
            lines += [
                *textwrap.wrap(prose, 100, break_long_words=False, break_on_hyphens=False),
                "",
            ]
        if "properties" not in one:
            lines += [f"One of {', '.join(f'`{json.dumps(v)}`' for v in one['enum'])}.", ""]
            continue
        lines += ["| field | type | meaning |", "| -- | -- | -- |"]
        for field_name, form in one["properties"].items():
            about = _prose(form.get("description", ""))
            lines.append(f"| `{field_name}` | {_type(form)} | {about} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _prose(text: str) -> str:
    """Returns a comment as Markdown: what stands between backquotes stays as it is."""
    parts = re.split(r"(`[^`]*`)", text)
    escaped = [p if p.startswith("`") else re.sub(r"([<>*\[\]|])", r"\\\1", p) for p in parts]
    return "".join(escaped)


def _type(form: dict[str, Any]) -> str:
    if "$ref" in form:
        name = form["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in form:
        return " or ".join(_type(one) for one in form["anyOf"])
    if "enum" in form:
        return ", ".join(f"`{json.dumps(value)}`" for value in form["enum"])
    kind = form.get("type", "any value")
    if kind == "array":
        return f"list of {_type(form.get('items') or {})}"
    return str(kind)


def main() -> None:
    """Writes both files."""
    whole = schema()
    SCHEMA.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(whole), encoding="utf-8")


if __name__ == "__main__":
    main()
