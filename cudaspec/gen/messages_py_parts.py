"""The statements with which generated Python code writes, reads and checks a message's field."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudaspec.gen.field_form import FieldForm

if TYPE_CHECKING:
    from cudaspec.message import Message, Messages, Part

_CODES = {"u8": "B", "u16": "H", "u32": "I", "i32": "i", "u64": "Q"}
_FORMS = {
    "magic": FieldForm("int", put='w.put("u32", MAGIC)'),
    "bool": FieldForm("bool", "False", 'w.put("u8", int({value}))', 'get_bool(r, "{what}")'),
    "text": FieldForm("str", '""', get="r.text({most})"),
    "secret": FieldForm(
        "bytes", "bytes(SECRET_BYTES)", "w.put_bytes({value})",
        'get_exactly(r, SECRET_BYTES, "secret")',
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


def type_of(rows: Messages, part: Part) -> str:
    name = part.kind.rstrip("[]#")
    if part.kind in _FORMS:
        return _FORMS[part.kind].type
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
        record = part.kind.rstrip("#")
        return [
            f'    w.put("u32", len({value}))',
            f"    for one in {value}:",
            f"        _put_{snake(record)}(w, one)",
        ]
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
    form = _FORMS.get(part.kind, _OTHER).put or f'w.put("{_scalar(part)}", {{value}})'
    return form.format(value=value)


def _scalar(part: Part) -> str:
    return part.kind if part.kind in _CODES else "u8"


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
    """Returns the expression that reads a field."""
    what = part.name.replace("_", " ")
    name = part.kind.rstrip("[]#")
    if part.kind == "u16[]":
        return f'tuple(row[0] for row in get_rows(r, "<H", {part.most}, "{what}"))'
    if part.kind.endswith("[]"):
        row = f'get_rows(r, "<{_row_code(rows, part)}", {part.most}, "{what}")'
        return f"tuple({name}(*row) for row in {row})"
    if part.kind.endswith("#"):
        return f'get_records(r, {part.most}, _{snake(name)}, "{what}")'
    if part.kind in rows.enumerations:
        return f"get_enum(r, {part.kind})"
    if part.kind in _CODES and (part.least or part.most):
        most = part.most or (1 << 8 * _size(part.kind)) - 1
        return f'get_number(r, "{part.kind}", {part.least}, {most}, "{what}")'
    form = _FORMS.get(part.kind, _OTHER).get or f'r.integer("{part.kind}")'
    text = form.format(what=what, most=part.most)
    if part.minor:
        return f"{text} if minor >= {part.minor} else ()"
    return f'get_optional(r, get_wishes, "{what}")' if part.optional else text


def _size(kind: str) -> int:
    return {"u8": 1, "u16": 2, "u32": 4, "i32": 4, "u64": 8}[kind]
