"""The statements with which generated Python code writes, reads and checks a message's field."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudaspec.gen.field_form import FieldForm
from cudaspec.load_messages import SCALAR_BYTES

if TYPE_CHECKING:
    from cudaspec.message import Message, Messages, Part

_CODES = {"u8": "B", "u16": "H", "u32": "I", "i32": "i", "u64": "Q", "i64": "q"}
_FORMS = {
    "magic": FieldForm("int", put='w.put("u32", MAGIC)', get="get_magic(r)"),
    "zero": FieldForm("int", put='w.put("u32", 0)', get='get_zero(r, "{what}")'),
    "count": FieldForm("int", put='w.put("u32", len({value}))',
                       get='{name}_count = get_count(r, {most}, "{what}")'),
    "bool": FieldForm("bool", "False", 'w.put("u8", int({value}))', 'get_bool(r, "{what}")'),
    "text": FieldForm("str", '""', get="r.text({most})"),
    "string": FieldForm("str", '""', "w.put_text({value})", "r.printable({most})"),
    "line": FieldForm(
        "str", '""', "w.put_text(clean_text({value}, {most}))", "get_line(r, {most})"
    ),
    "strings": FieldForm(
        "tuple[str, ...]", "()", "put_strings(w, {value})", "get_strings(r, {most})"
    ),
    "bytes": FieldForm("bytes", 'b""', "w.put_bytes({value})", "r.sized({most})"),
    "secret": FieldForm(
        "bytes", "bytes(SECRET_BYTES)", "w.put_bytes({value})",
        'get_exactly(r, SECRET_BYTES, "secret")',
    ),
    "digest": FieldForm(
        "bytes", "bytes(32)", "w.put_bytes({value})", 'get_exactly(r, 32, "{what}")'
    ),
    "uuid": FieldForm(
        "bytes", "bytes(16)", "w.put_bytes({value})", 'get_exactly(r, 16, "{what}")'
    ),
    "band": FieldForm(
        "Band", "NO_BAND", 'w.put("u64", {value}.base)\nw.put("u64", {value}.size)',
        'get_band(r, "{what}")',
    ),
    "bands": FieldForm(
        "tuple[Band, ...]", "()", 'put_rows(w, "<QQ", {value})', 'get_bands(r, "{what}")'
    ),
    "wishes": FieldForm(
        "tuple[Wish, ...]", "()", 'put_rows(w, "<HQ", {value})', "get_wishes(r)"
    ),
    "u16[]": FieldForm("tuple[int, ...]", "()"),
}  # fmt: skip
_OTHER = FieldForm("")
# An item of a list, and the functions that write and read it.
_ITEMS = {
    "u32": FieldForm("int", put="put_u32", get="get_u32"),
    "string": FieldForm("str", put="Writer.put_text", get="Reader.printable"),
    "bytes": FieldForm("bytes", put="Writer.put_bytes", get="Reader.sized"),
}


def type_of(rows: Messages, part: Part) -> str:
    name = part.kind.rstrip("[]#")
    if part.kind in _FORMS:
        return _FORMS[part.kind].type
    if part.kind.endswith("#") and name in _ITEMS:
        return f"tuple[{_ITEMS[name].type}, ...]"
    if name in rows.records:
        return f"tuple[{name}, ...]"
    return part.kind if part.kind in rows.enumerations else "int"


def default_of(rows: Messages, part: Part) -> str:
    if part.kind in _FORMS:
        return _FORMS[part.kind].start
    if part.kind in rows.enumerations:
        return f"{part.kind}.{next(iter(rows.enumerations[part.kind].values))}"
    return str(part.default) if part.kind in _CODES else "()"


def snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")


def put_part(rows: Messages, part: Part, what: str) -> list[str]:
    value = f"m.{part.name}"
    if part.kind.endswith("#"):
        own = part.kind.rstrip("#")
        item = _ITEMS[own].put if own in _ITEMS else f"_put_{snake(own)}"
        count = [] if part.counted else [f'    w.put("u32", len({value}))']
        return [*count, f"    put_items(w, {value}, {item})"]
    line = _written(rows, part, value)
    if part.minor:
        return [
            f"    if m.minor >= {part.minor}:",
            f"        {line}",
            f"    elif {value}:",
            f'        raise WireError(f"{what} of minor {{m.minor}} has no place for {part.name}")',
        ]
    if part.optional:
        return [f"    if {value}:", f"        {line}"]
    return [f"    {row}" for row in line.split("\n")]


def _written(rows: Messages, part: Part, value: str) -> str:
    if part.kind == "text":
        text = f"clean_text({value}, {part.most})" if part.cleaned else value
        return f"w.put_text({text})"
    if part.kind == "u16[]":
        return f'put_rows(w, "<H", tuple((one,) for one in {value}))'
    if part.kind.endswith("[]"):
        return f'put_rows(w, "<{_row_code(rows, part)}", {value})'
    form = _FORMS.get(part.kind, _OTHER).put or f'w.put("{_scalar(rows, part)}", {{value}})'
    return form.format(value=value, most=part.most)


def _scalar(rows: Messages, part: Part) -> str:
    return part.kind if part.kind in _CODES else rows.enumerations[part.kind].kind


def _row_code(rows: Messages, part: Part) -> str:
    record = rows.records[part.kind.removesuffix("[]")]
    return "".join(_CODES[one.kind] for one in record.parts)


def checks(message: Message) -> list[str]:
    lines = []
    for part in message.parts:
        if part.kind == "text" and part.least:
            lines.append(f'    check(bool(m.{part.name}), "{message.name}: {part.name} is empty")')
        if part.needs:
            why = f"{message.name}: a {part.name} needs the field {part.needs}"
            lines.append(f'    check(m.{part.needs} or not m.{part.name}, "{why}")')
    return lines


def got(rows: Messages, part: Part) -> str:
    """Returns the expression that reads a field; of a field without a member, the statement."""
    what = part.name.replace("_", " ")
    name = part.kind.rstrip("[]#")
    if part.kind == "u16[]":
        return f'tuple(row[0] for row in get_rows(r, "<H", {part.most}, "{what}"))'
    if part.kind.endswith("[]"):
        row = f'get_rows(r, "<{_row_code(rows, part)}", {part.most}, "{what}")'
        return f"tuple({name}(*row) for row in {row})"
    if part.kind.endswith("#"):
        item = _ITEMS[name].get if name in _ITEMS else f"_{snake(name)}"
        count = f"{part.name}_count"
        if not part.counted:
            count = f'get_count(r, {part.most}, "{what}")'
        return f"get_items(r, {count}, {item})"
    if part.kind in rows.enumerations:
        kind = rows.enumerations[part.kind].kind
        return (
            f"get_enum(r, {part.kind})" if kind == "u8" else f'get_enum(r, {part.kind}, "{kind}")'
        )
    if part.kind in _CODES and (part.least or part.most):
        most = part.most or (1 << 8 * SCALAR_BYTES[part.kind]) - 1
        return f'get_number(r, "{part.kind}", {part.least}, {most}, "{what}")'
    form = _FORMS.get(part.kind, _OTHER).get or f'r.integer("{part.kind}")'
    text = form.format(what=what, most=part.most, name=part.name)
    if part.minor:
        return f"{text} if minor >= {part.minor} else ()"
    return f'get_optional(r, get_wishes, "{what}")' if part.optional else text
